/* The use of resources by a sandbox, asked of privd. A sample is taken when a client asks and the
 * last one is old, and every 5 s while it was asked for or used lately: an idle sandbox causes no
 * wake-up. */

#include "core/metrics.h"

#include "base/clock.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/timers.h"

#include <errno.h>
#include <string.h>

#define SAMPLE_EVERY_MS 5000u
#define SAMPLES_MAX     720u /* an hour */
#define SAMPLES_FIRST   8u
#define REQUESTED_MS    600000u /* the client will ask again */

/* Grows up to SAMPLES_MAX, then the oldest goes first. */
struct metric_ring {
    struct sandbox_metric *items;
    size_t cap, head, n;
    uint64_t last_mono_us; /* 0: no sample in this life of cayd */
    uint64_t last_cpu_us;
};

struct metric_waiter {
    struct metric_waiter *next;
    struct core *core;
    char id[IDS_SANDBOX_SIZE];
    int64_t start_ms, end_ms;
    struct err why;
    void (*done)(void *arg, const struct sandbox_metric *items, size_t n, const struct err *why);
    void *arg;
    struct deferred later;
};

/* -- samples ----------------------------------------------------------------------------------- */

static const struct sandbox_metric *at(const struct metric_ring *r, size_t i)
{
    return &r->items[(r->head + i) % r->cap];
}

/* false: memory is out. */
static bool grow(struct metric_ring *r)
{
    size_t cap = r->cap ? MIN(r->cap * 3, SAMPLES_MAX) : SAMPLES_FIRST;
    struct sandbox_metric *items;

    if (r->n < r->cap || r->cap == SAMPLES_MAX)
        return true;
    /* head is 0 until the ring is at its maximum, so growing need not unroll it. */
    items = reallocarray(r->items, cap, sizeof(*items));
    if (!items)
        return false;
    r->items = items;
    r->cap = cap;
    return true;
}

static void push(struct metric_ring *r, const struct sandbox_metric *m)
{
    if (!grow(r))
        return;
    if (r->n == r->cap) {
        r->items[r->head] = *m;
        r->head = (r->head + 1) % r->cap;
        return;
    }
    r->items[r->n++] = *m;
}

static uint32_t cpu_count(const struct sandbox_obj *o)
{
    return MAX(1u, (o->s.limits.cpu_milli + 999u) / 1000u);
}

/* Of one core = 100, since the last sample; since the start for the first one. Use before its
 * start, as a member of the pool, is among that: no more than its processors is told. */
static double cpu_pct(const struct sandbox_obj *o, const struct metric_ring *r, uint64_t cpu_us)
{
    uint64_t now = clock_mono_us();
    int64_t life_ms = clock_real_ms() - o->s.started_real_ms;
    uint64_t elapsed_us = r->last_mono_us ? now - r->last_mono_us
                                          : (uint64_t)MAX(life_ms, 1) * 1000u;
    uint64_t before = r->last_mono_us ? r->last_cpu_us : 0;

    double pct = cpu_us > before && elapsed_us
                     ? 100.0 * (double)(cpu_us - before) / (double)elapsed_us
                     : 0.0;

    return MIN(pct, 100.0 * cpu_count(o));
}

static void take(struct sandbox_obj *o, const struct privsep_msg *m)
{
    const struct privsep_limits *l = &o->s.limits;
    struct metric_ring *r = o->metrics;
    struct sandbox_metric s;

    if (!r)
        r = o->metrics = calloc(1, sizeof(*r));
    if (!r)
        return;
    s = (struct sandbox_metric){
        .at_real_ms = clock_real_ms(),
        .cpu_used_pct = cpu_pct(o, r, m->u.stat.cpu_used_us),
        .cpu_count = cpu_count(o),
        .memory_used_bytes = m->u.stat.memory_used_bytes,
        .memory_total_bytes = m->u.stat.memory_limit_bytes ? m->u.stat.memory_limit_bytes
                                                           : l->memory_bytes,
        .memory_cache_bytes = m->u.stat.memory_cache_bytes,
        .disk_used_bytes = m->u.stat.disk_used_bytes,
        .disk_total_bytes = m->u.stat.disk_limit_bytes ? m->u.stat.disk_limit_bytes
                                                       : l->disk_bytes};
    r->last_mono_us = clock_mono_us();
    r->last_cpu_us = m->u.stat.cpu_used_us;
    push(r, &s);
}

static bool is_fresh(const struct sandbox_obj *o)
{
    const struct metric_ring *r = o->metrics;

    return r && r->last_mono_us && clock_mono_us() - r->last_mono_us < SAMPLE_EVERY_MS * 1000u;
}

/* -- those who wait ---------------------------------------------------------------------------- */

/* The samples within the waiter's window, in order, malloc'd. */
static struct sandbox_metric *window(const struct metric_ring *r, const struct metric_waiter *w,
                                     size_t *out_n)
{
    struct sandbox_metric *items = r && r->n ? reallocarray(NULL, r->n, sizeof(*items)) : NULL;
    size_t n = 0;

    for (size_t i = 0; items && i < r->n; i++) {
        const struct sandbox_metric *m = at(r, i);

        if ((!w->start_ms || m->at_real_ms >= w->start_ms) &&
            (!w->end_ms || m->at_real_ms <= w->end_ms))
            items[n++] = *m;
    }
    *out_n = n;
    return items;
}

static void answer(const struct metric_ring *r, struct metric_waiter *w, const struct err *why)
{
    CLEANUP_FREE struct sandbox_metric *items = NULL;
    size_t n = 0;

    if (!why)
        items = window(r, w, &n);
    w->done(w->arg, items, n, why);
    free(w);
}

static void answer_all(struct sandbox_obj *o, const struct err *why)
{
    struct metric_waiter *next;

    for (struct metric_waiter *w = TAKE_PTR(o->metric_waiters); w; w = next) {
        next = w->next;
        answer(o->metrics, w, why);
    }
}

static void answer_deferred(void *arg)
{
    struct metric_waiter *w = arg;
    struct sandbox_obj *o = sandbox_get(w->core, NULL, w->id);

    if (!o && !w->why.code)
        err_set(&w->why, ERR_NOT_FOUND, "sandbox %s has ended", w->id);
    answer(o ? o->metrics : NULL, w, w->why.code ? &w->why : NULL);
}

void metrics_free(struct sandbox_obj *o, const struct err *why)
{
    answer_all(o, why);
    if (o->metrics)
        free(o->metrics->items);
    free(o->metrics);
    o->metrics = NULL;
}

/* -- asking privd ------------------------------------------------------------------------------ */

/* Whether samples from before are all there is, which is no failure: of a sandbox whose files alone
 * are there, or are about to be, nothing can be measured. */
static bool has_samples_alone(const struct sandbox_obj *o, int64_t status)
{
    return (o->metrics && o->metrics->n) || (status == -ESTALE && sandbox_life(o)->files);
}

static void on_stat(struct core *c, const char *id, int status, const struct privsep_msg *m,
                    int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (!o)
        return;
    o->sample_pending = false;
    if (status == 0)
        take(o, m);
    if (status == 0 || has_samples_alone(o, status)) {
        answer_all(o, NULL);
        return;
    }
    call_privd_err(&why, status, "measuring the sandbox");
    answer_all(o, &why);
}

static int64_t request_sample(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_STAT, .slot = o->s.slot, .gen = o->s.gen};
    int64_t rc;

    if (o->sample_pending)
        return 0;
    if (!o->known_to_privd)
        return sandbox_life(o)->files ? -ESTALE : -ENOTCONN;
    rc = call_privd(o->core, o->s.id, &m, on_stat, NULL);
    o->sample_pending = rc >= 0;
    return rc;
}

void metrics_on_timer(struct timer *t)
{
    struct sandbox_obj *o = CONTAINER_OF(t, struct sandbox_obj, sample);
    uint64_t now = clock_mono_ms();

    if (!sandbox_life(o)->reachable)
        return;
    if (!is_fresh(o))
        request_sample(o); /* privd away: the next one will do */
    if (now < o->sample_until_ms)
        timers_set(&o->core->timers, t, now + SAMPLE_EVERY_MS);
}

void metrics_touch(struct sandbox_obj *o, uint64_t for_ms)
{
    uint64_t now = clock_mono_ms();

    o->sample_until_ms = MAX(o->sample_until_ms, now + for_ms);
    if (!timer_armed(&o->sample))
        timers_set(&o->core->timers, &o->sample, now + SAMPLE_EVERY_MS);
}

void core_sandbox_metrics(struct core *c, const char *tenant, const char *id, int64_t start_ms,
                          int64_t end_ms,
                          void (*done)(void *arg, const struct sandbox_metric *items, size_t n,
                                       const struct err *why),
                          void *arg)
{
    struct metric_waiter *w = RESERVE_NEW(&c->reserve, struct metric_waiter);
    struct sandbox_obj *o = NULL;
    int64_t rc = 0;

    *w = (struct metric_waiter){
        .core = c, .start_ms = start_ms, .end_ms = end_ms, .done = done, .arg = arg};
    strncpy(w->id, id, sizeof(w->id) - 1);
    if (sandbox_visible(c, tenant, id, &o, &w->why) == ERR_OK) {
        metrics_touch(o, REQUESTED_MS);
        if (!is_fresh(o))
            rc = request_sample(o);
        if (o->sample_pending) {
            w->next = o->metric_waiters;
            o->metric_waiters = w;
            return;
        }
        if (rc < 0 && !has_samples_alone(o, rc))
            call_privd_err(&w->why, rc, "measuring the sandbox");
    }
    core_defer(c, &w->later, answer_deferred, w);
}
