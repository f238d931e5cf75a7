/* When a sandbox's time is over. Ends are real time in the store and in answers, but the wait is
 * monotonic: a clock that jumps makes no sandbox end early or live on. Called by all that begins or
 * changes an end; what then happens is lifecycle.c's. */

#include "core/lifecycle.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/timers.h"

#include <stdlib.h>

#define CLOCK_JUMP_MS 2000 /* less is drift, and does no harm */

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

/* The end that it has in any state. */
static void move_destroy(struct sandbox_obj *o, int64_t offset_ms)
{
    if (timer_armed(&o->destroy))
        o->s.destroy_real_ms = offset_ms + (int64_t)o->destroy.node.at;
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

        if (life_is_at_rest(o->s.state))
            o->s.kept_real_ms += jump_ms;
        else if (sandbox_life(o)->timer == LIFE_TIMER_LIFETIME && timer_armed(&o->end))
            o->s.end_real_ms = offset_ms + (int64_t)o->end.node.at;
        else if (!timer_armed(&o->destroy))
            continue;
        move_destroy(o, offset_ms);
        sandbox_write_row(o);
    }
}

enum err_code lifecycle_check_ttl(const struct core *c, int64_t ttl_ms, struct err *e)
{
    if (ttl_ms > 0 && (uint64_t)ttl_ms <= c->config.max_ttl_ms)
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   "a time to live of %lld s: it must be above 0 and at most %llu s",
                   (long long)ttl_ms / 1000, (unsigned long long)c->config.max_ttl_ms / 1000u);
}
