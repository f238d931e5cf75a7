/* Members of the pool: begun for one of its rows, put on p->prestarted when cay-init has been
 * executed in them, and used only while that row still stands for them: a row gets another id when
 * its template is worked on, and one that is evicted takes its id along. Every way off the list
 * leads to a claim or to an end; none leads back. A member has no id, and in its record no owner,
 * so that a privd that takes over ends it. */
#include "privd/members.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/meminfo.h"
#include "privd/end.h"
#include "privd/opened.h"
#include "privd/permit.h"
#include "privd/pins.h"
#include "privd/privd.h"
#include "privd/restores.h"
#include "privd/sandbox.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

#define MEMORY_CHECK_MS 1000

/* An unclaimed one does not keep its template: a job may remove it already. */
static void give_up(struct privd *p, struct slot *s)
{
    s->kind = (struct slot_kind){0};
    end_force(p, s);
}

/* Members are to go when memory becomes short, also where no slot changes meanwhile. Without one
 * nothing wakes. */
static void on_memory_timer(void *arg)
{
    struct privd *p = arg;

    if (!p->prestarted.first)
        return;
    slots_refill(p);
    loop_arm(&p->loop, &p->memory_timer, MEMORY_CHECK_MS, on_memory_timer, p);
}

static void put_member(struct privd *p, struct slot *s, struct pool_row *row)
{
    row->ready++;
    slots_list_put(&p->prestarted, s);
    if (!loop_timer_armed(&p->memory_timer))
        loop_arm(&p->loop, &p->memory_timer, MEMORY_CHECK_MS, on_memory_timer, p);
}

static void remove_member(struct privd *p, struct slot *s)
{
    struct pool_row *row = pool_row(&p->pool, s->pool_row);

    if (row)
        row->ready--;
    slots_list_remove(&p->prestarted, s);
}

static int count_living(const struct privd *p, const struct slot *s)
{
    struct runtime_sandbox sb = slots_sandbox(s);

    return s->driver->living(p->rt, &sb);
}

/* The host can kill processes of one that stands still, as it can any: its operator, or the kernel
 * that is out of memory. PID 1 of one that does not stand still tells of its end itself. */
static bool is_whole(const struct privd *p, const struct slot *s)
{
    int living = s->kind.kept ? count_living(p, s) : 0;

    if (living == s->living)
        return true;
    if (living < 0)
        log_warn("slot %u: a member's processes cannot be counted, so it is ended: %s", s->number,
                 strerror(-living));
    else
        log_warn("slot %u: %d of a member's %d processes were killed before it was claimed, so it "
                 "is ended; look at the kernel's log for reasons",
                 s->number, s->living - living, s->living);
    return false;
}

static struct slot *take_oldest(struct privd *p, uint32_t row)
{
    struct slot *s = p->prestarted.first;

    while (s && s->pool_row != row)
        s = s->next;
    if (s)
        remove_member(p, s);
    return s;
}

struct slot *members_take(struct privd *p, const struct pool_row *row)
{
    const uint32_t id = row->id;
    struct slot *s = take_oldest(p, id);

    while (s && !is_whole(p, s)) {
        give_up(p, s);
        s = take_oldest(p, id);
    }
    return s;
}

void members_give_up_oldest(struct privd *p)
{
    struct slot *s = p->prestarted.first;

    if (!s)
        return;
    remove_member(p, s);
    give_up(p, s);
}

/* Gives up one at a time: its end brings the next. Members whose row stands for another kind by now
 * come first. */
static void give_up_surplus(struct privd *p)
{
    const struct pool_row *over = pool_surplus(&p->pool);
    struct slot *s = p->prestarted.first;

    while (s && pool_row(&p->pool, s->pool_row))
        s = s->next;
    for (struct slot *m = p->prestarted.first; !s && over && m; m = m->next)
        if (m->pool_row == over->id)
            s = m;
    if (!s)
        return;
    remove_member(p, s);
    give_up(p, s);
}

void members_discard(struct privd *p, uint32_t template_number)
{
    struct slot *next;

    pool_renew(&p->pool, template_number);
    for (struct slot *s = p->prestarted.first; s; s = next) {
        next = s->next;
        if (s->kind.template_number != template_number)
            continue;
        slots_list_remove(&p->prestarted, s);
        give_up(p, s);
    }
}

void members_discard_kept(struct privd *p, uint32_t kept,
                          const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    struct slot *next;

    pool_forget_kept(&p->pool, kept, owner);
    for (struct slot *s = p->prestarted.first; s; s = next) {
        next = s->next;
        if (!pool_is_of(&s->kind, kept, owner))
            continue;
        slots_list_remove(&p->prestarted, s);
        give_up(p, s);
    }
}

void members_lost(struct privd *p, struct slot *s)
{
    struct pool_row *row = pool_row(&p->pool, s->pool_row);

    log_warn("slot %u: cay-init ended before it was claimed", s->number);
    remove_member(p, s);
    if (row)
        pool_rest(&p->pool, row);
}

/* -- starting them ----------------------------------------------------------------------------- */

static void end_making(struct privd *p, struct slot *s, struct pool_row *row)
{
    if (s->kind.kept) {
        loop_disarm(&p->loop, &s->timer);
        restores_ahead_end(p);
    }
    p->n_making--;
    p->n_prestarting--;
    if (row)
        row->making--;
}

/* Creates go on from prepared slots, and say themselves what is wrong. */
static void prestart_failed(struct privd *p, struct slot *s, int status, uint32_t stage)
{
    struct pool_row *row = pool_row(&p->pool, s->pool_row);

    log_warn("slot %u: cannot be started ahead: %s (%s)", s->number, strerror(-status),
             privsep_stage_name(stage));
    end_making(p, s, row);
    if (row)
        pool_rest(&p->pool, row);
    give_up(p, s);
}

static void on_late(void *arg)
{
    struct slot *s = arg;

    prestart_failed(s->privd, s, -ETIMEDOUT, PRIVSEP_STAGE_MEMORY);
    slots_refill(s->privd);
}

static void on_prestarted(void *arg, uint32_t events);

static int finish_prestart(struct privd *p, struct slot *s, uint32_t *stage)
{
    struct runtime_started as = {.pidfd = -1, .listener_fd = -1, .opened = RUNTIME_OPENED_NONE};
    struct runtime_image image;
    int r = s->driver->start_finish(p->rt, &s->task, &as, stage);

    if (r == -EAGAIN)
        return slots_watch_task(s, on_prestarted) == 0 ? r : -EIO;
    s->driver->slot_close(&s->pooled);
    if (r == 0 && as.opened.fd >= 0)
        opened_put(p, s->kind.kept, restores_image(p, &s->kind, s->kind.kept, &image), &as.opened);
    if (r < 0)
        return r;
    s->pid = as.pid;
    s->pidfd = as.pidfd;
    if (as.listener_fd >= 0)
        pins_take_fd(s, as.listener_fd);
    else
        pins_take_slot(s);
    r = s->kind.kept ? count_living(p, s) : 0;
    if (r < 0)
        return r;
    s->living = r;
    return end_watch(p, s);
}

/* It is a member now, unless its row has come to stand for others meanwhile. */
static void prestarted(struct privd *p, struct slot *s)
{
    struct pool_row *row = pool_row(&p->pool, s->pool_row);

    end_making(p, s, row);
    if (!row) {
        give_up(p, s);
        return;
    }
    p->pool_counts[s->kind.template_number].refills++;
    slots_enter(p, s, SLOT_PRESTARTED);
    put_member(p, s, row);
}

static void on_prestarted(void *arg, uint32_t events)
{
    struct slot *s = arg;
    struct privd *p = s->privd;
    uint32_t stage = PRIVSEP_STAGE_NAMESPACES;
    int r;

    loop_remove(&p->loop, &s->task_source);
    r = finish_prestart(p, s, &stage);
    if (r == -EAGAIN)
        return;
    if (r < 0)
        prestart_failed(p, s, r, stage);
    else
        prestarted(p, s);
    sandbox_pump(p); /* with what is prepared, if it did not go well */
    slots_refill(p);
}

/* A member that is restored stands still until it is claimed: the task leaves it frozen. */
static int begin(struct privd *p, struct slot *s)
{
    struct runtime_start start = {.template_number = s->kind.template_number,
                                  .limits = s->kind.limits};
    struct runtime_image image;
    int fds[IMAGE_GROUP_FDS], n = 0;

    if (s->kind.kept) {
        start.kept = s->kind.kept;
        start.copy = true;
        start.records_fd = p->kept.fd;
        start.image = restores_image(p, &s->kind, s->kind.kept, &image);
        start.opened = opened_get(p, s->kind.kept, &image);
        n = restores_ahead_begin(p, image.memory_bytes, fds);
        start.image_join_fds = fds;
        start.n_image_join_fds = n;
        loop_arm(&p->loop, &s->timer, RESTORE_TIMEOUT_MS, on_late, s);
    }
    if (n < 0)
        return n;
    int r = s->driver->start_begin(p->rt, &s->pooled, &start, &s->task, &s->boot_fd);

    for (int i = 0; i < n; i++)
        util_close(&fds[i]);
    return r;
}

void members_start(struct privd *p, struct slot *s, struct pool_row *row)
{
    int r;

    s->kind = row->kind;
    s->pool_row = row->id;
    if (s->state != SLOT_MAKING)
        slots_enter(p, s, SLOT_MAKING);
    p->n_making++;
    p->n_prestarting++;
    row->making++;
    r = begin(p, s);
    if (r == 0)
        r = slots_watch_task(s, on_prestarted);
    if (r < 0) /* a waiting create gets a prepared one, or its turn is over by its own timer */
        prestart_failed(p, s, r, PRIVSEP_STAGE_NAMESPACES);
}

/* That of the waiting create that comes first, while it has a row and too few are under way. A
 * create on what is kept waits for none: it starts with that itself. */
static struct pool_row *awaited_row(struct privd *p,
                                    bool (*is_worked_on)(const struct privd *p, uint32_t number))
{
    const struct create_request *c = p->waiting_first;
    struct pool_row *row = c->may_claim && !c->kept ? pool_find(&p->pool, &c->kind) : NULL;

    if (!row || row->recent == 0 || is_worked_on(p, row->kind.template_number))
        return NULL;
    return row->ready + row->making < row->target + p->n_waiting ? row : NULL;
}

/* With memory one at a time: creates that are restored have the processors too. */
static bool may_start(const struct privd *p, const struct pool_row *row,
                      bool (*is_worked_on)(const struct privd *p, uint32_t number))
{
    return !(row->kind.kept && p->n_restoring_ahead >= RESTORES_AHEAD) &&
           !is_worked_on(p, row->kind.template_number);
}

/* Waiting creates come first; then a few prepared slots are to be there; then the row that lacks
 * most of its members. */
struct pool_row *members_row_to_fill(struct privd *p, uint32_t prepared,
                                     bool (*is_worked_on)(const struct privd *p, uint32_t number))
{
    struct pool_row *most = NULL;
    uint32_t lacks = 0;

    if (p->n_waiting > 0)
        return awaited_row(p, is_worked_on);
    if (prepared < SLOTS_PREPARED || pool_members(&p->pool) >= p->pool.most)
        return NULL;
    for (size_t i = 0; i < POOL_ROWS; i++) {
        struct pool_row *row = &p->pool.rows[i];
        uint32_t n = row->ready + row->making;

        if (row->target <= n || row->target - n <= lacks || !may_start(p, row, is_worked_on))
            continue;
        lacks = row->target - n;
        most = row;
    }
    return most;
}

void members_aim(struct privd *p)
{
    uint64_t now = clock_mono_ms();

    if (!p->memory_checked_ms || now - p->memory_checked_ms >= MEMORY_CHECK_MS) {
        p->memory_checked_ms = now;
        pool_aim(&p->pool, meminfo_is_short() ? 0 : p->options.slots_ready);
    }
    if (p->n_waiting == 0)
        give_up_surplus(p);
}
