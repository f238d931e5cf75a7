/* A number whose archive is being fetched is KEPT_ARCHIVING, as one that is being archived: no
 * create, copy or drop has it meanwhile, and after a crash it is whole, with its archive here or
 * there. Sweeps run beside all else: what they may remove, a job finds out (job/bucket.c). */

#include "privd/bucket.h"

#include "base/clock.h"
#include "contract/meta.h"
#include "privd/jobs.h"
#include "privd/keep.h"
#include "privd/kept.h"
#include "privd/privd.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

#define AGAIN_MS       1000u  /* all places of jobs are taken */
#define DROP_MS        200u   /* while drops are under way it is looked again */
#define SWEEP_AGAIN_MS 60000u /* the bucket did not remove them */

static void fetch_next(struct privd *p);

static void answer(struct privd *p, const struct reply_to *to, int status, const char *why)
{
    const char *reason = why[0] ? why : strerror(-status);

    reply_reason(p, to, PRIVSEP_FETCH, status, status < 0 ? reason : "");
}

/* -- fetching ---------------------------------------------------------------------------------- */

static void end(struct privd *p, uint32_t number, int status, const char *why)
{
    struct fetcher *f = &p->fetcher;
    struct reply_to to = f->requested[number];

    fetch_turns_end(&f->turns, number);
    f->requested[number] = (struct reply_to){0};
    kept_settle(&p->kept, number, KEPT_WHOLE);
    answer(p, &to, status, why);
}

static void on_fetched(struct privd *p, uint32_t number, int status, const char *reason)
{
    end(p, number, status, reason);
    if (status == 0)
        bucket_sweep(p, 0);
    fetch_next(p);
}

static void on_again(void *arg)
{
    fetch_next(arg);
}

static void fetch_next(struct privd *p)
{
    struct fetcher *f = &p->fetcher;
    uint32_t n;

    while ((n = fetch_turns_next(&f->turns)) != 0) {
        int rc = jobs_start(p, JOB_BUCKET_GET, n, NULL, on_fetched);

        if (rc == -EBUSY) {
            if (!p->stopping)
                loop_arm(&p->loop, &f->again, AGAIN_MS, on_again, p);
            return;
        }
        if (rc < 0)
            end(p, n, rc, "");
        else
            fetch_turns_begin(&f->turns, n);
    }
}

/* 0: it is to be fetched; 1: it is here. */
static int may_fetch(struct privd *p, const struct privsep_msg *m, const char **why)
{
    int rc = keep_may_take(p, m->u.kept.number, m->u.kept.owner, 0);

    *why = "";
    if (rc < 0 && rc != -EINVAL) /* of whatever template */
        return rc;
    if (!runtime_is_away(p->rt, m->u.kept.number))
        return 1;
    if (p->options.bucket.name)
        return kept_enter(&p->kept, m->u.kept.number, KEPT_ARCHIVING);
    *why = "its archive is in a bucket, and this server has none: [archive] bucket is not set";
    return -EOPNOTSUPP;
}

void bucket_fetch_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    uint32_t number = m->u.kept.number;
    const char *why;
    int rc = may_fetch(p, m, &why);

    if (rc != 0) {
        answer(p, to, MIN(rc, 0), why);
        return;
    }
    p->fetcher.requested[number] = *to;
    fetch_turns_add(&p->fetcher.turns, number, m->u.kept.account);
    fetch_next(p);
}

static void give_up(struct privd *p, uint32_t number)
{
    enum fetch_state state = p->fetcher.turns.all[number].state;

    if (state == FETCH_WAITS)
        end(p, number, -ECANCELED, "it was given up");
    else if (state == FETCH_RUNS)
        jobs_cancel(p, JOB_BUCKET_GET, number);
}

void bucket_give_up(struct privd *p, const struct privsep_msg *m)
{
    if (kept_is_of(kept_find(&p->kept, m->u.kept.number), m->u.kept.owner))
        give_up(p, m->u.kept.number);
}

void bucket_stop_fetches(struct privd *p)
{
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        give_up(p, n);
}

/* -- what no layer has any more ------------------------------------------------------------- */

static void on_swept(struct privd *p, uint32_t number, int status, const char *reason)
{
    if (status < 0)
        bucket_sweep(p, SWEEP_AGAIN_MS);
}

/* As long as a layer is there its object is not without an owner. */
static bool drops_are_under_way(struct privd *p)
{
    bool any = false;

    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++) {
        if (p->kept.all[n].state != KEPT_DROPPING)
            p->fetcher.leaves[n] = false;
        any |= p->fetcher.leaves[n];
    }
    return any;
}

static void on_sweep(void *arg)
{
    struct privd *p = arg;

    if (drops_are_under_way(p))
        bucket_sweep(p, DROP_MS);
    else if (!p->stopping && jobs_start(p, JOB_BUCKET_SWEEP, 0, NULL, on_swept) < 0)
        bucket_sweep(p, AGAIN_MS);
}

void bucket_sweep(struct privd *p, uint64_t in_ms)
{
    struct fetcher *f = &p->fetcher;
    uint64_t due_ms = clock_mono_ms() + in_ms;

    if (!p->options.bucket.name || p->stopping ||
        (loop_timer_armed(&f->sweep) && f->sweep_due_ms <= due_ms))
        return;
    f->sweep_due_ms = due_ms;
    loop_arm(&p->loop, &f->sweep, in_ms, on_sweep, p);
}

void bucket_note_drop(struct privd *p, uint32_t number)
{
    p->fetcher.leaves[number] = true;
    bucket_sweep(p, DROP_MS);
}

void bucket_leave(struct privd *p)
{
    loop_disarm(&p->loop, &p->fetcher.again);
    loop_disarm(&p->loop, &p->fetcher.sweep);
}
