/* Carries out the table of life.h: start, timer, LIST, the end of PID 1, kill. Called by core.c
 * (rows at the start, LIST, privd's ENDED), by timers and by calls of clients.
 * The end itself is lifecycle_end.c. */

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
#include "core/ended.h"
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

static void kill_again(struct sandbox_obj *o)
{
    struct err why;

    if (!keep_drops_quietly(o)) {
        err_set(&why, ERR_TIMEOUT, "sandbox %s does not end; it is tried again", o->s.id);
        lifecycle_kill_failed(o, &why);
    }
    lifecycle_send_kill(o);
}

/* Why it ended by itself: for the log, and for events. */
static const struct cause {
    const char *text, *word;
} causes[] = {
    [PRIVSEP_CAUSE_REQUESTED] = {"it was asked for", "killed"},
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

static void lifetime_fired(struct sandbox_obj *o)
{
    if (!to_disk_on_timer(o) && !idle_goes_on(o))
        idle_time_is_over(o);
}

void lifecycle_on_timer(struct timer *t)
{
    struct sandbox_obj *o = CONTAINER_OF(t, struct sandbox_obj, end);

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
    case LIFE_START_END: ended_take_up(o); break;
    case LIFE_START_REFUSE: /* lifecycle_adopt */
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
            sandbox_write_row(o);
        if (frozen)
            freeze_let_go_on(o);
        break;
    case LIFE_LISTED_SETTLE:
        if (moved)
            sandbox_write_row(o);
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
        (void)core_sandbox_absent(c, tenant, id, &e);
        core_defer_error(c, done, arg, &e);
        return;
    }
    o->kill_done = done;
    o->kill_arg = arg;
    o->end_reason = "killed";
    o->kill_requested_us = clock_mono_us();
    lifecycle_end(o, "it was asked for");
}

/* Than the end that it has, also by its last use. */
static bool is_later(const struct sandbox_obj *o, int64_t ttl_ms)
{
    if (clock_mono_ms() + (uint64_t)ttl_ms <= o->end.node.at)
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
