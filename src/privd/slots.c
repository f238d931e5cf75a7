/* Slots made ahead: namespaces, rules, layer and cgroups wait for a sandbox to come. */
#include "privd/privd.h"

#include "base/log.h"

#include <errno.h>
#include <string.h>

#define MAKE_PARALLEL 4 /* tasks at a time */
#define BACKOFF_MS    100
#define BACKOFF_SHIFT 6 /* at most BACKOFF_MS << 6: 6.4 s */

static void list_put(struct slot_list *l, struct slot *s)
{
    s->next = NULL;
    if (l->last)
        l->last->next = s;
    else
        l->first = s;
    l->last = s;
    l->n++;
}

static struct slot *list_take(struct slot_list *l)
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

int slots_init(struct privd *p)
{
    p->slots = calloc(p->options.slots_max, sizeof(*p->slots));
    if (!p->slots)
        return -ENOMEM;
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        p->slots[i] = (struct slot){.privd = p,
                                    .number = i,
                                    .pooled = RUNTIME_SLOT_NONE,
                                    .task = TASK_NONE,
                                    .task_source = LOOP_SOURCE_NONE,
                                    .pidfd = -1,
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
        runtime_slot_close(&p->slots[i].pooled);
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
                         .template_number = s->template_number,
                         .level = s->level,
                         .started_real_ms = s->started_real_ms,
                         .limits = s->limits};
    int r;

    memcpy(rec.id, s->id, sizeof(rec.id));
    if (s->pid > 0)
        (void)records_pid_start(s->pid, &rec.pid_start);
    r = records_write(&p->records, &rec);
    if (r < 0)
        log_error("slot %u: its record cannot be written: %s", s->number, strerror(-r));
    s->state = state;
}

void slots_put_empty(struct privd *p, struct slot *s)
{
    list_put(&p->empty, s);
}

struct slot *slots_take_ready(struct privd *p)
{
    return list_take(&p->ready);
}

struct slot *slots_find(struct privd *p, const struct privsep_msg *m, int *why)
{
    struct slot *s = &p->slots[m->slot]; /* permit_fields has checked the number */

    *why = permit_state(m, s->state, s->gen);
    return *why == 0 ? s : NULL;
}

/* -- making ------------------------------------------------------------------------------------ */

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
    return loop_add(&s->privd->loop, &s->task_source, s->task.result_fd, cb, s);
}

static void on_made(void *arg, uint32_t events)
{
    struct slot *s = arg;
    struct privd *p = s->privd;
    uint32_t stage = PRIVSEP_STAGE_SLOT;
    int r;

    loop_remove(&p->loop, &s->task_source); /* finishing closes the descriptor */
    r = p->driver->slot_finish(p->rt, &s->task, &s->pooled, &stage);
    if (r == -EAGAIN && slots_watch_task(s, on_made) == 0)
        return;
    p->n_making--;
    if (r < 0) {
        make_failed(p, s, r, stage);
        return;
    }
    p->make_failures = 0;
    slots_enter(p, s, SLOT_READY);
    list_put(&p->ready, s);
    sandbox_pump(p);
    slots_refill(p);
}

/* Whatever it ran before is forgotten; the generation is one that this slot never had. */
static void make_one(struct privd *p, struct slot *s)
{
    int r;

    s->gen++;
    s->pid = 0;
    s->pooled = RUNTIME_SLOT_NONE;
    s->pooled.number = s->number;
    s->pooled.gen = s->gen;
    s->retries = 0;
    s->failure = 0;
    memset(s->id, 0, sizeof(s->id));
    slots_enter(p, s, SLOT_MAKING);
    p->n_making++;
    r = p->driver->slot_begin(p->rt, s->number, s->gen, &s->task);
    if (r == 0)
        r = slots_watch_task(s, on_made);
    if (r < 0) {
        p->n_making--;
        make_failed(p, s, r, PRIVSEP_STAGE_SLOT);
    }
}

void slots_refill(struct privd *p)
{
    while (!p->stopping && p->refill_timer.place == 0 && p->n_making < MAKE_PARALLEL &&
           p->ready.n + p->n_making < p->options.slots_ready + p->n_waiting) {
        struct slot *s = list_take(&p->empty);

        if (!s)
            break;
        make_one(p, s);
    }
}
