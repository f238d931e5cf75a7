/* DUMP: a task has the memory of a sandbox written into its layer, sealed, and its processes ended
 * by that; then the layer is kept as by KEEP. A failure before that lets them go on. There are few
 * at a time, as an image is in the host's memory until it is sealed, and where that is short a
 * single one.
 *
 * The task's programs look into processes of a tenant's, so they are in a control group of their
 * own (image_groups.h), which is emptied when the task has ended, however. CRIU that was killed may
 * have left code of its own in those processes: then they are ended, and the files alone are kept.
 * So does a privd that takes over, as the task died with the one before: the record of the kept
 * layer is written first. */

#include "privd/dump.h"

#include "base/log.h"
#include "base/meminfo.h"
#include "base/share.h"
#include "privd/end.h"
#include "privd/image_groups.h"
#include "privd/kept.h"
#include "privd/privd.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privd/unkilled.h"

#include <errno.h>
#include <string.h>

static uint32_t group_of(const struct dumper *d)
{
    return (uint32_t)(d - d->privd->dumpers);
}

/* Nothing that the task has started goes on. */
static struct reply_to stop(struct dumper *d)
{
    struct privd *p = d->privd;
    struct reply_to to = d->requester;

    loop_remove(&p->loop, &d->source);
    loop_disarm(&p->loop, &d->timer);
    if (d->task.pid > 0)
        unkilled_add(p, d->slot->number, task_cancel(&d->task));
    image_group_end(p, group_of(d));
    d->slot = NULL;
    d->requester = (struct reply_to){0};
    return to;
}

static void goes_on(struct dumper *d, int status, const char *why)
{
    struct privd *p = d->privd;
    struct slot *s = d->slot;
    uint32_t number = d->number;
    struct reply_to to = stop(d);

    log_warn("sandbox %.*s, slot %u: its memory is not kept: %s; it goes on", PRIVSEP_ID_SIZE,
             s->id, s->number, why[0] ? why : strerror(-status));
    kept_settle(&p->kept, number, KEPT_NONE);
    slots_enter(p, s, SLOT_RUNNING);
    reply_reason(p, &to, PRIVSEP_DUMP, status, why[0] ? why : strerror(-status));
    if (s->pid_source.fd < 0 && end_watch(p, s) < 0)
        end_force(p, s);
}

/* By the same way as KEEP. */
static void ends(struct dumper *d, int status)
{
    struct slot *s = d->slot;

    if (status < 0)
        log_error("sandbox %.*s, slot %u: its memory could not be kept in time: its files are",
                  PRIVSEP_ID_SIZE, s->id, s->number);
    s->kept = d->number;
    s->keeper_op = PRIVSEP_DUMP;
    s->keeper_status = status;
    s->keeper = stop(d);
    end_force(s->privd, s);
}

static void on_dumped(void *arg, uint32_t events);

static int watch(struct dumper *d)
{
    return loop_add(&d->privd->loop, &d->source, d->task.pidfd, on_dumped, d);
}

static void on_dumped(void *arg, uint32_t events)
{
    struct dumper *d = arg;
    char why[TASK_WHY_SIZE] = "";
    int rc;

    loop_remove(&d->privd->loop, &d->source);
    rc = d->slot->driver->dump_finish(d->privd->rt, &d->task, why);
    if (rc == -EAGAIN && watch(d) == 0)
        return;
    if (rc == 0 || rc == -ETIMEDOUT || rc == -ECHILD || rc == -EAGAIN)
        ends(d, rc == -EAGAIN ? -ECHILD : rc);
    else
        goes_on(d, rc, why);
}

static void on_timeout(void *arg)
{
    ends(arg, -ETIMEDOUT);
}

static int begin(struct dumper *d)
{
    struct privd *p = d->privd;
    struct slot *s = d->slot;
    const struct template_meta *template = template_find(p, s->kind.template_number);
    struct runtime_sandbox sb = slots_sandbox(s);
    struct runtime_image image = {.template_number = s->kind.template_number,
                                  .template_made_ms = template ? template->made_real_ms : 0,
                                  .memory_bytes = s->kind.limits.memory_bytes};
    int fds[IMAGE_GROUP_FDS], n = image_group_begin(p, group_of(d), image.memory_bytes, fds);

    if (n < 0)
        return n;
    memcpy(image.owner, p->kept.all[d->number].owner, sizeof(image.owner));
    int rc = s->driver->dump_begin(p->rt, &sb, &image, fds, n, &d->task);
    for (int i = 0; i < n; i++)
        util_close(&fds[i]);
    return rc;
}

/* NULL: the account has its share of them, or there is no memory for a second one. */
static struct dumper *free_dumper(struct privd *p, uint32_t account)
{
    struct dumper *found = NULL;
    size_t used = 0, held = 0;

    for (size_t i = 0; i < DUMPS_MAX; i++) {
        struct dumper *d = &p->dumpers[i];

        if (!d->slot)
            found = d;
        used += d->slot != NULL;
        held += d->slot && d->account == account;
    }
    if (!share_leaves_space(DUMPS_MAX, used, held) || (used > 0 && meminfo_is_short()))
        return NULL;
    return found;
}

static int may_dump(const struct privd *p, const struct slot *s, const struct dumper *d,
                    uint32_t number, const char **why)
{
    *why = "";
    if (!d || s->resize.under_way || unkilled_of(p, s->number))
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
    struct dumper *d = free_dumper(p, m->u.kept.account);
    const char *why;
    int rc = may_dump(p, s, d, r.number, &why);

    if (rc == 0)
        rc = kept_write(&p->kept, &r);
    if (rc < 0) {
        reply_reason(p, to, PRIVSEP_DUMP, rc, why);
        return;
    }
    d->slot = s;
    d->number = r.number;
    d->account = m->u.kept.account;
    d->requester = *to;
    slots_enter(p, s, SLOT_DUMPING);
    rc = begin(d);
    if (rc < 0)
        goes_on(d, rc, "");
    else if (watch(d) < 0) /* it may be at work already, and is killed */
        ends(d, -ECHILD);
    else
        loop_arm(&p->loop, &d->timer, RUNTIME_DUMP_MS, on_timeout, d);
}

void dump_forget(struct slot *s)
{
    struct privd *p = s->privd;

    for (size_t i = 0; i < DUMPS_MAX; i++) {
        struct dumper *d = &p->dumpers[i];

        if (d->slot != s)
            continue;
        struct reply_to to = stop(d);
        kept_settle(&p->kept, d->number, KEPT_NONE);
        reply_reason(p, &to, PRIVSEP_DUMP, -ESTALE, "the sandbox was ended");
    }
}

void dump_init(struct privd *p)
{
    for (size_t i = 0; i < DUMPS_MAX; i++)
        p->dumpers[i] = (struct dumper){.privd = p, .task = TASK_NONE, .source = LOOP_SOURCE_NONE};
}
