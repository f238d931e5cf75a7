/* COPY: the layer of a sandbox that lives is copied to a kept number (kept.h), and the sandbox goes
 * on. It stands still (freeze.c) while the copy is made, which is one call of the state disk: all
 * files are of one moment. The longer steps, the record and the marks of the copy's overlay, are
 * done when it goes on again; a copy for creates that follow does without them, and for several of
 * them a copy of it each is made (copies_ahead.h). Copies are made one at a time;
 * other sandboxes wait, and run meanwhile. A sandbox that was frozen already stays so.
 *
 * A privd that takes over leaves it frozen, and cayd, to whom LIST says so, lets go on what was not
 * paused; of the copy there is all or nothing, and its number says which (kept_recovered). */

#include "privd/copy.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/freeze.h"
#include "privd/kept.h"
#include "privd/loop.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/slots.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

static void next(struct privd *p);

uint32_t copy_ahead(const struct privd *p, uint32_t number)
{
    return p->kept.creates[number] > 1 ? p->kept.creates[number] : 0;
}

static void answer(struct privd *p, uint32_t number, const struct reply_to *to, int status)
{
    struct privsep_msg m = {.op = PRIVSEP_COPY, .status = status};

    m.u.kept.number = number;
    if (to->seq != 0)
        (void)reply_send(p, to, &m, NULL, 0);
}

/* The sandbox, where it still is the one that was asked for. */
static struct slot *source(struct privd *p)
{
    struct slot *s = &p->slots[p->copier.slot];

    return s->gen == p->copier.gen && permit_lives(s->state) ? s : NULL;
}

/* Whatever was made of the copy is dropped by the next that has the number, or at the next
 * start. It has failed where its sandbox stands still for it. */
static void end(struct privd *p, int status)
{
    uint32_t number = p->copier.number;
    struct reply_to to = p->copier.requested[number];

    if (p->copier.thawing) {
        p->copier.over = true;
        p->copier.status = status;
        return;
    }
    if (p->copier.source_status < 0)
        status = p->copier.source_status;
    p->copier.requested[number] = (struct reply_to){0};
    p->copier.number = 0;
    if (status == 0)
        status = kept_enter(&p->kept, number, KEPT_WHOLE); /* without it the next start drops it */
    if (status < 0 && runtime_drop(p->rt, number, copy_ahead(p, number)) < 0)
        log_error("kept layer %u: files of a copy that failed are not removed", number);
    if (status < 0)
        kept_settle(&p->kept, number, KEPT_NONE);
    answer(p, number, &to, status);
}

static void on_settled(void *arg, uint32_t events);
static void on_copied(void *arg, uint32_t events);

static int collect(struct privd *p)
{
    return p->copier.driver->copy_finish(&p->copier.task);
}

static int watch(struct privd *p, loop_source_cb cb)
{
    return loop_add(&p->loop, &p->copier.source, p->copier.task.pidfd, cb, p);
}

static void on_settled(void *arg, uint32_t events)
{
    struct privd *p = arg;
    int rc;

    loop_remove(&p->loop, &p->copier.source);
    rc = collect(p);
    if (rc == -EAGAIN && watch(p, on_settled) == 0)
        return;
    end(p, rc);
    next(p);
}

static void go_on(struct privd *p)
{
    struct slot *s = source(p);

    if (!s || s->state != SLOT_COPYING)
        return;
    slots_enter(p, s, SLOT_FROZEN);
    p->copier.thawing = p->copier.thaw;
    if (p->copier.thaw)
        freeze_end(s);
}

/* The copy is made meanwhile. */
void copy_went_on(struct slot *s, int status)
{
    struct privd *p = s->privd;

    if (!p->copier.thawing || s != &p->slots[p->copier.slot] || s->gen != p->copier.gen)
        return;
    p->copier.thawing = false;
    p->copier.source_status = status;
    if (!p->copier.over)
        return;
    end(p, p->copier.status);
    loop_arm(&p->loop, &p->copier.timer, 0, copy_next, p);
}

static void on_copied(void *arg, uint32_t events)
{
    struct privd *p = arg;
    int rc;

    loop_remove(&p->loop, &p->copier.source);
    rc = collect(p);
    if (rc == -EAGAIN && watch(p, on_copied) == 0)
        return;
    go_on(p);
    if (rc == 0 && p->kept.creates[p->copier.number] == 1) { /* it has this one itself */
        end(p, 0);
        next(p);
        return;
    }
    if (rc == 0)
        rc = p->copier.driver->copy_settle_begin(
            p->rt, p->copier.number, copy_ahead(p, p->copier.number), p->kept.fd, &p->copier.task);
    if (rc == 0)
        rc = watch(p, on_settled);
    if (rc == 0)
        return;
    end(p, rc);
    next(p);
}

void copy_frozen(struct slot *s, int status)
{
    const struct runtime_sandbox sb = slots_sandbox(s);
    struct privd *p = s->privd;
    int rc = status;

    s->copying = false;
    if (rc == 0) {
        slots_enter(p, s, SLOT_COPYING);
        p->copier.driver = s->driver;
        rc = s->driver->copy_begin(p->rt, &sb, p->copier.number, &p->copier.task);
    }
    if (rc == 0)
        rc = watch(p, on_copied);
    if (rc == 0)
        return;
    go_on(p);
    end(p, rc);
    loop_arm(&p->loop, &p->copier.timer, 0, copy_next, p);
}

/* The oldest number that waits is as good as any: each is one sandbox's. */
static void begin(struct privd *p, uint32_t number)
{
    const struct kept_record *r = &p->kept.all[number];
    struct slot *s;

    p->copier.number = number;
    p->copier.slot = r->slot;
    p->copier.gen = r->gen;
    p->copier.thawing = p->copier.over = false;
    p->copier.source_status = 0;
    s = source(p);
    p->copier.thaw = s && s->state == SLOT_RUNNING;
    if (!s || s->state == SLOT_FREEZING || s->state == SLOT_DUMPING) {
        end(p, s ? -EBUSY : -ESTALE);
    } else if (s->state == SLOT_FROZEN) {
        copy_frozen(s, 0);
    } else {
        s->copying = true;
        freeze_for_copy(s);
    }
}

static void next(struct privd *p)
{
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX && p->copier.number == 0; n++)
        if (p->kept.all[n].state == KEPT_COPYING)
            begin(p, n);
}

bool copy_ends_frozen(const struct slot *s)
{
    return s->state == SLOT_COPYING && !s->privd->copier.thaw;
}

void copy_next(void *privd)
{
    next(privd);
}

void copy_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m)
{
    struct kept_record r = {.number = m->u.kept.number,
                            .state = KEPT_COPYING,
                            .slot = s->number,
                            .gen = s->gen,
                            .template_number = s->kind.template_number,
                            .level = s->kind.level,
                            .since_real_ms = clock_real_ms()};
    int rc = runtime_can_keep(p->rt) ? 0 : -EOPNOTSUPP;

    memcpy(r.owner, m->u.kept.owner, sizeof(r.owner));
    if (rc == 0 && kept_find(&p->kept, r.number)->state != KEPT_NONE)
        rc = -EEXIST;
    if (rc == 0)
        rc = kept_write(&p->kept, &r);
    if (rc < 0) {
        answer(p, r.number, to, rc);
        return;
    }
    p->copier.requested[r.number] = *to;
    p->kept.creates[r.number] = (uint8_t)m->u.kept.creates;
    next(p);
}
