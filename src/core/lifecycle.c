/* Carries out the table of life.h: start, timer, LIST, the end of PID 1, kill. Called by core.c
 * (rows at the start, LIST, privd's ENDED), by timers and by calls of clients.
 *
 * Order of an end: ENDING (written, privd is told), then ENDED (privd has confirmed, the row is
 * gone), so that a kill of cayd in between is made good by the next start: a row that is ENDING is
 * ended again, a sandbox without a row is a stray. Only privd's own word (it could not make it,
 * LIST does not have it, its PID 1 ended) leads to ENDED at once.
 *
 * Ends are real time in the store and in answers, but the wait is monotonic: a clock that jumps
 * makes no sandbox end early or live on. */

#include "core/lifecycle.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/auto_delete.h"
#include "core/auto_destroy.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/counters.h"
#include "core/create.h"
#include "core/deferred.h"
#include "core/egress.h"
#include "core/events.h"
#include "core/freeze.h"
#include "core/idle.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/pause.h"
#include "core/sandbox.h"
#include "core/sandbox_make.h"
#include "core/sockets.h"
#include "core/store_sandbox.h"
#include "core/timers.h"
#include "core/to_disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KILL_AGAIN_MS 1000u /* privd said no, or its channel is full */
#define CLOCK_JUMP_MS 2000  /* less is drift, and does no harm */

/* However the clock was set between two looks: no sandbox lives longer than it may. */
void lifecycle_arm(struct sandbox_obj *o)
{
    int64_t left_ms = MAX(o->s.end_real_ms - clock_real_ms(), 0);

    o->idle_requested = false;
    if (sandbox_life(o)->timer != LIFE_TIMER_LIFETIME)
        return;
    left_ms = MIN(left_ms, (int64_t)o->core->config.max_ttl_ms);
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + (uint64_t)left_ms);
}

/* The row is written first; when that fails it goes on: LIST is what counts at the next start. */
static void write_state(struct sandbox_obj *o)
{
    struct err e;

    if (store_sandbox_update(o->core->store, &o->s, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text);
}

void lifecycle_check_clock(struct core *c)
{
    int64_t offset_ms = clock_real_ms() - (int64_t)clock_mono_ms();
    int64_t jump_ms = c->clock_offset_ms ? offset_ms - c->clock_offset_ms : 0;

    if (c->clock_offset_ms && llabs(jump_ms) < CLOCK_JUMP_MS)
        return;
    c->clock_offset_ms = offset_ms;
    if (jump_ms == 0)
        return;
    log_warn("the clock was set by %+lld s; sandboxes live as long as they were to",
             (long long)jump_ms / 1000);
    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];

        if (core_sandbox_is_stopped(&o->s))
            o->s.kept_real_ms += jump_ms;
        else if (sandbox_life(o)->timer == LIFE_TIMER_LIFETIME && timer_armed(&o->end))
            o->s.end_real_ms = offset_ms + (int64_t)o->end.node.at_ms;
        else if (!timer_armed(&o->destroy))
            continue;
        auto_destroy_on_clock(o, offset_ms);
        write_state(o);
    }
}

void lifecycle_kill_failed(struct sandbox_obj *o, const struct err *why)
{
    core_sandbox_cb done = o->kill_done;

    o->kill_done = NULL;
    if (done)
        core_defer_error(o->core, done, o->kill_arg, why);
}

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

static void kill_again(struct sandbox_obj *o)
{
    struct err why;

    if (!keep_drops_quietly(o)) {
        err_set(&why, ERR_TIMEOUT, "sandbox %s does not end; it is tried again", o->s.id);
        lifecycle_kill_failed(o, &why);
    }
    lifecycle_send_kill(o);
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
    write_state(o);
    create_fail_text(o, ERR_CANCELED, "the sandbox was ended while it was being made");
    sockets_discard(o);
    timers_cancel(&c->timers, &o->sample);
    lifecycle_send_kill(o);
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
    if (store_sandbox_delete(o->core->store, o->s.id, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text);
    counters_ended(&o->core->counters, o->end_reason);
    if (o->kill_requested_us)
        histogram_add(&o->core->counters.steps[COUNTER_KILL],
                      clock_mono_us() - o->kill_requested_us);
    if (o->announced)
        events_add(o->tenant, EVENT_SANDBOX_ENDED, o->s.id,
                   json_pack("{s:s}", "reason", o->end_reason ? o->end_reason : "unknown"));
    if (done)
        done(o->kill_arg, &o->s, NULL);
    sandbox_free(o);
}

/* Why it ended by itself: for the log, and for events. */
static const struct cause {
    const char *text, *word;
} causes[] = {
    [PRIVSEP_CAUSE_ASKED] = {"it was asked for", "killed"},
    [PRIVSEP_CAUSE_EXITED] = {"its first process, cay-init, exited", "exited"},
    [PRIVSEP_CAUSE_KILLED] = {"its first process, cay-init, was killed from outside", "lost"},
    [PRIVSEP_CAUSE_OOM] = {"its first process, cay-init, was killed for want of memory",
                           "out_of_memory"},
};

static struct cause cause_of(const struct privsep_msg *m)
{
    uint32_t cause = m->u.ended.cause;

    return cause < ARRAY_SIZE(causes) && causes[cause].text
               ? causes[cause]
               : (struct cause){"for a reason that is not known", "unknown"};
}

void lifecycle_on_ended(struct core *c, const struct privsep_msg *m)
{
    char id[PRIVSEP_ID_SIZE + 1] = "";
    struct cause cause = cause_of(m);
    struct sandbox_obj *o;

    memcpy(id, m->u.ended.id, PRIVSEP_ID_SIZE);
    o = sandbox_get(c, NULL, id);
    if (!o || !o->known_to_privd || o->s.slot != m->slot || o->s.gen != m->gen)
        return;
    if (sandbox_life(o)->exit == LIFE_EXIT_WAIT)
        return;
    log_warn("sandbox %s: ended by itself: %s (status %d)", id, cause.text, m->u.ended.exit_status);
    if (keep_on_ended(o, cause.text))
        return;
    o->end_reason = cause.word;
    lifecycle_ended(o, cause.text);
}

/* -- the time of one is over ------------------------------------------------------------------- */

void lifecycle_time_is_over(struct sandbox_obj *o)
{
    if (sandbox_life(o)->timeout[o->s.on_timeout] == LIFE_TIMEOUT_PAUSE) {
        pause_on_timeout(o, o->s.idle_ms ? SANDBOX_PAUSE_IDLE : SANDBOX_PAUSE_TIMEOUT);
        return;
    }
    o->end_reason = o->s.idle_ms ? "idle" : "timeout";
    lifecycle_end(o, o->s.idle_ms ? "it was not used" : "its time is over");
}

static void lifetime_fired(struct sandbox_obj *o)
{
    if (!to_disk_on_timer(o) && !idle_goes_on(o))
        lifecycle_time_is_over(o);
}

void lifecycle_on_timer(struct sandbox_obj *o)
{
    switch (sandbox_life(o)->timer) {
    case LIFE_TIMER_CREATE: create_on_deadline(o); break;
    case LIFE_TIMER_LIFETIME: lifetime_fired(o); break;
    case LIFE_TIMER_KILL: kill_again(o); break;
    case LIFE_TIMER_CHANGE: pause_on_deadline(o); break;
    case LIFE_TIMER_REST: auto_delete_on_timer(o); break;
    case LIFE_TIMER_NONE:
        log_error("sandbox %s: a timer in state %s", o->s.id, sandbox_life(o)->name);
        break;
    }
}

/* -- against what privd has -------------------------------------------------------------------- */

/* A sandbox that was being made when cayd died is undone. The state of one that was being paused or
 * resumed is LIST's. */
static void begin(struct sandbox_obj *o)
{
    const struct life *life = sandbox_life(o);

    o->announced = life->at_start != LIFE_START_UNDO && !o->s.serves_volume;
    auto_destroy_arm(o);
    switch (life->at_start) {
    case LIFE_START_RUN:
        o->known_to_privd = true;
        lifecycle_arm(o);
        break;
    case LIFE_START_UNDO: sandbox_move(o, SANDBOX_ENDING); break;
    case LIFE_START_FILES: auto_delete_adopt(o); break;
    case LIFE_START_REFUSE: /* lifecycle_adopt */
    case LIFE_START_END:
    case LIFE_START_DELETE: break;
    }
}

enum err_code lifecycle_adopt(struct core *c, const struct sandbox *s, struct err *e)
{
    struct sandbox_obj *o = sandbox_adopt(c, s);

    if (!o)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (sandbox_life(o)->at_start == LIFE_START_DELETE) {
        enum err_code code = store_sandbox_delete(c->store, o->s.id, e);

        sandbox_free(o);
        return code;
    }
    if (sandbox_life(o)->at_start == LIFE_START_REFUSE)
        return err_set(e, ERR_INTERNAL, "the row of sandbox %s is in state %d, which is none",
                       o->s.id, (int)o->s.state);
    begin(o);
    return ERR_OK;
}

void lifecycle_on_missing(struct sandbox_obj *o)
{
    enum kept_seen seen = keep_seen(o->core, o->s.kept, o->s.id);

    switch (sandbox_life(o)->missing) {
    case LIFE_MISSING_WAIT: break;
    case LIFE_MISSING_FILES: keep_on_missing(o, seen); break;
    case LIFE_MISSING_LOST:
        o->end_reason = "lost";
        lifecycle_ended(o, "it did not outlive a restart");
        break;
    case LIFE_MISSING_DONE:
        o->known_to_privd = false;
        if (o->s.kept && seen != KEPT_SEEN_NONE)
            keep_drop(o);
        else
            lifecycle_ended(o, "it did not outlive a restart");
        break;
    }
}

void lifecycle_on_listed(struct sandbox_obj *o, uint32_t slot, uint32_t gen, bool frozen)
{
    enum life_listed listed = sandbox_life(o)->listed;
    bool moved = o->s.slot != slot || o->s.gen != gen;

    if (listed == LIFE_LISTED_WAIT)
        return;
    if (moved)
        egress_leave(o);
    o->s.slot = slot;
    o->s.gen = gen;
    o->known_to_privd = o->listed = true;
    switch (listed) {
    case LIFE_LISTED_KILL: lifecycle_send_kill(o); break;
    case LIFE_LISTED_END: lifecycle_end(o, "it may not be there"); break;
    case LIFE_LISTED_KEEP:
        if (moved)
            write_state(o);
        if (frozen)
            freeze_let_go_on(o);
        break;
    case LIFE_LISTED_SETTLE:
        if (moved)
            write_state(o);
        pause_settle(o, frozen);
        break;
    case LIFE_LISTED_RUNS:
        keep_on_listed_running(o);
        if (frozen)
            freeze_let_go_on(o);
        break;
    case LIFE_LISTED_AGAIN:
        keep_on_listed_again(o);
        if (frozen && o->s.kept_memory) /* it goes on; one that boots is kept again, and ends */
            freeze_let_go_on(o);
        break;
    case LIFE_LISTED_WAIT: break;
    }
    if (moved)
        egress_touch(o);
}

/* -- calls ------------------------------------------------------------------------------------- */

void core_sandbox_kill(struct core *c, const char *tenant, const char *id, core_sandbox_cb done,
                       void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, tenant, id);
    struct err e;

    if (!o || o->s.serves_volume || o->kill_wanted || sandbox_life(o)->kill != LIFE_CALL_END) {
        err_set(&e, ERR_NOT_FOUND, "there is no sandbox '%.32s' (it may have ended)", id);
        core_defer_error(c, done, arg, &e);
        return;
    }
    o->kill_done = done;
    o->kill_arg = arg;
    o->end_reason = "killed";
    o->kill_requested_us = clock_mono_us();
    lifecycle_end(o, "it was asked for");
}

enum err_code lifecycle_check_ttl(const struct core *c, int64_t ttl_ms, struct err *e)
{
    if (ttl_ms > 0 && (uint64_t)ttl_ms <= c->config.max_ttl_ms)
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   "a time to live of %lld ms: it must be above 0 and at most %llu s",
                   (long long)ttl_ms, (unsigned long long)c->config.max_ttl_ms / 1000u);
}

/* Than the end that it has, also by its last use. */
static bool is_later(const struct sandbox_obj *o, int64_t ttl_ms)
{
    if (clock_mono_ms() + (uint64_t)ttl_ms <= o->end.node.at_ms)
        return false;
    return o->s.idle_ms == 0 || clock_real_ms() + ttl_ms > idle_end_real_ms(o);
}

enum err_code core_sandbox_set_ttl(struct core *c, const char *tenant, const char *id,
                                   int64_t ttl_ms, bool extend_only, const struct sandbox **out,
                                   struct err *e)
{
    struct sandbox_obj *o = NULL;
    struct sandbox changed;
    enum err_code code = lifecycle_check_ttl(c, ttl_ms, e);

    if (code == ERR_OK)
        code = sandbox_visible(c, tenant, id, &o, e);
    if (code != ERR_OK)
        return code;
    if (!extend_only || is_later(o, ttl_ms)) {
        changed = o->s;
        changed.end_real_ms = clock_real_ms() + ttl_ms;
        changed.idle_ms = 0; /* a caller that names an end wants that one */
        code = store_sandbox_update(c->store, &changed, e);
        if (code != ERR_OK)
            return code;
        o->s.end_real_ms = changed.end_real_ms;
        o->s.idle_ms = 0;
        lifecycle_arm(o);
    }
    if (out)
        *out = &o->s;
    return ERR_OK;
}

enum err_code core_sandbox_set_metadata(struct core *c, const char *tenant, const char *id,
                                        json_t *metadata, const struct sandbox **out, struct err *e)
{
    struct sandbox_obj *o = NULL;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);

    if (code == ERR_OK)
        code = store_sandbox_set_metadata(c->store, o->s.id, metadata, e);
    if (code != ERR_OK)
        return code;
    json_decref(o->s.metadata);
    o->s.metadata = json_incref(metadata);
    *out = &o->s;
    return ERR_OK;
}
