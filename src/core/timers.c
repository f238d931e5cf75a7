#include "core/timers.h"

#include "base/clock.h"
#include "base/util.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define FIRE_BATCH 64u /* due timers fired before the loop gets its turn again */

static void on_timer(uv_timer_t *uv);

static void place(struct timers *ts, struct timer *t, size_t i)
{
    ts->heap[i] = t;
    t->pos = i + 1;
}

static void sift_up(struct timers *ts, size_t i)
{
    struct timer *t = ts->heap[i];

    while (i > 0 && ts->heap[(i - 1) / 2]->at_ms > t->at_ms) {
        place(ts, ts->heap[(i - 1) / 2], i);
        i = (i - 1) / 2;
    }
    place(ts, t, i);
}

static void sift_down(struct timers *ts, size_t i)
{
    struct timer *t = ts->heap[i];
    size_t child;

    while ((child = 2 * i + 1) < ts->n) {
        if (child + 1 < ts->n && ts->heap[child + 1]->at_ms < ts->heap[child]->at_ms)
            child++;
        if (ts->heap[child]->at_ms >= t->at_ms)
            break;
        place(ts, ts->heap[child], i);
        i = child;
    }
    place(ts, t, i);
}

/* libuv counts from its own idea of now, which may be a whole turn old: it is brought up to date
 * first, or every timer would be early or late by that much. */
static void rearm(struct timers *ts)
{
    uint64_t now, at = ts->n ? ts->heap[0]->at_ms : 0;

    if (ts->n && at == 0)
        at = 1;
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

/* libuv may be a millisecond early (its clock is a coarse one): what is not due yet waits on. */
static void on_timer(uv_timer_t *uv)
{
    struct timers *ts = uv->data;
    uint64_t now = clock_mono_ms();

    for (unsigned i = 0; i < FIRE_BATCH && ts->n && ts->heap[0]->at_ms <= now; i++) {
        struct timer *t = ts->heap[0];

        timers_cancel(ts, t);
        t->fire(t);
    }
    ts->armed_ms = 0;
    if (ts->n) {
        uint64_t at = ts->heap[0]->at_ms;

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
    for (size_t i = 0; i < ts->n; i++)
        ts->heap[i]->pos = 0;
    ts->n = 0;
    uv_timer_stop(&ts->uv);
    free(ts->heap);
    ts->heap = NULL;
    ts->cap = ts->reserved = 0;
}

int timers_reserve(struct timers *ts, size_t n)
{
    size_t wanted = ts->reserved + n, cap = MAX(wanted, MAX(ts->cap * 2, 64));
    struct timer **grown;

    if (wanted <= ts->cap) {
        ts->reserved = wanted;
        return 0;
    }
    grown = reallocarray(ts->heap, cap, sizeof(struct timer *));
    if (!grown)
        return -ENOMEM;
    ts->heap = grown;
    ts->cap = cap;
    ts->reserved = wanted;
    return 0;
}

void timers_release(struct timers *ts, size_t n)
{
    assert(ts->reserved >= n && ts->n <= ts->reserved - n);
    ts->reserved -= n;
}

void timers_set(struct timers *ts, struct timer *t, uint64_t at_ms)
{
    if (!t->pos) {
        assert(ts->n < ts->reserved);
        place(ts, t, ts->n++);
    }
    t->at_ms = at_ms;
    sift_up(ts, t->pos - 1);
    sift_down(ts, t->pos - 1);
    rearm(ts);
}

void timers_cancel(struct timers *ts, struct timer *t)
{
    size_t i = t->pos - 1;
    struct timer *last;

    if (!t->pos)
        return;
    t->pos = 0;
    last = ts->heap[--ts->n];
    if (last != t) {
        place(ts, last, i);
        sift_up(ts, i);
        sift_down(ts, last->pos - 1);
    }
    rearm(ts);
}
