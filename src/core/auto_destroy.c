/* The time is stored as real time, so that it goes on while no cayd runs, and waited for by the
 * monotonic clock, so that a clock that is set ends none early. The timer is one of its own: the
 * one of the end has another meaning in each state (life.h), and none where a sandbox is paused.
 *
 * The end itself is that of a call of the owner's (core_sandbox_kill): allowed in the same states,
 * so that nothing else has to know of it. */

#include "core/auto_destroy.h"

#include "base/clock.h"
#include "core/core_internal.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"

#define NOT_READY_MS 1000u /* LIST and KEPTS tell first what there is of it */

void auto_destroy_arm(struct sandbox_obj *o)
{
    struct timers *timers = &o->core->timers;
    int64_t left_ms = MAX(o->s.destroy_real_ms - clock_real_ms(), 0);

    if (o->s.destroy_real_ms == 0)
        timers_cancel(timers, &o->destroy);
    else
        timers_set(timers, &o->destroy, clock_mono_ms() + (uint64_t)left_ms);
}

void auto_destroy_on_timer(struct timer *t)
{
    struct sandbox_obj *o = CONTAINER_OF(t, struct sandbox_obj, destroy);
    struct core *c = o->core;

    if (!c->ready) {
        timers_set(&c->timers, &o->destroy, clock_mono_ms() + NOT_READY_MS);
        return;
    }
    if (o->kill_wanted || sandbox_life(o)->kill != LIFE_CALL_END)
        return; /* it is ending already */
    o->end_reason = "timeout";
    lifecycle_end(o, "the time that it has in any state is over");
}

enum err_code core_sandbox_set_auto_destroy(struct core *c, const char *tenant, const char *id,
                                            int64_t after_ms, const struct sandbox **out,
                                            struct err *e)
{
    struct sandbox_obj *o = NULL;
    struct sandbox changed;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);

    if (code == ERR_OK && (after_ms < 0 || after_ms > CORE_AUTO_DELETE_MAX_MS))
        code = err_set(e, ERR_INVALID, "a sandbox is ended after 0 to %lld ms, not after %lld",
                       (long long)CORE_AUTO_DELETE_MAX_MS, (long long)after_ms);
    if (code != ERR_OK)
        return code;
    lifecycle_check_clock(c);
    changed = o->s;
    changed.destroy_real_ms = after_ms > 0 ? clock_real_ms() + after_ms : 0;
    code = sandbox_write_through(o, &changed, out, e);
    if (code == ERR_OK)
        auto_destroy_arm(o);
    return code;
}
