#pragma once
/* Many timers behind one libuv timer: a binary heap by monotonic end. The loop wakes for the earliest
 * end only, and not at all when nothing is armed.
 *
 * A struct timer lives inside its owner, who cancels it before it goes away. Command sandbox is reserved ahead
 * (timers_reserve), so arming cannot fail. */

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct timer {
    uint64_t at_ms; /* clock_mono_ms */
    size_t pos;     /* 1 + place in the heap; 0: not armed */
    void (*fire)(struct timer *t);
};

struct timers {
    uv_timer_t uv;
    struct timer **heap;
    size_t n, cap, reserved;
    uint64_t armed_ms; /* what uv is armed for; 0: nothing */
};

void timers_init(struct timers *ts, uv_loop_t *loop);

/* Cancels all. The owner closes ts->uv afterwards. */
void timers_free(struct timers *ts);

/* Command sandbox for n more timers, for the one who owns them; timers_set needs it, so that it cannot fail. 0 or
 * -ENOMEM. timers_release gives it back when the n are gone. */
int timers_reserve(struct timers *ts, size_t n);
void timers_release(struct timers *ts, size_t n);

/* (Re-)arms t; a time in the past fires in the next turn of the loop. */
void timers_set(struct timers *ts, struct timer *t, uint64_t at_ms);
void timers_cancel(struct timers *ts, struct timer *t);
