/* A sandbox whose files are kept runs again: CREATE on them, which goes through create.c, or on a
 * copy of the snapshot that it is rolled back to. Where that fails, its own files are kept again:
 * KEEP, or KILL of what was made of the snapshot. */

#include "core/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/archive_file.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/dump.h"
#include "core/keep_internal.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/pause_internal.h"
#include "core/pause_waiters.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/sockets.h"
#include "core/store_sandbox.h"
#include "core/template.h"
#include "core/tier.h"
#include "core/timers.h"
#include "core/volume.h"

#include <errno.h>
#include <string.h>

/* Its own files, or those of the snapshot that it is rolled back to: it may be gone by now. */
static int64_t send_restart(struct sandbox_obj *o, uint32_t template_number)
{
    const struct snapshot *s = NULL;

    if (o->rollback_to[0])
        s = core_snapshot_find(o->core, o->s.tenant, o->rollback_to);
    o->rolled_back = s != NULL;
    return create_send(o, template_number, s ? s->number : o->s.kept, s ? s->id : NULL);
}

static void await_restart(struct sandbox_obj *o)
{
    const struct core_config *config = &o->core->config;

    if (o->restoring)
        dump_await_restore(o);
    else
        timers_set(&o->core->timers, &o->end,
                   clock_mono_ms() + config->privd_timeout_ms + config->agent_timeout_ms);
}

void keep_send_restart(struct sandbox_obj *o)
{
    const struct template_info *t = templates_entry(o->core, o->s.template_id);
    int64_t rc = t ? send_restart(o, t->number) : -ENOENT;
    struct err why;

    if (rc >= 0) {
        await_restart(o);
        return;
    }
    call_privd_err(&why, rc, "resuming the sandbox");
    keep_restart_refused(o, (int)rc, &why);
}

/* Its processes go on, but where it is to boot. A copy of a snapshot's files has none; its own
 * has it still until that runs. */
static void choose_memory(const struct sandbox_obj *o, struct sandbox *changed, bool *restoring)
{
    *restoring = o->s.kept_memory && !o->reboot;
    changed->kept_memory = o->s.kept_memory && (!o->reboot || o->rollback_to[0]);
}

enum err_code keep_resume(struct sandbox_obj *o, struct err *e)
{
    const struct template_info *t = templates_entry(o->core, o->s.template_id);
    struct sandbox changed = o->s;
    struct core *c = o->core;
    bool restoring;
    enum err_code code;
    int64_t rc;

    if (!t)
        return err_set(e, ERR_UNAVAILABLE, "template %s, which its files lie on, is not there",
                       o->s.template_id);
    if (o->rollback_to[0] && !core_snapshot_find(c, o->s.tenant, o->rollback_to))
        return err_set(e, ERR_NOT_FOUND,
                       "snapshot %s was removed meanwhile: the sandbox is paused, with its own "
                       "files",
                       o->rollback_to);
    code = volumes_check(c, o->s.tenant, &o->s, o->s.volumes, e);
    if (code != ERR_OK)
        return code;
    changed.state = SANDBOX_RESTARTING;
    choose_memory(o, &changed, &restoring);
    ids_random_bytes(changed.agent_key, sizeof(changed.agent_key));
    code = store_sandbox_update(c->store, &changed, e);
    if (code != ERR_OK)
        return code;
    memcpy(o->s.agent_key, changed.agent_key, sizeof(o->s.agent_key));
    o->restoring = restoring;
    rc = send_restart(o, t->number);
    if (rc < 0) {
        o->rolled_back = o->restoring = false;
        sandbox_write_row(o);
        return call_privd_err(e, rc, "resuming the sandbox");
    }
    o->s.kept_memory = changed.kept_memory;
    if (restoring)
        o->fell.text[0] = '\0';
    sandbox_move(o, SANDBOX_RESTARTING);
    o->change_requested = true;
    o->begun_us = clock_mono_us();
    trace_sandbox_begin(o, TRACE_RESUME,
                        tier_of(restoring ? SANDBOX_TIER_MEMORY : SANDBOX_TIER_FILES)->name,
                        o->begun_us);
    await_restart(o);
    return ERR_OK;
}

/* A restore that fails after it has read the image costs it: before the caller is told, KEPTS says
 * whether it is there. false: that cannot be asked for now. */
static bool query_memory(struct sandbox_obj *o, const struct err *why)
{
    if (keep_request_settle(o->core) < 0)
        return false;
    o->restart_refused = true;
    o->dump_why = *why;
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + o->core->config.privd_timeout_ms);
    return true;
}

/* None of it was read where it has to wait for others. */
static bool may_be_without_memory(const struct sandbox_obj *o, int status)
{
    return o->restoring && status != -EAGAIN && status != -EBUSY && !call_is_channel_error(status);
}

void keep_restart_refused(struct sandbox_obj *o, int status, const struct err *why)
{
    const bool may_be_lost = may_be_without_memory(o, status);

    o->change_requested = o->rolled_back = false;
    dump_forget(o);
    if (o->kill_wanted) {
        lifecycle_end(o, "it was asked for while it was being resumed");
        return;
    }
    if (call_is_channel_error(status))
        pause_channel_broke(o, status, "resuming the sandbox");
    else if (!may_be_lost || !query_memory(o, why))
        pause_not_resumed(o, SANDBOX_KEPT, why);
}

static void on_undone(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !o->change_requested || !sandbox_life(o)->files)
        return;
    o->change_requested = o->keep_requested = false;
    if (call_is_channel_error(status)) {
        pause_channel_broke(o, status, "ending the start from its snapshot");
    } else if (status == 0 || status == -ESTALE || status == -ESRCH || status == -ENOENT) {
        keep_stays_kept(o);
    } else {
        log_error("sandbox %s: its start from a snapshot does not end: %s", id, strerror(-status));
        timers_set(&c->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
    }
}

/* A sandbox that was made of a snapshot's files ends; its own are kept still. 0 or -errno. */
static int64_t send_undo(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_KILL, .slot = o->s.slot, .gen = o->s.gen};
    int64_t rc = call_privd(o->core, o->s.id, &m, on_undone, NULL);

    if (rc < 0)
        return rc;
    o->change_requested = o->keep_requested = true;
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + o->core->config.privd_timeout_ms);
    return 0;
}

void keep_files_again(struct sandbox_obj *o)
{
    int64_t rc = o->rolled_back ? send_undo(o) : keep_send_request(o);

    if (rc == 0 || call_is_channel_error(rc))
        return;
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
}

void keep_restart_failed(struct sandbox_obj *o, const struct err *why)
{
    log_warn("sandbox %s: not resumed, its files are kept again: %s", o->s.id, why->text);
    if (!o->rolled_back)
        archive_file_forget(o);
    pause_fail(o, why);
    o->change_requested = false;
    o->on_tenant_ca = NULL;
    sockets_discard(o);
    keep_files_again(o);
}

/* -- calls ------------------------------------------------------------------------------------- */

enum err_code core_sandbox_allow_files(struct core *c, const char *tenant, const char *id,
                                       struct err *e)
{
    struct sandbox_obj *o = NULL;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);

    if (code != ERR_OK || !o->s.kept_memory || o->s.or_files)
        return code;
    o->s.or_files = true;
    code = store_sandbox_update(c->store, &o->s, e);
    o->s.or_files = code == ERR_OK;
    return code;
}
