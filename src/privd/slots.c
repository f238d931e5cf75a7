/* The slots: lists of them, the record and the state of each. Below all that does something to one;
 * slots_make.c makes them ahead and finds one for a create. */
#include "privd/slots.h"

#include "privd/pins.h"

#include "base/log.h"
#include "privd/levels.h"
#include "privd/loop.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/records.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

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

void slots_list_remove(struct slot_list *l, struct slot *s)
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
                                    .resize = RESIZE_NONE,
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

static void write_record(struct privd *p, const struct slot *s, enum slot_state state)
{
    struct record rec = {.slot = s->number,
                         .gen = s->gen,
                         .state = state,
                         .pid = s->pid,
                         .template_number = s->kind.template_number,
                         .level = s->kind.level,
                         .started_real_ms = s->started_real_ms,
                         .limits = s->kind.limits,
                         .on_archive = s->on_archive,
                         .account = s->account};
    int r;

    memcpy(rec.id, s->id, sizeof(rec.id));
    memcpy(rec.volumes, s->volumes, sizeof(rec.volumes));
    rec.pid_start = s->pid > 0 ? s->pid_start : 0;
    r = records_write(&p->records, &rec);
    if (r < 0)
        log_error("slot %u: its record cannot be written: %s", s->number, strerror(-r));
}

void slots_write(struct privd *p, const struct slot *s)
{
    write_record(p, s, s->state);
}

void slots_enter(struct privd *p, struct slot *s, enum slot_state state)
{
    if (!permit_transition(s->state, state)) {
        log_error("slot %u: no way from state %d to %d; starting anew", s->number, s->state, state);
        abort(); /* a broken invariant: recovery puts every slot into a state that is true */
    }
    /* Asked for once in its life: it is the same process for as long as it is not reaped. */
    if (s->pid > 0 && s->pid_start == 0)
        (void)records_pid_start(s->pid, &s->pid_start);
    write_record(p, s, state);
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

struct slot *slots_find(struct privd *p, const struct privsep_msg *m, int *why)
{
    struct slot *s = &p->slots[m->slot]; /* permit_fields has checked the number */

    *why = permit_state(m, s->state, s->gen);
    return *why == 0 ? s : NULL;
}

int slots_watch_task(struct slot *s, loop_source_cb cb)
{
    return loop_add(&s->privd->loop, &s->task_source, s->task.pidfd, cb, s);
}
