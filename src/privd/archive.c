/* A kept layer as a file. The record says KEPT_ARCHIVING from before the job until the layer can be
 * used again, so that no create, copy or drop has it meanwhile. The layer is only read until its
 * number has the new one: that is one step on the state disk (runtime/archive.c), and whatever
 * ends at whatever moment, the number has the one or the other whole. The rest of a job's work is
 * removed here, or at the next start. */

#include "privd/archive.h"

#include "base/log.h"
#include "contract/meta.h"
#include "privd/bucket.h"
#include "privd/jobs.h"
#include "privd/keep.h"
#include "privd/kept.h"
#include "privd/loop.h"
#include "privd/opened.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

/* The layer may have become the archive even where the last steps failed. */
static void end(struct privd *p, int status, const char *why)
{
    uint32_t number = p->archiver.number;
    struct reply_to to = p->archiver.requested;

    if (status < 0 && status != -EALREADY && runtime_is_archived(p->rt, number)) {
        status = 0;
        why = p->options.bucket.name ? why : "";
    }
    int left = runtime_archive_undo(p->rt, number);
    if (left < 0)
        left = runtime_archive_undo(p->rt, number);
    if (left < 0)
        log_error("kept layer %u: the rest of its archive is not removed", number);
    /* A memory image beside the files has gone with the layer that they were in. */
    p->kept.without_memory[number] = !runtime_has_memory(p->rt, number);
    if (p->kept.without_memory[number])
        opened_forget(p, number);
    kept_settle(&p->kept, number, runtime_is_kept(p->rt, number) ? KEPT_WHOLE : KEPT_NONE);
    p->archiver = (struct archiver){.task = TASK_NONE, .source = LOOP_SOURCE_NONE};
    reply_reason(p, &to, PRIVSEP_ARCHIVE, status, why);
}

/* It is archived, in the bucket or here. */
static void on_sent(struct privd *p, uint32_t number, int status, const char *reason)
{
    bucket_sweep(p, 0); /* it answers, or may have an object without a layer */
    end(p, status == -EALREADY ? status : 0, status < 0 ? reason : "");
}

static void send_it(struct privd *p)
{
    int rc = p->archiver.stop ? -ECANCELED
                              : jobs_start(p, JOB_BUCKET_PUT, p->archiver.number, NULL, on_sent);

    p->archiver.swaps = false;
    if (rc < 0)
        end(p, 0, rc == -ECANCELED ? "it was wanted meanwhile" : strerror(-rc));
}

static void on_swapped(void *arg, uint32_t events)
{
    struct privd *p = arg;
    char why[TASK_WHY_SIZE] = "";
    int rc;

    loop_remove(&p->loop, &p->archiver.source);
    rc = runtime_archive_finish(&p->archiver.task, why);
    if (rc == -EAGAIN &&
        loop_add(&p->loop, &p->archiver.source, p->archiver.task.pidfd, on_swapped, p) == 0)
        return;
    if (rc == 0 && p->options.bucket.name)
        send_it(p);
    else
        end(p, rc, why[0] || rc == 0 ? why : strerror(-rc));
}

static void on_made(struct privd *p, uint32_t number, int status, const char *reason)
{
    int rc = p->archiver.stop ? -ECANCELED : status;

    if (rc == 0)
        rc = runtime_archive_begin(p->rt, p->archiver.number, p->kept.fd, &p->archiver.task);
    if (rc == 0)
        rc = loop_add(&p->loop, &p->archiver.source, p->archiver.task.pidfd, on_swapped, p);
    p->archiver.swaps = rc == 0;
    if (rc < 0)
        end(p, rc,
            rc == -ECANCELED ? "it was wanted meanwhile"
            : reason[0]      ? reason
                             : strerror(-rc));
}

/* 0: the answer comes; 1: it was done before, all of it. */
static int begin(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    uint32_t number = m->u.kept.number;
    int rc = p->archiver.number ? -EAGAIN : keep_may_take(p, number, m->u.kept.owner, 0);

    if (rc == -EINVAL) /* of whatever template */
        rc = 0;
    if (rc == 0 && (!runtime_can_keep(p->rt) || !p->options.seal))
        rc = -EOPNOTSUPP;
    if (rc == 0 && p->options.bucket.name && runtime_is_away(p->rt, number))
        return 1;
    if (rc == 0)
        rc = kept_enter(&p->kept, number, KEPT_ARCHIVING);
    if (rc < 0)
        return rc;
    p->archiver = (struct archiver){
        .number = number, .requested = *to, .task = TASK_NONE, .source = LOOP_SOURCE_NONE};
    if (p->options.bucket.name && runtime_is_archived(p->rt, number)) {
        send_it(p);
        return 0;
    }
    rc = jobs_start(p, JOB_ARCHIVE, number, NULL, on_made);
    if (rc < 0) {
        p->archiver.requested = (struct reply_to){0};
        end(p, rc, "");
    }
    return rc;
}

void archive_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    int rc = begin(p, to, m);

    if (rc == 1)
        reply_reason(p, to, PRIVSEP_ARCHIVE, 0, "");
    if (rc < 0)
        reply_reason(p, to, PRIVSEP_ARCHIVE, rc,
                     rc == -EAGAIN || rc == -EBUSY ? "other work is under way" : strerror(-rc));
}

void archive_stop(struct privd *p, uint32_t number)
{
    struct archiver *a = &p->archiver;

    if (!a->number || (number && number != a->number) || a->swaps || a->stop)
        return;
    a->stop = true;
    jobs_cancel(p, JOB_ARCHIVE, a->number);
    jobs_cancel(p, JOB_BUCKET_PUT, a->number);
}

/* That it is another's is found here, as the record is busy for keep_may_take. */
int archive_give_up(struct privd *p, const struct privsep_msg *m)
{
    if (!kept_is_of(kept_find(&p->kept, m->u.kept.number), m->u.kept.owner))
        return -EPERM;
    archive_stop(p, m->u.kept.number);
    return 0;
}

void archive_stop_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    int rc = archive_give_up(p, m);

    reply_reason(p, to, PRIVSEP_ARCHIVE_STOP, rc, rc < 0 ? strerror(-rc) : "");
}
