/* Slots made ahead: namespaces, rules, layer and cgroups wait for a sandbox to come. Most are
 * prestarted: in them cay-init runs already and waits to be told whose it is (members.h). This file
 * makes prepared ones, says when one more is made, and finds one for a create. */
#include "privd/slots.h"

#include "base/log.h"
#include "privd/end.h"
#include "privd/jobs.h"
#include "privd/levels.h"
#include "privd/loop.h"
#include "privd/members.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/records.h"
#include "privd/sandbox.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

#define MAKE_PARALLEL   4 /* tasks at a time */
#define REFILL_DELAY_MS 4 /* a create takes one to three */
#define BACKOFF_MS      100
#define BACKOFF_SHIFT   6 /* at most BACKOFF_MS << 6: 6.4 s */

/* Whatever it ran before is forgotten; the generation is one that this slot never had. */
static void begin_use(struct privd *p, struct slot *s, uint32_t level)
{
    s->gen++;
    s->driver = p->drivers[level];
    levels_set_slot(p, s->number, level);
    s->pid = 0;
    s->pid_start = 0;
    s->pooled = RUNTIME_SLOT_NONE;
    s->pooled.number = s->number;
    s->pooled.gen = s->gen;
    s->retries = 0;
    s->paid = false;
    s->failure = 0;
    s->pool_row = 0;
    s->living = 0;
    s->kind = (struct slot_kind){0};
    memset(s->id, 0, sizeof(s->id));
    memset(s->volumes, 0, sizeof(s->volumes));
    s->on_archive = false;
    s->account = 0;
}

struct slot *slots_take_unpooled(struct privd *p, uint32_t level)
{
    struct slot *s = slots_list_take(&p->empty);

    if (!s) { /* the end of one that is ready brings an empty one */
        s = slots_list_take(&p->ready);
        if (s)
            end_force(p, s);
        else
            members_give_up_oldest(p);
        return NULL;
    }
    begin_use(p, s, level);
    slots_enter(p, s, SLOT_MAKING);
    slots_enter(p, s, SLOT_READY);
    return s;
}

struct slot *slots_take_member(struct privd *p, const struct slot_kind *kind)
{
    struct pool_row *row = pool_find(&p->pool, kind);

    return row && row->ready > 0 ? members_take(p, row) : NULL;
}

struct slot *slots_take_ready(struct privd *p, const struct slot_kind *kind, bool may_claim)
{
    struct pool_row *row = may_claim ? pool_find(&p->pool, kind) : NULL;
    struct slot *s;

    if (kind->level != p->pool_level)
        return slots_take_unpooled(p, kind->level);
    if (row && row->ready > 0)
        return members_take(p, row);
    /* A slot that is becoming prestarted is ready sooner than a prepared one, and costs less. */
    if (row && row->making > 0)
        return NULL;
    s = slots_list_take(&p->ready);
    if (!s && p->empty.n == 0 && p->n_making == 0)
        members_give_up_oldest(p);
    return s;
}

/* -- what can go wrong ------------------------------------------------------------------------- */

static void refill_again(void *arg)
{
    slots_refill(arg);
}

static void make_failed(struct privd *p, struct slot *s, int status, uint32_t stage)
{
    log_error("slot %u: cannot be made: %s (%s)", s->number, strerror(-status),
              privsep_stage_name(stage));
    p->make_failures++;
    loop_arm(&p->loop, &p->refill_timer,
             (uint64_t)BACKOFF_MS << MIN(p->make_failures - 1, BACKOFF_SHIFT), refill_again, p);
    sandbox_no_slot(p, status, stage);
    end_force(p, s);
}

/* -- making ------------------------------------------------------------------------------------ */

static void on_made(void *arg, uint32_t events)
{
    struct slot *s = arg;
    struct privd *p = s->privd;
    uint32_t stage = PRIVSEP_STAGE_SLOT;
    int r;

    loop_remove(&p->loop, &s->task_source); /* finishing closes the descriptor */
    r = s->driver->slot_finish(p->rt, &s->task, &s->pooled, &stage);
    if (r == -EAGAIN && slots_watch_task(s, on_made) == 0)
        return;
    p->n_making--;
    if (r < 0) {
        make_failed(p, s, r, stage);
        return;
    }
    p->make_failures = 0;
    slots_enter(p, s, SLOT_READY);
    slots_list_put(&p->ready, s);
    sandbox_pump(p);
    slots_refill(p);
}

static void make_prepared(struct privd *p, struct slot *s)
{
    int r;

    slots_enter(p, s, SLOT_MAKING);
    p->n_making++;
    r = s->driver->slot_begin(p->rt, s->number, s->gen, &s->task);
    if (r == 0)
        r = slots_watch_task(s, on_made);
    if (r < 0) {
        p->n_making--;
        make_failed(p, s, r, PRIVSEP_STAGE_SLOT);
    }
}

/* As many prestarted ones as there shall be, and the few prepared ones besides; as long as no kind
 * is known, as many prepared ones. Members beyond their row's target are of no use to a create of
 * another kind: they may stand, and do not count. */
static bool want_more(const struct privd *p)
{
    uint32_t members = pool_targets(&p->pool), ahead = p->options.slots_ready;
    uint32_t there = pool_within(&p->pool);

    if (members > 0)
        ahead = members + SLOTS_PREPARED;
    else if (p->pool.most == 0) /* memory is short, or none shall be made */
        ahead = MIN(ahead, SLOTS_PREPARED);
    else
        there = p->prestarted.n;
    return p->ready.n + there + p->n_making < ahead + sandbox_need_slots(p);
}

/* A quarter of them are there, and no create waits for one. */
static bool may_delay_refill(const struct privd *p)
{
    return sandbox_need_slots(p) == 0 && !pool_is_low(&p->pool) &&
           p->ready.n + p->prestarted.n > SLOTS_PREPARED + p->options.slots_ready / 4;
}

/* A start without a member takes as long as to make one, and a caller waits for it. */
static void refill_delayed(void *arg)
{
    struct privd *p = arg;

    if (p->n_cold > 0 && may_delay_refill(p))
        loop_arm(&p->loop, &p->refill_delay_timer, REFILL_DELAY_MS, refill_delayed, p);
    else
        slots_refill(p);
}

void slots_refill_later(struct privd *p)
{
    if (may_delay_refill(p))
        loop_arm(&p->loop, &p->refill_delay_timer, REFILL_DELAY_MS, refill_delayed, p);
    else
        slots_refill(p);
}

/* Begins to make a slot. false: none is wanted, or there is no room. */
static bool refill_one(struct privd *p)
{
    struct pool_row *row = p->ready.n > SLOTS_PREPARED
                               ? members_row_to_fill(p, p->ready.n - 1, jobs_work_on)
                               : NULL;
    struct slot *s;

    if (row && !row->kind.kept) {
        members_start(p, slots_list_take(&p->ready), row);
        return true;
    }
    s = row || want_more(p) ? slots_list_take(&p->empty) : NULL;
    if (!s)
        return false;
    begin_use(p, s, p->pool_level);
    if (!row)
        row = members_row_to_fill(p, p->ready.n + p->n_making - p->n_prestarting, jobs_work_on);
    if (row)
        members_start(p, s, row);
    else
        make_prepared(p, s);
    return true;
}

void slots_refill(struct privd *p)
{
    if (loop_timer_armed(&p->refill_delay_timer) && may_delay_refill(p))
        return;
    loop_disarm(&p->loop, &p->refill_delay_timer);
    if (p->stopping)
        return;
    members_aim(p);
    while (!loop_timer_armed(&p->refill_timer) && p->n_making < MAKE_PARALLEL)
        if (!refill_one(p)) {
            if (p->n_waiting > 0)
                end_hurry(p);
            break;
        }
}
