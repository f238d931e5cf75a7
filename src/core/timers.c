#include "core/timers.h"

#include "base/clock.h"
#include "base/util.h"

#define FIRE_BATCH 64u /* due timers fired before the loop gets its turn again */

static void on_timer(uv_timer_t *uv);

/* libuv counts from its own idea of now, which may be a whole turn old: it is brought up to date
 * first, or every timer would be early or late by that much. */
static void rearm(struct timers *ts)
{
    uint64_t now, at = ts->heap.first ? MAX(ts->heap.first->at, 1) : 0;

    if (at == ts->armed_ms)
        return;
    ts->armed_ms = at;
    if (!at) {
        uv_timer_stop(&ts->uv);
        return;
    }
    now = clock_mono_ms();
    uv_update_time(ts->uv.loop);
    uv_timer_start(&ts->uv, on_timer, at > now ? at - now : 0, 0);
}

static bool is_due(const struct timers *ts, uint64_t now)
{
    return ts->heap.first && ts->heap.first->at <= now;
}

/* libuv may be a millisecond early (its clock is a coarse one): a timer that is not due yet waits
 * on. */
static void on_timer(uv_timer_t *uv)
{
    struct timers *ts = uv->data;
    uint64_t now = clock_mono_ms();

    for (unsigned i = 0; i < FIRE_BATCH && is_due(ts, now); i++) {
        struct timer *t = CONTAINER_OF(ts->heap.first, struct timer, node);

        timers_cancel(ts, t);
        t->fire(t);
    }
    ts->armed_ms = 0;
    if (ts->heap.first) {
        uint64_t at = ts->heap.first->at;

        uv_update_time(ts->uv.loop);
        ts->armed_ms = MAX(at, 1);
        uv_timer_start(&ts->uv, on_timer, at > now ? at - now : 0, 0);
    }
}

void timers_init(struct timers *ts, uv_loop_t *loop)
{
    *ts = (struct timers){0};
    uv_timer_init(loop, &ts->uv);
    ts->uv.data = ts;
}

void timers_free(struct timers *ts)
{
    while (ts->heap.first)
        timer_heap_remove(&ts->heap, ts->heap.first);
    uv_timer_stop(&ts->uv);
}

void timers_set(struct timers *ts, struct timer *t, uint64_t at_ms)
{
    timer_heap_set(&ts->heap, &t->node, at_ms);
    rearm(ts);
}

void timers_cancel(struct timers *ts, struct timer *t)
{
    if (!timer_node_armed(&t->node))
        return;
    timer_heap_remove(&ts->heap, &t->node);
    rearm(ts);
}
