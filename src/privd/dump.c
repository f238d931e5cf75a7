/* DUMP: a task has the memory of a sandbox written into its layer, sealed, and its processes ended
 * by that; then the layer is kept as by KEEP. A failure before that lets them go on. There is a
 * single one at a time, as an image is in the host's memory until it is sealed.
 *
 * The task's programs look into processes of a tenant's, so they are in a control group of their
 * own (jobs.h), which is emptied when the task has ended, however. CRIU that was killed may have
 * left code of its own in those processes: then they are ended, and the files alone are kept. So
 * does a privd that takes over, as the task died with the one before: the record of the kept layer
 * is written first. */

#include "privd/dump.h"

#include "base/log.h"
#include "privd/end.h"
#include "privd/jobs.h"
#include "privd/kept.h"
#include "privd/privd.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privd/unkilled.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void refuse(struct privd *p, const struct reply_to *to, int status, const char *why)
{
    struct privsep_msg m = {.op = PRIVSEP_DUMP, .status = status};

    snprintf(m.u.refused.why, sizeof(m.u.refused.why), "%s", why);
    if (to->seq != 0)
        (void)request_reply(p, to, &m, NULL, 0);
}

static void forget_number(struct privd *p, uint32_t number)
{
    if (kept_enter(&p->kept, number, KEPT_NONE) < 0)
        log_error("kept layer %u: its record cannot be written; the next start corrects it",
                  number);
}

/* Nothing that the task has started goes on. */
static struct reply_to stop(struct privd *p)
{
    struct reply_to to = p->dumper.requester;

    loop_remove(&p->loop, &p->dumper.source);
    loop_disarm(&p->loop, &p->dumper.timer);
    if (p->dumper.task.pid > 0)
        unkilled_add(p, p->dumper.slot->number, task_cancel(&p->dumper.task));
    jobs_group_end(p);
    p->dumper.slot = NULL;
    p->dumper.requester = (struct reply_to){0};
    return to;
}

static void goes_on(struct slot *s, int status, const char *why)
{
    struct privd *p = s->privd;
    uint32_t number = p->dumper.number;
    struct reply_to to = stop(p);

    log_warn("sandbox %.*s, slot %u: its memory is not kept: %s; it goes on", PRIVSEP_ID_SIZE,
             s->id, s->number, why[0] ? why : strerror(-status));
    forget_number(p, number);
    slots_enter(p, s, SLOT_RUNNING);
    refuse(p, &to, status, why[0] ? why : strerror(-status));
    if (s->pid_source.fd < 0 && end_watch(p, s) < 0)
        end_force(p, s);
}

/* By the same way as KEEP. */
static void ends(struct slot *s, int status)
{
    struct privd *p = s->privd;

    if (status < 0)
        log_error("sandbox %.*s, slot %u: its memory could not be kept in time: its files are",
                  PRIVSEP_ID_SIZE, s->id, s->number);
    s->kept = p->dumper.number;
    s->keeper_op = PRIVSEP_DUMP;
    s->keeper_status = status;
    s->keeper = stop(p);
    end_force(p, s);
}

static void on_dumped(void *arg, uint32_t events);

static int watch(struct privd *p)
{
    return loop_add(&p->loop, &p->dumper.source, p->dumper.task.pidfd, on_dumped, p);
}

static void on_dumped(void *arg, uint32_t events)
{
    struct privd *p = arg;
    struct slot *s = p->dumper.slot;
    char why[TASK_WHY_SIZE] = "";
    int rc;

    loop_remove(&p->loop, &p->dumper.source);
    rc = s->driver->dump_finish(p->rt, &p->dumper.task, why);
    if (rc == -EAGAIN && watch(p) == 0)
        return;
    if (rc == 0 || rc == -ETIMEDOUT || rc == -ECHILD || rc == -EAGAIN)
        ends(s, rc == -EAGAIN ? -ECHILD : rc);
    else
        goes_on(s, rc, why);
}

static void on_timeout(void *arg)
{
    struct privd *p = arg;

    ends(p->dumper.slot, -ETIMEDOUT);
}

static int begin(struct privd *p, struct slot *s)
{
    const struct template_meta *template = template_find(p, s->kind.template_number);
    struct runtime_sandbox sb = slots_sandbox(s);
    struct runtime_image image = {.template_number = s->kind.template_number,
                                  .template_made_ms = template ? template->made_real_ms : 0,
                                  .memory_bytes = s->kind.limits.memory_bytes};
    int fds[JOBS_GROUP_FDS], n = jobs_group_begin(p, s->kind.limits.memory_bytes, fds);

    if (n < 0)
        return n;
    memcpy(image.owner, p->kept.all[p->dumper.number].owner, sizeof(image.owner));
    int rc = s->driver->dump_begin(p->rt, &sb, &image, fds, n, &p->dumper.task);
    for (int i = 0; i < n; i++)
        util_close(&fds[i]);
    return rc == 0 ? watch(p) : rc;
}

static int may_dump(const struct privd *p, const struct slot *s, uint32_t number, const char **why)
{
    *why = "";
    if (p->dumper.slot || s->resize.under_way || unkilled_of(p, s->number))
        return -EAGAIN;
    if (kept_find(&p->kept, number)->state != KEPT_NONE)
        return -EEXIST;
    *why = "files are in memory here, or cay-checkpoint is not: memory cannot be kept";
    if (!runtime_can_keep(p->rt) || !p->options.checkpoint || !p->options.seal)
        return -EOPNOTSUPP;
    *why = "a command with a policy of its own runs in it";
    return s->n_command_sandboxes > 0 ? -EOPNOTSUPP : 0;
}

void dump_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m)
{
    struct kept_record r = keep_record(s, m);
    const char *why;
    int rc = may_dump(p, s, r.number, &why);

    if (rc == 0)
        rc = kept_write(&p->kept, &r);
    if (rc < 0) {
        refuse(p, to, rc, why);
        return;
    }
    p->dumper.slot = s;
    p->dumper.number = r.number;
    p->dumper.requester = *to;
    slots_enter(p, s, SLOT_DUMPING);
    rc = begin(p, s);
    if (rc < 0)
        goes_on(s, rc, "");
    else
        loop_arm(&p->loop, &p->dumper.timer, RUNTIME_DUMP_MS, on_timeout, p);
}

void dump_forget(struct slot *s)
{
    struct privd *p = s->privd;
    uint32_t number = p->dumper.number;

    if (p->dumper.slot != s)
        return;
    struct reply_to to = stop(p);
    forget_number(p, number);
    refuse(p, &to, -ESTALE, "the sandbox was ended");
}
