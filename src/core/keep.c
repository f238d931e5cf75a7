/* A pause that keeps a sandbox's files: its environment is written, privd is asked to KEEP, and the
 * answer decides whether it is paused. Calls of clients come through pause.c, whose waiters and
 * steps are those of all tiers. keep_restart.c boots it again, keep_settle.c decides where no
 * answer came, lifecycle_end.c removes the files at its end. A number is in use from the row that
 * is written before KEEP until the row of a sandbox that runs again, or of one whose files were
 * dropped. */

#include "core/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/archive_file.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/dump.h"
#include "core/egress.h"
#include "core/exec.h"
#include "core/hooks.h"
#include "core/keep_internal.h"
#include "core/life.h"
#include "core/pause_internal.h"
#include "core/pause_waiters.h"
#include "core/sandbox.h"
#include "core/sockets.h"
#include "core/store_sandbox.h"
#include "core/tier.h"
#include "core/timers.h"

#include <errno.h>

#define ENV_TIMEOUT_MS 5000u
#define ENV_BYTES_MAX  (2u * 1024u * 1024u)

static void on_kept(struct core *c, const char *id, int status, const struct privsep_msg *m,
                    int *fds, size_t n_fds, void *arg);

int64_t keep_send_request(struct sandbox_obj *o)
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
    int64_t rc = keep_send_request(o);
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

void keep_mark_kept(struct sandbox_obj *o)
{
    dump_forget(o);
    egress_leave(o);
    exec_command_sandboxes_free(o);
    sockets_discard(o);
    o->known_to_privd = o->change_requested = o->env_requested = o->keep_requested = o->keep_late =
        o->rolled_back = false;
}

void keep_done(struct sandbox_obj *o)
{
    trace_sandbox_step(o, TRACE_PAUSE_ENV, o->trace.begun_us, o->env_us);
    trace_sandbox_step(o, TRACE_PAUSE_KEPT, o->env_us, clock_mono_us());
    keep_mark_kept(o);
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

void keep_stays_kept(struct sandbox_obj *o)
{
    struct err why;

    if (o->restart_refused)
        why = o->dump_why;
    else
        err_set(&why, ERR_UNAVAILABLE, "it was interrupted: the sandbox is paused");
    keep_mark_kept(o);
    pause_not_resumed(o, SANDBOX_KEPT, &why);
}

void keep_waits(struct sandbox_obj *o)
{
    struct err why;

    err_set(&why, ERR_UNAVAILABLE,
            "the sandbox has ended, and its files could not be kept yet: that is tried on, and it "
            "is paused once they are");
    err_hint(&why, "the server's log says what fails on the state disk; see `cay doctor`");
    if (!o->keep_late)
        log_error("sandbox %s: %s", o->s.id, why.text);
    o->keep_late = true;
    dump_forget(o);
    o->change_requested = o->keep_requested = o->known_to_privd = false;
    pause_fail(o, &why);
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
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
    if (status == -EINPROGRESS) {
        keep_waits(o);
        return;
    }
    keep_error(&why, status);
    if (status == 0 && sandbox_life(o)->change == LIFE_CHANGE_PAUSE) {
        keep_done(o);
    } else if (status == 0) {
        keep_stays_kept(o);
    } else if (sandbox_life(o)->change == LIFE_CHANGE_PAUSE) {
        keep_not_done(o, &why);
    } else {
        log_error("sandbox %s: its files are not kept again: %s", id, why.text);
        timers_set(&c->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
    }
}
