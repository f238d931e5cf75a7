/* The files of a sandbox over a pause: what is asked of privd (KEEP, CREATE on kept files, DROP,
 * KEPTS) and what becomes of the sandbox by the answers. Calls of clients come through pause.c,
 * whose waiters and steps are those of both tiers; the CREATE of a restart goes through create.c. A
 * number is in use from the row that is written before KEEP until the row of a sandbox that runs
 * again, or of one whose files were dropped. */

#include "core/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/share.h"
#include "core/archive_file.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/dump.h"
#include "core/egress.h"
#include "core/exec.h"
#include "core/hooks.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/pause_internal.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/sockets.h"
#include "core/store_sandbox.h"
#include "core/template.h"
#include "core/tenant.h"
#include "core/tier.h"
#include "core/timers.h"
#include "core/volume.h"

#include <errno.h>
#include <string.h>

#define ENV_TIMEOUT_MS 5000u
#define ENV_BYTES_MAX  (2u * 1024u * 1024u)
#define KEPTS_AGAIN_MS 500u /* until KEPTS is asked again, for what privd is still at */
#define DROP_AGAIN_MS  20u

void keep_forget(struct sandbox_obj *o)
{
    o->s.kept = 0;
    o->s.kept_memory = o->s.or_files = false;
    dump_forget(o);
    archive_file_forget(o);
    o->hooks_requested = o->env_requested = o->keep_requested = o->rolled_back = false;
    json_decref(o->s.env);
    o->s.env = NULL;
}

bool keep_has_memory(const struct sandbox_obj *o)
{
    return sandbox_life(o)->files && sandbox_life(o)->change == LIFE_CHANGE_NONE &&
           o->s.kept_memory;
}

/* -- pausing ----------------------------------------------------------------------------------- */

static void on_kept(struct core *c, const char *id, int status, const struct privsep_msg *m,
                    int *fds, size_t n_fds, void *arg);

/* 0 or -errno. */
static int64_t send_keep(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_KEEP, .slot = o->s.slot, .gen = o->s.gen};
    int64_t rc;

    m.u.kept.number = o->s.kept;
    keep_owner(o->s.id, m.u.kept.owner);
    rc = call_privd(o->core, o->s.id, &m, on_kept, NULL);
    if (rc < 0)
        return rc;
    o->change_requested = o->keep_requested = true;
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + o->core->config.privd_timeout_ms);
    return 0;
}

void keep_not_done(struct sandbox_obj *o, const struct err *why)
{
    o->change_requested = o->env_requested = false;
    pause_not_done(o, why);
}

void keep_send(struct sandbox_obj *o)
{
    int64_t rc = send_keep(o);
    struct err why;

    if (rc >= 0)
        return;
    call_privd_err(&why, rc, "pausing the sandbox");
    keep_not_done(o, &why);
}

/* Written before KEEP, and to the disk: from then on nothing else has it, and the files that the
 * row names outlive the host. */
static enum err_code write_env(struct sandbox_obj *o, json_t *env, struct err *e)
{
    json_decref(o->s.env);
    o->s.env = json_incref(env);
    return store_sandbox_update_synced(o->core->store, &o->s, e);
}

static enum err_code take_env(struct sandbox_obj *o, const struct err *why, int status,
                              const char *body, size_t len, struct err *e)
{
    json_t *env = call_agent_env(why, status, body, len);
    enum err_code code = ERR_OK;

    if (!json_is_object(env))
        code = err_set(e, ERR_UNAVAILABLE,
                       "the sandbox was not paused: its agent, which has its environment, does not "
                       "answer%s%s",
                       why ? ": " : "", why ? why->text : "");
    if (code == ERR_OK)
        code = write_env(o, env, e);
    json_decref(env);
    return code;
}

static void on_env(struct core *c, const char *id, const struct err *why, int http_status,
                   const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err e;

    if (!o || !o->env_requested || !sandbox_life(o)->files || c->stopping)
        return; /* it ends, or LIST has told meanwhile */
    o->env_requested = false;
    o->env_us = clock_mono_us();
    if (take_env(o, why, http_status, body, len, &e) != ERR_OK)
        keep_not_done(o, &e);
    else if (o->s.kept_memory)
        dump_begin(o);
    else
        keep_send(o);
}

void keep_go_on(struct sandbox_obj *o, const struct err *why)
{
    const struct call_agent_request r = {.method = "GET",
                                         .target = "/envs",
                                         .max_response_bytes = ENV_BYTES_MAX,
                                         .timeout_ms = ENV_TIMEOUT_MS};
    struct err e;

    if (why) {
        (void)take_env(o, why, 0, NULL, 0, &e);
        keep_not_done(o, &e);
        return;
    }
    o->env_requested = true;
    timers_set(&o->core->timers, &o->end,
               clock_mono_ms() + ENV_TIMEOUT_MS + o->core->config.privd_timeout_ms);
    call_agent(o, &r, on_env, NULL);
}

enum err_code keep_begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                         const struct tier *tier, struct err *e)
{
    struct sandbox changed = o->s;
    struct core *c = o->core;
    const uint64_t begun_us = clock_mono_us();
    enum err_code code = keep_check(c, e);

    if (code == ERR_OK && !core_admits(c)) /* it may be a timer's, beside those of many others */
        code = err_set(e, ERR_EXHAUSTED, "memory is out");
    if (code == ERR_OK)
        code = keep_choose_number(c, o->s.tenant, &changed.kept, e);
    changed.state = SANDBOX_KEEPING;
    changed.pause_reason = reason;
    changed.kept_memory = tier->memory;
    changed.or_files = tier->or_files;
    if (code == ERR_OK)
        code = store_sandbox_update(c->store, &changed, e);
    if (code != ERR_OK)
        return code;
    o->s.kept = changed.kept;
    o->s.kept_memory = changed.kept_memory;
    o->s.or_files = changed.or_files;
    o->s.pause_reason = reason;
    o->fell.text[0] = '\0';
    sandbox_move(o, SANDBOX_KEEPING);
    o->change_requested = true;
    trace_sandbox_begin(o, TRACE_PAUSE, tier->name, begun_us);
    sockets_discard(o);
    timers_cancel(&c->timers, &o->sample);
    timers_set(&c->timers, &o->end, clock_mono_ms() + hooks_wait_ms() + c->config.privd_timeout_ms);
    hooks_before_pause(o, tier->name);
    return ERR_OK;
}

/* Nothing of it is left but its files, and its memory beside them. */
static void has_only_files(struct sandbox_obj *o)
{
    dump_forget(o);
    egress_leave(o);
    exec_command_sandboxes_free(o);
    sockets_discard(o);
    o->known_to_privd = o->change_requested = o->env_requested = o->keep_requested =
        o->rolled_back = false;
}

void keep_done(struct sandbox_obj *o)
{
    trace_sandbox_step(o, TRACE_PAUSE_ENV, o->trace.begun_us, o->env_us);
    trace_sandbox_step(o, TRACE_PAUSE_KEPT, o->env_us, clock_mono_us());
    has_only_files(o);
    pause_done(o, SANDBOX_KEPT);
}

static void keep_error(struct err *e, int status)
{
    if (status == -EOPNOTSUPP)
        err_set(e, ERR_UNIMPLEMENTED,
                "the sandbox was not paused: files are in memory on this server");
    else
        call_privd_err(e, status, "pausing the sandbox");
}

/* Of one that was being restarted: it is where it was. */
static void kept_again(struct sandbox_obj *o)
{
    struct err why;

    has_only_files(o);
    err_set(&why, ERR_UNAVAILABLE, "it was interrupted: the sandbox is paused");
    pause_not_resumed(o, SANDBOX_KEPT, &why);
}

static void on_kept(struct core *c, const char *id, int status, const struct privsep_msg *m,
                    int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (!o || !o->change_requested || !sandbox_life(o)->files)
        return; /* it ends, and its kept files are dropped then */
    o->change_requested = o->keep_requested = false;
    if (call_is_channel_error(status)) {
        pause_channel_broke(o, status, "pausing the sandbox");
        return;
    }
    keep_error(&why, status);
    if (status == 0 && sandbox_life(o)->change == LIFE_CHANGE_PAUSE) {
        keep_done(o);
    } else if (status == 0) {
        kept_again(o);
    } else if (sandbox_life(o)->change == LIFE_CHANGE_PAUSE) {
        keep_not_done(o, &why);
    } else {
        log_error("sandbox %s: its files are not kept again: %s", id, why.text);
        timers_set(&c->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
    }
}

/* -- restarting -------------------------------------------------------------------------------- */

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
        pause_write_row(o);
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

void keep_restart_refused(struct sandbox_obj *o, int status, const struct err *why)
{
    o->change_requested = o->rolled_back = false;
    dump_forget(o);
    if (o->kill_wanted) {
        lifecycle_end(o, "it was asked for while it was being resumed");
        return;
    }
    if (call_is_channel_error(status))
        pause_channel_broke(o, status, "resuming the sandbox");
    else
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
        pause_channel_broke(o, status, "ending what was made of the snapshot");
    } else if (status == 0 || status == -ESTALE || status == -ESRCH || status == -ENOENT) {
        kept_again(o);
    } else {
        log_error("sandbox %s: what was made of a snapshot does not end: %s", id,
                  strerror(-status));
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

/* Whatever goes wrong here: LIST has it, and it is done then. */
static void keep_again(struct sandbox_obj *o)
{
    int64_t rc = o->rolled_back ? send_undo(o) : send_keep(o);

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
    o->change_requested = o->init_waits = false;
    sockets_discard(o);
    keep_again(o);
}

/* -- which state it is in, when no answer tells how it went ------------------------------------ */

void keep_on_listed_running(struct sandbox_obj *o)
{
    struct err why;

    if (o->change_requested)
        return; /* the answer is still to come */
    if (dump_again(o))
        return;
    err_set(&why, ERR_UNAVAILABLE, "the pause was interrupted by a restart: the sandbox runs");
    pause_not_done(o, &why);
}

void keep_on_listed_again(struct sandbox_obj *o)
{
    if (o->change_requested)
        return;
    if (sandbox_life(o)->change == LIFE_CHANGE_NONE) {
        sandbox_move(o, SANDBOX_RESTARTING);
        pause_write_row(o);
    }
}

/* KEPTS was answered, and LIST has it. Where its own files are whole beside it, it was made of a
 * snapshot's, and it was never told to have been rolled back. A sandbox that was kept
 * with its memory goes on: no answer of its agent's is owed. */
static void settle_listed(struct sandbox_obj *o)
{
    if (o->change_requested || sandbox_life(o)->listed != LIFE_LISTED_AGAIN)
        return;
    o->rolled_back = keep_seen(o->core, o->s.kept, o->s.id) == KEPT_SEEN_WHOLE;
    if (o->s.kept_memory && !o->rolled_back) {
        o->restoring = true;
        o->begun_us = o->made_us = clock_mono_us();
        dump_restored(o);
        return;
    }
    keep_again(o);
}

bool keep_on_ended(struct sandbox_obj *o, const char *cause)
{
    struct err why;

    if (!o->rolled_back)
        return false;
    err_set(&why, ERR_UNAVAILABLE,
            "it ended as it booted from the snapshot (%s): the sandbox is paused, with its own "
            "files",
            cause);
    has_only_files(o);
    pause_not_resumed(o, SANDBOX_KEPT, &why);
    return true;
}

static void is_kept(struct sandbox_obj *o)
{
    enum life_change change = sandbox_life(o)->change;

    if (change != LIFE_CHANGE_NONE && o->core->kepts.listed[o->s.kept].without_memory)
        dump_was_cut(o);
    if (change == LIFE_CHANGE_PAUSE) {
        has_only_files(o);
        pause_done(o, SANDBOX_KEPT);
    } else if (change == LIFE_CHANGE_RESUME) {
        kept_again(o);
    }
}

void keep_on_missing(struct sandbox_obj *o, enum kept_seen seen)
{
    if (o->change_requested)
        return;
    o->known_to_privd = false;
    switch (seen) {
    case KEPT_SEEN_WHOLE: is_kept(o); break;
    case KEPT_SEEN_BUSY:
        if (sandbox_life(o)->change != LIFE_CHANGE_NONE)
            timers_set(&o->core->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
        break;
    case KEPT_SEEN_NONE:
        o->end_reason = "error";
        lifecycle_ended(o, "its files, which were kept, are not there any more");
        break;
    }
}

static void on_kepts_answered(struct core *c, int status)
{
    if (status == 0)
        keep_settle_all(c);
}

bool keep_on_timer(struct sandbox_obj *o)
{
    struct err why;

    if (dump_on_timer(o))
        return true;
    if (o->change_requested && !o->keep_requested && o->known_to_privd &&
        sandbox_life(o)->change == LIFE_CHANGE_RESUME) {
        err_set(&why, ERR_TIMEOUT, "the sandbox was not ready in time: it is paused still");
        keep_restart_failed(o, &why);
        return true;
    }
    if (o->change_requested)
        return false;
    keep_send_kepts(o->core, on_kepts_answered);
    return true;
}

/* -- its end ----------------------------------------------------------------------------------- */

static void on_dropped(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (!o || sandbox_life(o)->kill != LIFE_CALL_UNDER_WAY || !o->s.kept)
        return;
    if (keep_is_gone(status)) {
        o->s.kept = 0;
        lifecycle_ended(o, "nothing of it is left");
    } else if (status == -EBUSY) { /* it is just being kept */
        timers_set(&c->timers, &o->end, clock_mono_ms() + DROP_AGAIN_MS);
    } else {
        call_privd_err(&why, status, "removing its files");
        lifecycle_kill_failed(o, &why);
        if (call_is_channel_error(status))
            return; /* the next LIST */
        log_warn("sandbox %s: %s; trying again", id, why.text);
        timers_set(&c->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
    }
}

void keep_drop(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_DROP};
    struct core *c = o->core;
    struct err why;
    int64_t rc;

    m.u.kept.number = o->s.kept;
    keep_owner(o->s.id, m.u.kept.owner);
    if (!o->dropping)
        o->drop_until_ms = clock_mono_ms() + c->config.privd_timeout_ms;
    o->dropping = true;
    rc = call_privd(c, o->s.id, &m, on_dropped, NULL);
    if (rc >= 0) {
        timers_set(&c->timers, &o->end, clock_mono_ms() + c->config.privd_timeout_ms);
        return;
    }
    call_privd_err(&why, rc, "removing its files");
    lifecycle_kill_failed(o, &why);
    if (call_is_channel_error(rc))
        timers_cancel(&c->timers, &o->end); /* the next LIST */
    else
        timers_set(&c->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
}

bool keep_drops_quietly(const struct sandbox_obj *o)
{
    return o->dropping && clock_mono_ms() < o->drop_until_ms;
}

/* Backwards: to end one, or to have it run, moves only what comes after it. */
void keep_settle_all(struct core *c)
{
    for (size_t i = c->registry.n; i > 0; i--) {
        struct sandbox_obj *o = i <= c->registry.n ? c->registry.order[i - 1] : NULL;

        if (o && !o->known_to_privd && sandbox_life(o)->missing == LIFE_MISSING_FILES)
            keep_on_missing(o, keep_seen(c, o->s.kept, o->s.id));
    }
    keep_settle_listed(c);
}

void keep_settle_listed(struct core *c)
{
    for (size_t i = c->registry.n; i > 0; i--)
        if (c->registry.order[i - 1]->known_to_privd)
            settle_listed(c->registry.order[i - 1]);
}
