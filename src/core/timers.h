#pragma once
/* Many timers behind one libuv timer (base/timer_heap.h, by clock_mono_ms). The loop wakes for the
 * earliest end only, and not at all when nothing is armed. A struct timer lives inside its owner,
 * who cancels it before it goes away. */

#include "base/timer_heap.h"

#include <uv.h>

struct timer {
    struct timer_node node;
    void (*fire)(struct timer *t);
};

struct timers {
    uv_timer_t uv;
    struct timer_heap heap;
    uint64_t armed_ms; /* the time that uv is armed for; 0: none */
};

void timers_init(struct timers *ts, uv_loop_t *loop);

/* Cancels all. The owner closes ts->uv afterwards. */
void timers_free(struct timers *ts);

/* (Re-)arms t, which cannot fail; a time in the past fires in the next turn of the loop. */
void timers_set(struct timers *ts, struct timer *t, uint64_t at_ms);
void timers_cancel(struct timers *ts, struct timer *t);

static inline bool timer_armed(const struct timer *t)
{
    return timer_node_armed(&t->node);
}
