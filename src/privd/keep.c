/* KEEP, DROP and KEPTS (kept.h): what the peer asks of kept layers. KEEP is an end like any other,
 * but that the task which removes what is left gives the layer its number instead of destroying it
 * (end.c); the answer comes when it is on the disk. */

#include "privd/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/copy.h"
#include "privd/end.h"
#include "privd/kept.h"
#include "privd/levels.h"
#include "privd/loop.h"
#include "privd/opened.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/sandbox.h"
#include "privd/slots.h"
#include "privsep/server.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void answer(struct privd *p, const struct reply_to *to, uint16_t op, uint32_t number,
                   int status)
{
    struct privsep_msg m = {.op = op, .status = status};

    m.u.kept.number = number;
    if (to->seq != 0)
        (void)reply_send(p, to, &m, NULL, 0);
}

/* -- KEEP -------------------------------------------------------------------------------------- */

struct kept_record keep_record(const struct slot *s, const struct privsep_msg *m)
{
    struct kept_record r = {.number = m->u.kept.number,
                            .state = KEPT_KEEPING,
                            .slot = s->number,
                            .gen = s->gen,
                            .template_number = s->kind.template_number,
                            .level = s->kind.level,
                            .since_real_ms = clock_real_ms()};

    memcpy(r.owner, m->u.kept.owner, sizeof(r.owner));
    return r;
}

static int may_keep(const struct privd *p, const struct slot *s, uint32_t number)
{
    if (!runtime_can_keep(p->rt))
        return -EOPNOTSUPP;
    if (s->kept)
        return -EALREADY;
    return kept_find(&p->kept, number)->state == KEPT_NONE ? 0 : -EEXIST;
}

void keep_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m)
{
    struct kept_record r = keep_record(s, m);
    int rc = may_keep(p, s, r.number);

    if (rc == 0)
        rc = kept_write(&p->kept, &r);
    if (rc < 0) {
        answer(p, to, PRIVSEP_KEEP, r.number, rc);
        return;
    }
    s->kept = r.number;
    s->keeper = *to;
    end_force(p, s);
}

void keep_slot_gone(struct slot *s, int status)
{
    struct privd *p = s->privd;
    struct reply_to to = s->keeper;
    uint32_t number = s->kept;
    uint16_t op = s->keeper_op ? s->keeper_op : PRIVSEP_KEEP;
    int how = s->keeper_status;

    if (!number)
        return;
    s->kept = 0;
    s->keeper = (struct reply_to){0};
    s->keeper_op = 0;
    s->keeper_status = 0;
    if (status == 0)
        p->kept.without_memory[number] = !runtime_has_memory(p->rt, number);
    if (status == 0)
        kept_settle(&p->kept, number, KEPT_WHOLE);
    answer(p, &to, op, number, status == 0 ? how : status);
}

/* Files that the last create of a copy has are under no number, and others may have been removed by
 * hand. Test: test_kept.py, "are not there any more". */
bool keep_slot_took_none(struct slot *s, int status)
{
    if (status != -ENOENT || !s->kept || s->privd->kept.all[s->kept].state != KEPT_TAKING)
        return false;
    log_error("kept layer %u: its files were not there, so the number is free", s->kept);
    kept_settle(&s->privd->kept, s->kept, KEPT_NONE);
    s->kept = 0;
    return true;
}

void keep_slot_waits(struct slot *s)
{
    struct reply_to to = s->keeper;

    s->keeper = (struct reply_to){0};
    answer(s->privd, &to, s->keeper_op ? s->keeper_op : PRIVSEP_KEEP, s->kept, -EINPROGRESS);
}

void keep_slot_runs(struct slot *s)
{
    if (s->kept)
        kept_settle(&s->privd->kept, s->kept, KEPT_NONE);
    s->kept = 0;
}

/* -- a CREATE on one --------------------------------------------------------------------------- */

/* Whether a create that is under way needs what is kept by it; only_taken: and will take it
 * away. */
static bool is_wanted(const struct privd *p, uint32_t number, bool only_taken)
{
    for (const struct create_request *c = p->waiting_first; c; c = c->next)
        if (c->kept == number && (!c->copy || c->last || !only_taken))
            return true;
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        const struct slot *s = &p->slots[i];

        if (s->state == SLOT_STARTING && s->create && s->create->kept == number &&
            (s->create->last || !only_taken))
            return true;
        if (!only_taken && s->state == SLOT_MAKING &&
            s->kind.kept == number) /* a member of the pool */
            return true;
    }
    return false;
}

static int may_end(struct privd *p, uint32_t number, const uint8_t owner[static PRIVSEP_OWNER_SIZE],
                   uint32_t template_number)
{
    int rc = keep_may_copy(p, number, owner, template_number);

    return (rc == 0 || rc == -EINVAL) && is_wanted(p, number, false) ? -EBUSY : rc;
}

/* Copies that were made ahead end by DROP, with their number. Where it were taken they would stay,
 * and be those of the next that has it, which may be another owner's. Test: test_kept.py, "to none
 * of another number". */
int keep_may_take(struct privd *p, uint32_t number, const uint8_t owner[static PRIVSEP_OWNER_SIZE],
                  uint32_t template_number)
{
    int rc = may_end(p, number, owner, template_number);

    return (rc == 0 || rc == -EINVAL) && copy_ahead(p, number) > 0 ? -EBUSY : rc;
}

/* A number alone does not tell whose files they are, as it is used again: a peer that is mistaken
 * would give one tenant's files to another, or remove them. Test: test_kept.py, "of another
 * owner". */
int keep_may_copy(struct privd *p, uint32_t number, const uint8_t owner[static PRIVSEP_OWNER_SIZE],
                  uint32_t template_number)
{
    const struct kept_record *r = kept_find(&p->kept, number);

    if (!r || r->state != KEPT_WHOLE)
        return !r || r->state == KEPT_NONE ? -ENOENT : -EBUSY;
    if (!kept_is_of(r, owner)) {
        if (log_rate_allows(&p->owner_log))
            log_warn("kept layer %u: asked for by what it does not belong to", number);
        return -EPERM;
    }
    if (is_wanted(p, number, true))
        return -EBUSY;
    return r->template_number && r->template_number != template_number ? -EINVAL : 0;
}

bool keep_is_of_level(const struct privd *p, uint32_t number, uint32_t level,
                      char why[static PRIVSEP_WHY_SIZE])
{
    const struct kept_record *r = kept_find(&p->kept, number);

    if (!r || !r->template_number || r->level == level) /* that of a lost record is not known */
        return true;
    levels_why(p, r->level, why);
    if (!*why && r->level < PRIVSEP_LEVEL_COUNT)
        snprintf(why, PRIVSEP_WHY_SIZE, "its files are those of a sandbox of the level %s",
                 privsep_level_name(r->level));
    else if (!*why)
        snprintf(why, PRIVSEP_WHY_SIZE,
                 "its files are those of a level that this server does not have");
    return false;
}

int keep_take(struct slot *s, uint32_t number)
{
    struct kept_record r = *kept_find(&s->privd->kept, number);
    int rc;

    r.state = KEPT_TAKING;
    r.slot = s->number;
    r.gen = s->gen;
    rc = kept_write(&s->privd->kept, &r);
    s->kept = rc == 0 ? number : 0;
    if (rc == 0)
        opened_forget(s->privd, number);
    return rc;
}

/* -- DROP: one task at a time ------------------------------------------------------------------ */

static void on_dropped(void *arg, uint32_t events);
static void drop_next(struct privd *p);

static int watch(struct privd *p)
{
    return loop_add(&p->loop, &p->dropper.source, p->dropper.task.pidfd, on_dropped, p);
}

/* Files that could not be removed are kept still, and their removal can be asked for again. */
static void dropped(struct privd *p, uint32_t number, int status)
{
    struct reply_to to = p->dropper.requested[number];

    p->dropper.requested[number] = (struct reply_to){0};
    kept_settle(&p->kept, number, status == 0 ? KEPT_NONE : KEPT_WHOLE);
    answer(p, &to, PRIVSEP_DROP, number, status);
}

static void on_dropped(void *arg, uint32_t events)
{
    struct privd *p = arg;
    uint32_t number = p->dropper.number;
    int rc;

    loop_remove(&p->loop, &p->dropper.source);
    rc = runtime_drop_finish(&p->dropper.task);
    if (rc == -EAGAIN && watch(p) == 0)
        return;
    p->dropper.number = 0;
    dropped(p, number, rc);
    drop_next(p);
}

/* A drop that could not be begun is answered at once; then the next is tried. */
static void drop_next(struct privd *p)
{
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX && p->dropper.number == 0; n++) {
        int rc;

        if (p->kept.all[n].state != KEPT_DROPPING)
            continue;
        rc = runtime_drop_begin(p->rt, n, copy_ahead(p, n), p->kept.fd, &p->dropper.task);
        if (rc == 0)
            rc = watch(p);
        if (rc == 0)
            p->dropper.number = n;
        else
            dropped(p, n, rc);
    }
}

void keep_drop_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    uint32_t number = m->u.kept.number;
    int rc = may_end(p, number, m->u.kept.owner, 0);

    if (rc == -EINVAL) /* of whatever template */
        rc = 0;
    if (rc == 0)
        rc = kept_enter(&p->kept, number, KEPT_DROPPING);
    if (rc == 0)
        opened_forget(p, number);
    if (rc < 0) {
        answer(p, to, PRIVSEP_DROP, number, rc);
        return;
    }
    p->dropper.requested[number] = *to;
    drop_next(p);
}

/* -- KEPTS ------------------------------------------------------------------------------------- */

/* From memory: no directory is read. */
void keep_list_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++) {
        const struct kept_record *r = &p->kept.all[n];
        struct privsep_msg event = {.op = PRIVSEP_KEPT};

        if (r->state == KEPT_NONE)
            continue;
        event.u.kept.number = n;
        event.u.kept.busy = r->state != KEPT_WHOLE;
        event.u.kept.template_number = r->template_number;
        event.u.kept.without_memory = r->state == KEPT_WHOLE && p->kept.without_memory[n];
        memcpy(event.u.kept.owner, r->owner, sizeof(event.u.kept.owner));
        if (privsep_server_send(p->server, to->peer, &event, NULL, 0) < 0)
            return;
    }
    answer(p, to, PRIVSEP_KEPTS, 0, 0);
}

/* -- after a restart --------------------------------------------------------------------------- */

static bool lives(const struct privd *p, const struct kept_record *r)
{
    const struct slot *s = r->slot < p->options.slots_max ? &p->slots[r->slot] : NULL;

    return s && s->gen == r->gen && permit_lives(s->state);
}

void keep_recover(struct privd *p)
{
    runtime_archive_undo_all(p->rt);
    runtime_copies_undo_all(p->rt);
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++) {
        const struct kept_record *r = &p->kept.all[n];
        bool is_kept = runtime_is_kept(p->rt, n);
        enum kept_state next = kept_recovered((enum kept_state)r->state, is_kept, lives(p, r));

        if (next == KEPT_DROPPING)
            next = runtime_drop(p->rt, n, 0) == 0 ? KEPT_NONE : KEPT_WHOLE;
        p->kept.without_memory[n] = next == KEPT_WHOLE && !runtime_has_memory(p->rt, n);
        if (next == (enum kept_state)r->state)
            continue;
        log_info("kept layer %u: %s", n, next == KEPT_WHOLE ? "it is whole" : "it is not there");
        kept_settle(&p->kept, n, next);
    }
}
