/* When a stopped sandbox is ended. The time is stored as that of the stop (kept_real_ms), so that
 * it goes on while no cayd runs, and waited for by the monotonic clock, so that a clock that is set
 * ends none early: lifecycle_check_clock moves the stored time along with it.
 *
 * The end is that of any sandbox (lifecycle_end): ENDING is written first, then its files are
 * dropped, then the row goes; a cayd that is killed in between goes on from the row. A start that
 * comes before that step leaves the state that this timer belongs to, and so cancels it; one that
 * comes after it finds no sandbox. */

#include "core/auto_delete.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/keep.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core/store_sandbox.h"

#define NOT_READY_MS 1000u /* LIST and KEPTS tell first what there is of it */

void auto_delete_arm(struct sandbox_obj *o)
{
    const struct sandbox *s = &o->s;
    struct timers *timers = &o->core->timers;
    int64_t left_ms;

    if (sandbox_life(o)->timer != LIFE_TIMER_REST)
        return;
    if (s->auto_delete_ms == 0 || s->kept_memory) {
        timers_cancel(timers, &o->end);
        return;
    }
    left_ms = MAX(s->kept_real_ms + s->auto_delete_ms - clock_real_ms(), 0);
    timers_set(timers, &o->end, clock_mono_ms() + (uint64_t)MIN(left_ms, s->auto_delete_ms));
}

/* A stop that is still to come, as the clock was set back while no cayd ran, counts from now. */
void auto_delete_adopt(struct sandbox_obj *o)
{
    struct err e;

    if (core_sandbox_is_stopped(&o->s) && o->s.kept_real_ms > clock_real_ms()) {
        o->s.kept_real_ms = clock_real_ms();
        if (store_sandbox_update(o->core->store, &o->s, &e) != ERR_OK)
            log_error("sandbox %s: %s", o->s.id, e.text);
    }
    auto_delete_arm(o);
}

void auto_delete_on_timer(struct sandbox_obj *o)
{
    struct core *c = o->core;

    if (o->s.auto_delete_ms == 0)
        return;
    if (!c->ready) {
        timers_set(&c->timers, &o->end, clock_mono_ms() + NOT_READY_MS);
        return;
    }
    o->end_reason = "auto_delete";
    lifecycle_end(o, "it was stopped, and not started again in its time");
}

enum err_code core_sandbox_set_auto_delete(struct core *c, const char *tenant, const char *id,
                                           int64_t after_ms, const struct sandbox **out,
                                           struct err *e)
{
    struct sandbox_obj *o = NULL;
    struct sandbox changed;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);

    if (code == ERR_OK && after_ms > CORE_AUTO_DELETE_MAX_MS)
        code = err_set(e, ERR_INVALID, "a stopped sandbox is deleted after %lld ms at most",
                       (long long)CORE_AUTO_DELETE_MAX_MS);
    if (code == ERR_OK && after_ms != 0)
        code = keep_check(c, e);
    if (code != ERR_OK)
        return code;
    lifecycle_check_clock(c);
    changed = o->s;
    changed.on_timeout = after_ms == 0 ? SANDBOX_ON_TIMEOUT_KILL : SANDBOX_ON_TIMEOUT_PAUSE;
    if (after_ms != 0 && !core_sandbox_pauses_when_idle(&o->s))
        changed.timeout_tier = SANDBOX_TIER_FILES;
    changed.auto_delete_ms = MAX(after_ms, 0);
    code = sandbox_write_through(o, &changed, out, e);
    if (code == ERR_OK)
        auto_delete_arm(o);
    return code;
}
