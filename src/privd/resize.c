/* RESIZE: a task sets the limits, since the kernel may have to take memory back first; the record
 * has them once they hold. A privd that takes over has the record's, and its peer, to which LIST
 * tells them, asks again for those that it wants. */
#include "privd/resize.h"

#include "base/log.h"
#include "privd/privd.h"
#include "privd/slots.h"
#include "privd/unkilled.h"

#include <errno.h>
#include <string.h>

#define RESIZE_MS 5000 /* a limit that takes longer is given up */

static void answer(struct slot *s, int status, const struct runtime_resized *how)
{
    struct privsep_msg m = {
        .op = PRIVSEP_RESIZE, .status = status, .slot = s->number, .gen = s->gen};
    struct reply_to to = s->resize.requester;

    s->resize.requester = (struct reply_to){0};
    m.u.resize.memory_bytes = s->kind.limits.memory_bytes;
    m.u.resize.disk_bytes = s->kind.limits.disk_bytes;
    m.u.resize.cpu_milli = s->kind.limits.cpu_milli;
    m.u.resize.uses = how->uses;
    m.u.resize.used_bytes = how->used_bytes;
    if (to.seq != 0)
        (void)request_reply(s->privd, &to, &m, NULL, 0);
}

static void on_resized(void *arg, uint32_t events);

static int watch(struct slot *s)
{
    return loop_add(&s->privd->loop, &s->resize.source, s->resize.task.result_fd, on_resized, s);
}

static void on_resized(void *arg, uint32_t events)
{
    struct slot *s = arg;
    struct runtime_resized how = {0};
    int rc;

    loop_remove(&s->privd->loop, &s->resize.source);
    rc = s->driver->resize_finish(s->privd->rt, &s->resize.task, &how);
    if (rc == -EAGAIN && watch(s) == 0)
        return;
    loop_disarm(&s->privd->loop, &s->resize.timer);
    s->privd->n_resizing--;
    if (rc == 0 && !s->resize.undone) {
        s->kind.limits = s->resize.to;
        slots_write(s->privd, s);
    }
    answer(s, rc, &how);
}

static void cancel(struct slot *s)
{
    struct privd *p = s->privd;

    loop_remove(&p->loop, &s->resize.source);
    loop_disarm(&p->loop, &s->resize.timer);
    unkilled_add(p, s->number, task_cancel(&s->resize.task));
    p->n_resizing--;
}

void resize_forget(struct slot *s)
{
    if (s->resize.task.pid <= 0)
        return;
    cancel(s);
    answer(s, -ESTALE, &(struct runtime_resized){0});
}

static void on_timeout(void *arg);

static int begin(struct slot *s, const struct privsep_limits *from, const struct privsep_limits *to)
{
    struct privd *p = s->privd;
    struct runtime_sandbox sb = slots_sandbox(s);
    int rc;

    if (p->n_resizing >= RESIZE_PARALLEL)
        return -EAGAIN;
    rc = s->driver->resize_begin(p->rt, &sb, from, to, &s->resize.task);
    if (rc < 0)
        return rc;
    rc = watch(s);
    if (rc < 0) {
        unkilled_add(p, s->number, task_cancel(&s->resize.task));
        return rc;
    }
    p->n_resizing++;
    loop_arm(&p->loop, &s->resize.timer, RESIZE_MS, on_timeout, s);
    return 0;
}

/* Some of the limits may hold: those of before are set again, once, which no requester waits
 * for. */
static void on_timeout(void *arg)
{
    struct slot *s = arg;
    bool again = !s->resize.undone;

    log_warn("sandbox %.*s, slot %u: its limits could not be %s in time", PRIVSEP_ID_SIZE, s->id,
             s->number, again ? "changed" : "set again");
    cancel(s);
    answer(s, -ETIMEDOUT, &(struct runtime_resized){0});
    s->resize.undone = true;
    if (again && begin(s, &s->resize.to, &s->kind.limits) < 0)
        log_error("slot %u: its limits are not known any more", s->number);
}

void resize_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                      const struct privsep_msg *m)
{
    int rc = -EALREADY;

    if (s->resize.task.pid <= 0) {
        s->resize.to = s->kind.limits;
        s->resize.to.memory_bytes = m->u.resize.memory_bytes;
        s->resize.to.disk_bytes = m->u.resize.disk_bytes;
        s->resize.to.cpu_milli = m->u.resize.cpu_milli;
        s->resize.undone = false;
        rc = begin(s, &s->kind.limits, &s->resize.to);
    }
    if (rc == 0)
        s->resize.requester = *to;
    else
        request_reply_status(p, to, PRIVSEP_RESIZE, rc, PRIVSEP_STAGE_NONE);
}
