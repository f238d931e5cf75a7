/* RESIZE: a task sets the limits, since the kernel may have to take memory back first; the record
 * has them once they hold. A task that takes too long is cut off, and the earlier limits are set
 * again before it is answered: until then its peer charges for both. Where that fails too, the
 * record has the greater of both, and the answer tells so.
 *
 * A privd that takes over has the record's, and its peer, to which LIST tells them, asks again for
 * those that it wants. */
#include "privd/resize.h"

#include "base/log.h"
#include "privd/privd.h"
#include "privd/slots.h"
#include "privd/unkilled.h"

#include <errno.h>
#include <string.h>

#define RESIZE_MS         5000 /* a limit that takes longer is given up, and so is one of before */
#define RESIZE_CHECK_MS   100
#define RESIZE_CHECKS_MAX 50 /* for the end of the task that was cut off */

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
        (void)reply_send(s->privd, &to, &m, NULL, 0);
}

static void cut_off(struct slot *s)
{
    struct privd *p = s->privd;

    loop_remove(&p->loop, &s->resize.source);
    loop_disarm(&p->loop, &s->resize.timer);
    if (s->resize.task.pid > 0)
        unkilled_add(p, s->number, task_cancel(&s->resize.task));
}

static void done(struct slot *s, int status, const struct runtime_resized *how)
{
    cut_off(s);
    s->privd->n_resizing--;
    s->resize.under_way = false;
    answer(s, status, how);
}

static void has_now(struct slot *s, const struct privsep_limits *l)
{
    s->kind.limits = *l;
    slots_write(s->privd, s);
}

void resize_forget(struct slot *s)
{
    if (s->resize.under_way)
        done(s, -ESTALE, &(struct runtime_resized){0});
}

/* -- back -------------------------------------------------------------------------------------- */

/* It is charged for no less than it can have. */
static void not_back(struct slot *s)
{
    struct privsep_limits l = s->kind.limits;

    l.memory_bytes = MAX(l.memory_bytes, s->resize.to.memory_bytes);
    l.disk_bytes = MAX(l.disk_bytes, s->resize.to.disk_bytes);
    l.cpu_milli = MAX(l.cpu_milli, s->resize.to.cpu_milli);
    log_error("sandbox %.*s, slot %u: its limits could not be set again", PRIVSEP_ID_SIZE, s->id,
              s->number);
    has_now(s, &l);
    done(s, s->resize.status, &(struct runtime_resized){0});
}

static int begin(struct slot *s);

static void go_back(void *arg)
{
    struct slot *s = arg;

    /* The task that was cut off may be about to set one more. */
    if (unkilled_of(s->privd, s->number) && s->resize.checks++ < RESIZE_CHECKS_MAX)
        loop_arm(&s->privd->loop, &s->resize.timer, RESIZE_CHECK_MS, go_back, s);
    else if (unkilled_of(s->privd, s->number) || begin(s) < 0)
        not_back(s);
}

static void cut_short(struct slot *s, int why)
{
    cut_off(s);
    if (s->resize.back) {
        not_back(s);
        return;
    }
    log_warn("sandbox %.*s, slot %u: its limits could not be changed: %s", PRIVSEP_ID_SIZE, s->id,
             s->number, strerror(-why));
    s->resize.back = true;
    s->resize.status = why;
    s->resize.checks = 0;
    go_back(s);
}

/* -- there ------------------------------------------------------------------------------------- */

static void on_resized(void *arg, uint32_t events);

static int watch(struct slot *s)
{
    return loop_add(&s->privd->loop, &s->resize.source, s->resize.task.pidfd, on_resized, s);
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
    if (rc == -EAGAIN || rc == -ECHILD || rc == -ENOTRECOVERABLE || (rc < 0 && s->resize.back)) {
        cut_short(s, rc == -EAGAIN ? -ENOMEM : rc);
        return;
    }
    if (rc == 0 && !s->resize.back)
        has_now(s, &s->resize.to);
    done(s, s->resize.back ? s->resize.status : rc, &how);
}

static void on_timeout(void *arg)
{
    cut_short(arg, -ETIMEDOUT);
}

static int begin(struct slot *s)
{
    struct privd *p = s->privd;
    struct runtime_sandbox sb = slots_sandbox(s);
    int rc = s->driver->resize_begin(p->rt, &sb, &s->kind.limits, &s->resize.to, s->resize.back,
                                     &s->resize.task);

    if (rc < 0)
        return rc;
    rc = watch(s);
    if (rc < 0) {
        cut_off(s);
        return rc;
    }
    loop_arm(&p->loop, &s->resize.timer, RESIZE_MS, on_timeout, s);
    return 0;
}

static int take(struct privd *p, struct slot *s, const struct privsep_msg *m)
{
    int rc;

    if (s->resize.under_way)
        return -EALREADY;
    if (p->n_resizing >= PRIVSEP_RESIZES_MAX || unkilled_of(p, s->number))
        return -EAGAIN;
    s->resize.to = s->kind.limits;
    s->resize.to.memory_bytes = m->u.resize.memory_bytes;
    s->resize.to.disk_bytes = m->u.resize.disk_bytes;
    s->resize.to.cpu_milli = m->u.resize.cpu_milli;
    s->resize.back = false;
    rc = begin(s);
    if (rc == 0) {
        s->resize.under_way = true;
        p->n_resizing++;
    }
    return rc;
}

void resize_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                      const struct privsep_msg *m)
{
    int rc = take(p, s, m);

    if (rc == 0)
        s->resize.requester = *to;
    else
        reply_status(p, to, PRIVSEP_RESIZE, rc, PRIVSEP_STAGE_NONE);
}
