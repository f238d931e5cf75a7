/* Slots made ahead: namespaces, rules, layer and cgroups wait for a sandbox to come. Most are
 * prestarted: in them cay-init runs already, with the template and the limits that were asked for
 * most recently, and waits to be told whose it is. */
#include "privd/slots.h"

#include "privd/pins.h"

#include "base/log.h"
#include "privd/end.h"
#include "privd/jobs.h"
#include "privd/loop.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/records.h"
#include "privd/sandbox.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

#define MAKE_PARALLEL   4 /* tasks at a time */
#define PREPARED_READY  2 /* kept beside prestarted ones, for creates of another kind */
#define KIND_MISSES     4 /* creates in a row of another kind until that is what is prestarted */
#define REFILL_DELAY_MS 4 /* a create takes one to three */
#define BACKOFF_MS      100
#define BACKOFF_SHIFT   6 /* at most BACKOFF_MS << 6: 6.4 s */

void slots_list_put(struct slot_list *l, struct slot *s)
{
    s->next = NULL;
    if (l->last)
        l->last->next = s;
    else
        l->first = s;
    l->last = s;
    l->n++;
}

struct slot *slots_list_take(struct slot_list *l)
{
    struct slot *s = l->first;

    if (!s)
        return NULL;
    l->first = s->next;
    if (!l->first)
        l->last = NULL;
    s->next = NULL;
    l->n--;
    return s;
}

static void list_remove(struct slot_list *l, struct slot *s)
{
    struct slot **at = &l->first, *before = NULL;

    for (; *at && *at != s; at = &(*at)->next)
        before = *at;
    if (!*at)
        return;
    *at = s->next;
    if (l->last == s)
        l->last = before;
    s->next = NULL;
    l->n--;
}

int slots_init(struct privd *p)
{
    p->slots = calloc(p->options.slots_max, sizeof(*p->slots));
    if (!p->slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        p->slots[i] = (struct slot){.privd = p,
                                    .number = i,
                                    .driver = p->drivers[p->pool_level],
                                    .pooled = RUNTIME_SLOT_NONE,
                                    .task = TASK_NONE,
                                    .task_source = LOOP_SOURCE_NONE,
                                    .pidfd = -1,
                                    .pin = -1,
                                    .egress_fds = {-1, -1},
                                    .pid_source = LOOP_SOURCE_NONE,
                                    .boot_fd = -1,
                                    .boot_source = LOOP_SOURCE_NONE};
    }
    return 0;
}

void slots_free(struct privd *p)
{
    for (uint32_t i = 0; p->slots && i < p->options.slots_max; i++) {
        util_close(&p->slots[i].pidfd);
        util_close(&p->slots[i].boot_fd);
        p->slots[i].driver->slot_close(&p->slots[i].pooled);
        free(p->slots[i].create);
    }
    free(TAKE_PTR(p->slots));
}

void slots_enter(struct privd *p, struct slot *s, enum slot_state state)
{
    struct record rec = {.slot = s->number,
                         .gen = s->gen,
                         .state = state,
                         .pid = s->pid,
                         .template_number = s->kind.template_number,
                         .level = s->kind.level,
                         .started_real_ms = s->started_real_ms,
                         .limits = s->kind.limits};
    int r;

    if (!permit_transition(s->state, state)) {
        log_error("slot %u: no way from state %d to %d; starting anew", s->number, s->state, state);
        abort(); /* a broken invariant: recovery puts every slot into a state that is true */
    }
    memcpy(rec.id, s->id, sizeof(rec.id));
    memcpy(rec.volumes, s->volumes, sizeof(rec.volumes));
    /* Asked for once in its life: it is the same process for as long as it is not reaped. */
    if (s->pid > 0 && s->pid_start == 0)
        (void)records_pid_start(s->pid, &s->pid_start);
    rec.pid_start = s->pid > 0 ? s->pid_start : 0;
    r = records_write(&p->records, &rec);
    if (r < 0)
        log_error("slot %u: its record cannot be written: %s", s->number, strerror(-r));
    s->state = state;
}

struct runtime_sandbox slots_sandbox(const struct slot *s)
{
    return (struct runtime_sandbox){.slot = s->number, .gen = s->gen, .pidfd = s->pidfd};
}

void slots_put_empty(struct privd *p, struct slot *s)
{
    slots_list_put(&p->empty, s);
}

static bool same_kind(const struct slot_kind *a, const struct slot_kind *b)
{
    const struct privsep_limits *l = &a->limits, *m = &b->limits;

    return a->template_number == b->template_number && a->level == b->level &&
           l->memory_bytes == m->memory_bytes && l->disk_bytes == m->disk_bytes &&
           l->cpu_milli == m->cpu_milli && l->pids == m->pids && l->open_files == m->open_files &&
           l->filters == m->filters;
}

/* Whatever it ran before is forgotten; the generation is one that this slot never had. */
static void begin_use(struct slot *s, const struct runtime_driver *driver)
{
    s->gen++;
    s->driver = driver;
    s->pid = 0;
    s->pid_start = 0;
    s->pooled = RUNTIME_SLOT_NONE;
    s->pooled.number = s->number;
    s->pooled.gen = s->gen;
    s->retries = 0;
    s->paid = false;
    s->failure = 0;
    s->kind = (struct slot_kind){0};
    memset(s->id, 0, sizeof(s->id));
    memset(s->volumes, 0, sizeof(s->volumes));
}

/* An unclaimed one does not keep its template: a job may remove it already. */
static void give_up(struct privd *p, struct slot *s)
{
    s->kind = (struct slot_kind){0};
    end_force(p, s);
}

struct slot *slots_take_unpooled(struct privd *p, uint32_t level)
{
    struct slot *s = slots_list_take(&p->empty);

    if (!s) {
        s = slots_list_take(p->ready.n > 0 ? &p->ready : &p->prestarted);
        if (s)
            give_up(p, s); /* its end brings an empty one */
        return NULL;
    }
    begin_use(s, p->drivers[level]);
    slots_enter(p, s, SLOT_MAKING);
    slots_enter(p, s, SLOT_READY);
    return s;
}

struct slot *slots_take_ready(struct privd *p, const struct slot_kind *kind)
{
    struct slot *prestarted = p->prestarted.first, *s;

    if (kind->level != p->pool_level)
        return slots_take_unpooled(p, kind->level);
    /* All prestarted ones are of one kind. */
    if (prestarted && same_kind(&prestarted->kind, kind))
        return slots_list_take(&p->prestarted);
    /* One that becomes prestarted comes sooner than a prepared one is started, and costs less. */
    if (p->n_prestarting > 0 && p->has_kind && same_kind(&p->kind, kind))
        return NULL;
    s = slots_list_take(&p->ready);
    if (!s && prestarted && p->empty.n == 0 && p->n_making == 0) {
        list_remove(&p->prestarted, prestarted);
        give_up(p, prestarted);
    }
    return s;
}

void slots_forget_prestarted(struct privd *p)
{
    struct slot *s;

    p->has_kind = false;
    p->prestart_epoch++;
    while ((s = slots_list_take(&p->prestarted)) != NULL)
        give_up(p, s);
}

/* All that are prestarted or become it are of p->kind. */
void slots_discard_prestarted(struct privd *p, uint32_t template_number)
{
    struct slot *s;

    if (p->kind.template_number != template_number)
        return;
    p->prestart_epoch++;
    while ((s = slots_list_take(&p->prestarted)) != NULL)
        give_up(p, s);
}

void slots_note_kind(struct privd *p, const struct slot_kind *kind)
{
    if (kind->limits.filters || kind->level != p->pool_level) /* few, and never what most ask for */
        return;
    if (p->has_kind && same_kind(&p->kind, kind)) {
        p->kind_misses = 0;
        return;
    }
    if (p->has_kind && ++p->kind_misses < KIND_MISSES)
        return;
    slots_forget_prestarted(p);
    p->kind = *kind;
    p->has_kind = true;
    p->kind_misses = 0;
}

void slots_lose_prestarted(struct privd *p, struct slot *s)
{
    log_warn("slot %u: cay-init ended before it was claimed", s->number);
    list_remove(&p->prestarted, s);
    p->has_kind = false;
}

struct slot *slots_find(struct privd *p, const struct privsep_msg *m, int *why)
{
    struct slot *s = &p->slots[m->slot]; /* permit_fields has checked the number */

    *why = permit_state(m, s->state, s->gen);
    return *why == 0 ? s : NULL;
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

int slots_watch_task(struct slot *s, loop_source_cb cb)
{
    return loop_add(&s->privd->loop, &s->task_source, s->task.pidfd, cb, s);
}

/* -- prestart: cay-init is started and waits to be claimed ------------------------------------- */

/* Creates go on from prepared slots, and say themselves what is wrong. */
static void prestart_failed(struct privd *p, struct slot *s, int status, uint32_t stage)
{
    log_warn("slot %u: cannot be started ahead: %s (%s)", s->number, strerror(-status),
             privsep_stage_name(stage));
    p->has_kind = false;
    give_up(p, s);
}

static void on_prestarted(void *arg, uint32_t events);

static int finish_prestart(struct privd *p, struct slot *s, uint32_t *stage)
{
    struct runtime_started as = {.pidfd = -1};
    int r = s->driver->start_finish(p->rt, &s->task, &as, stage);

    if (r == -EAGAIN)
        return slots_watch_task(s, on_prestarted) == 0 ? r : -EIO;
    s->driver->slot_close(&s->pooled);
    if (r < 0)
        return r;
    s->pid = as.pid;
    s->pidfd = as.pidfd;
    pins_take_slot(s);
    return end_watch(p, s);
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
    p->n_making--;
    p->n_prestarting--;
    if (r < 0) {
        prestart_failed(p, s, r, stage);
    } else if (s->prestart_epoch != p->prestart_epoch) {
        give_up(p, s);
    } else {
        slots_enter(p, s, SLOT_READY);
        slots_list_put(&p->prestarted, s);
    }
    sandbox_pump(p); /* with what is prepared, if it did not go well */
    slots_refill(p);
}

/* s is on no list. Its namespaces are there, or are made by the same task. */
static void prestart(struct privd *p, struct slot *s)
{
    struct runtime_start start = {.template_number = p->kind.template_number,
                                  .limits = p->kind.limits};
    int r;

    s->kind = p->kind;
    s->prestart_epoch = p->prestart_epoch;
    if (s->state != SLOT_MAKING)
        slots_enter(p, s, SLOT_MAKING);
    p->n_making++;
    p->n_prestarting++;
    r = s->driver->start_begin(p->rt, &s->pooled, &start, &s->task, &s->boot_fd);
    if (r == 0)
        r = slots_watch_task(s, on_prestarted);
    if (r < 0) {
        p->n_making--;
        /* a waiting create gets a prepared one, or its turn is over by its own timer */
        p->n_prestarting--;
        prestart_failed(p, s, r, PRIVSEP_STAGE_NAMESPACES);
    }
}

/* Waiting creates come first, with a prestarted slot if its kind is theirs; then a few prepared
 * ones; the rest is prestarted. */
static bool want_prestarted(const struct privd *p, uint32_t prepared)
{
    uint32_t n = p->prestarted.n + p->n_prestarting;

    if (!p->has_kind || jobs_work_on(p, p->kind.template_number))
        return false;
    if (p->n_waiting > 0)
        return same_kind(&p->waiting_first->kind, &p->kind) &&
               n < p->options.slots_ready + p->n_waiting;
    return prepared >= PREPARED_READY && n < p->options.slots_ready;
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

/* As many prestarted ones as there shall be ready ones, and the few prepared ones besides. */
static bool want_more(const struct privd *p)
{
    uint32_t ahead = p->options.slots_ready;

    if (p->has_kind && ahead > 0)
        ahead += PREPARED_READY;
    return p->ready.n + p->prestarted.n + p->n_making < ahead + p->n_waiting;
}

/* Half of them are there, and no create waits. */
static bool may_delay_refill(const struct privd *p)
{
    return p->n_waiting == 0 &&
           p->ready.n + p->prestarted.n > PREPARED_READY + p->options.slots_ready / 2;
}

void slots_refill_later(struct privd *p)
{
    if (may_delay_refill(p))
        loop_arm(&p->loop, &p->refill_delay_timer, REFILL_DELAY_MS, refill_again, p);
    else
        slots_refill(p);
}

void slots_refill(struct privd *p)
{
    if (loop_timer_armed(&p->refill_delay_timer) && may_delay_refill(p))
        return;
    loop_disarm(&p->loop, &p->refill_delay_timer);
    while (!p->stopping && !loop_timer_armed(&p->refill_timer) && p->n_making < MAKE_PARALLEL) {
        struct slot *s;

        if (p->ready.n > PREPARED_READY && want_prestarted(p, p->ready.n - 1)) {
            prestart(p, slots_list_take(&p->ready));
            continue;
        }
        s = want_more(p) ? slots_list_take(&p->empty) : NULL;
        if (!s) {
            if (p->n_waiting > 0)
                end_hurry(p);
            break;
        }
        begin_use(s, p->drivers[p->pool_level]);
        if (want_prestarted(p, p->ready.n + p->n_making - p->n_prestarting))
            prestart(p, s);
        else
            make_prepared(p, s);
    }
}
