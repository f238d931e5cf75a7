/* The end of a sandbox: KILL, then DROP where files of it are kept, each again for as long as privd
 * cannot.
 *
 * Order of an end: ENDING (written, privd is told), then ENDED (privd has confirmed, the row is
 * gone), so that a kill of cayd in between is made good by the next start: a row that is ENDING is
 * ended again, a sandbox without a row is a stray. Only privd's own word (it could not make it,
 * LIST does not have it, its PID 1 ended) leads to ENDED at once. */

#include "core/lifecycle.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/counters.h"
#include "core/create_error.h"
#include "core/deferred.h"
#include "core/ended.h"
#include "core/events.h"
#include "core/keep.h"
#include "core/keep_internal.h"
#include "core/life.h"
#include "core/pause_waiters.h"
#include "core/sandbox.h"
#include "core/sandbox_make.h"
#include "core/sockets.h"
#include "core/store_sandbox.h"
#include "core/timers.h"

#include <errno.h>
#include <string.h>

#define KILL_AGAIN_MS 1000u /* privd said no, or its channel is full */
#define DROP_AGAIN_MS 20u
#define OUT_OF_MEMORY "out_of_memory" /* as lifecycle.c has it */

void lifecycle_kill_failed(struct sandbox_obj *o, const struct err *why)
{
    core_sandbox_cb done = o->kill_done;

    o->kill_done = NULL;
    if (done)
        core_defer_error(o->core, done, o->kill_arg, why);
}

/* -- what is kept ------------------------------------------------------------------------------ */

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

/* -- what runs --------------------------------------------------------------------------------- */

/* ENDING, and no process of it is left. */
static void nothing_runs(struct sandbox_obj *o)
{
    if (o->s.kept)
        keep_drop(o);
    else
        lifecycle_ended(o, "nothing of it is left");
}

static void on_killed(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (!o || sandbox_life(o)->kill != LIFE_CALL_UNDER_WAY)
        return;
    if (status == 0 || status == -ESTALE || status == -ESRCH || status == -ENOENT) {
        o->known_to_privd = false;
        nothing_runs(o);
        return;
    }
    if (status == -EALREADY)
        return; /* the answer to an earlier KILL is still to come */
    call_privd_err(&why, status, "ending the sandbox");
    lifecycle_kill_failed(o, &why);
    if (call_is_channel_error(status))
        return; /* the next LIST tells whether it lives */
    log_warn("sandbox %s: %s; trying again", id, why.text);
    timers_set(&c->timers, &o->end, clock_mono_ms() + KILL_AGAIN_MS);
}

void lifecycle_send_kill(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_KILL, .slot = o->s.slot, .gen = o->s.gen};
    struct core *c = o->core;
    struct err why;
    int64_t rc;

    if (!o->known_to_privd && o->s.kept) {
        keep_drop(o);
        return;
    }
    if (!o->known_to_privd)
        return; /* the reply to CREATE, or LIST, tells */
    rc = call_privd(c, o->s.id, &m, on_killed, NULL);
    if (rc >= 0) {
        timers_set(&c->timers, &o->end, clock_mono_ms() + c->config.privd_timeout_ms);
        return;
    }
    if (call_is_channel_error(rc)) {
        err_set(&why, ERR_UNAVAILABLE,
                "sandbox %s ends as soon as cay-privd, which went away, is back", o->s.id);
        lifecycle_kill_failed(o, &why);
        timers_cancel(&c->timers, &o->end);
        return;
    }
    timers_set(&c->timers, &o->end, clock_mono_ms() + KILL_AGAIN_MS);
}

/* -- steps ------------------------------------------------------------------------------------- */

/* Of privd, to the CREATE of a sandbox that it makes. A sandbox that was being restarted may have
 * none to come: an earlier cayd has asked for it, or it was refused. */
static bool awaits_answer(const struct sandbox_obj *o)
{
    return sandbox_life(o)->awaits_create && !o->known_to_privd &&
           (!sandbox_life(o)->files || o->change_requested);
}

void lifecycle_end(struct sandbox_obj *o, const char *reason)
{
    struct core *c = o->core;
    struct err why;

    if (sandbox_life(o)->kill == LIFE_CALL_UNDER_WAY)
        return; /* as a build's whose row says so from before a restart */
    if (awaits_answer(o)) {
        o->kill_wanted = true; /* for when the reply to CREATE tells what to kill */
        create_fail_text(o, ERR_CANCELED, "the sandbox was ended while it was being made");
        err_set(&why, ERR_NOT_FOUND, "sandbox %s has ended: %s", o->s.id, reason);
        pause_fail(o, &why);
        return;
    }
    log_info("sandbox %s: ending: %s", o->s.id, reason);
    err_set(&why, ERR_NOT_FOUND, "sandbox %s has ended: %s", o->s.id, reason);
    pause_fail(o, &why);
    sandbox_move(o, SANDBOX_ENDING);
    ended_write(o);
    sandbox_write_row(o);
    create_fail_text(o, ERR_CANCELED, "the sandbox was ended while it was being made");
    sockets_discard(o);
    timers_cancel(&c->timers, &o->sample);
    lifecycle_send_kill(o);
}

/* Of an event. The memory limit of PID 1 ends the sandbox with it, so it names that process. */
static json_t *why_ended(const struct sandbox_obj *o)
{
    const char *reason = o->end_reason ? o->end_reason : "unknown";
    json_t *more = json_pack("{s:s}", "reason", reason);

    if (more && strcmp(reason, OUT_OF_MEMORY) == 0)
        json_object_set_new(more, "process", json_string("cay-init"));
    return more;
}

void lifecycle_ended(struct sandbox_obj *o, const char *reason)
{
    core_sandbox_cb done = TAKE_PTR(o->kill_done);
    struct err e;

    log_info("sandbox %s: ended: %s", o->s.id, reason);
    err_set(&e, ERR_UNAVAILABLE, "the sandbox ended while it was being made: %s", reason);
    create_fail(o, &e);
    err_set(&e, ERR_NOT_FOUND, "sandbox %s has ended: %s", o->s.id, reason);
    pause_fail(o, &e);
    if (!life_may_move(o->s.state, SANDBOX_ENDED))
        sandbox_move(o, SANDBOX_ENDING);
    sandbox_move(o, SANDBOX_ENDED);
    ended_write(o);
    if (store_sandbox_delete(o->core->store, o->s.id, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text);
    counters_ended(&o->core->counters, o->end_reason);
    if (o->kill_requested_us)
        histogram_add(&o->core->counters.steps[COUNTER_KILL],
                      clock_mono_us() - o->kill_requested_us);
    if (o->announced)
        events_add(o->tenant, EVENT_SANDBOX_ENDED, o->s.id, why_ended(o));
    if (done)
        done(o->kill_arg, &o->s, NULL);
    sandbox_free(o);
}
