/* EXPORT reads: its job begins with a snapshot of the layer, which is one call of the file system,
 * and works on that, so what is kept may be used and dropped meanwhile. IMPORT makes: the number is
 * KEPT_IMPORTING until its layer is whole, so that one which was not answered is dropped at the
 * next start (kept_recovered). Whatever ends at whatever moment, what a job has made
 * is removed here, or at the next start (runtime_archive_undo_all); an exported file has no name
 * once it is signed. */

#include "privd/exchange.h"

#include "base/clock.h"
#include "base/exchange_key.h"
#include "base/log.h"
#include "contract/exchange.h"
#include "contract/meta.h"
#include "privd/jobs.h"
#include "privd/keep.h"
#include "privd/kept.h"
#include "privd/loop.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/template.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int exchange_check_key(struct privd *p)
{
    const char *path = p->options.exchange_key, *why;
    uint8_t key[EXCHANGE_KEY_BYTES];

    why = path ? exchange_key_read(path, key) : NULL;
    explicit_bzero(key, sizeof(key));
    if (why)
        log_error("no snapshot is exported or imported: %s ([snapshots] exchange_key): %s", path,
                  why);
    return 0;
}

static bool is_import(const struct privd *p)
{
    return p->exchanger.what.op == PRIVSEP_IMPORT;
}

/* Where the name of the work is in ARCHIVING_DIR. */
static uint32_t work_of(const struct privd *p)
{
    return is_import(p) ? p->exchanger.number : EXCHANGE_EXPORT_NUMBER;
}

static void undo(struct privd *p)
{
    int rc = runtime_archive_undo(p->rt, work_of(p));

    if (rc < 0)
        rc = runtime_archive_undo(p->rt, work_of(p));
    if (rc < 0)
        log_error("kept layer %u: the rest of its %s is not removed", p->exchanger.number,
                  privsep_op_name(p->exchanger.what.op));
}

/* A number that is whole on the disk and was not answered so would have no owner: it goes. */
static int settle_import(struct privd *p, int status)
{
    uint32_t number = p->exchanger.number;

    if (status == 0)
        status = kept_enter(&p->kept, number, KEPT_WHOLE);
    if (status == 0) {
        p->kept.without_memory[number] = true;
        return 0;
    }
    if (runtime_drop(p->rt, number, 0) < 0)
        log_error("kept layer %u: files of an import that failed are not removed", number);
    kept_settle(&p->kept, number, KEPT_NONE);
    return status;
}

static void end(struct privd *p, int status, const char *why)
{
    struct reply_to to = p->exchanger.requested;
    uint16_t op = p->exchanger.what.op;

    undo(p);
    if (is_import(p))
        status = settle_import(p, status);
    p->exchanger = (struct exchanger){.task = TASK_NONE, .source = LOOP_SOURCE_NONE};
    reply_reason(p, &to, op, status, why[0] || status == 0 ? why : strerror(-status));
}

static void end_exported(struct privd *p, const int *fds)
{
    struct privsep_msg m = {.op = PRIVSEP_EXPORT};
    struct reply_to to = p->exchanger.requested;

    p->exchanger = (struct exchanger){.task = TASK_NONE, .source = LOOP_SOURCE_NONE};
    if (to.seq != 0)
        (void)reply_send(p, &to, &m, fds, PRIVSEP_EXPORT_FDS);
    for (size_t i = 0; i < PRIVSEP_EXPORT_FDS; i++)
        close(fds[i]);
}

static void on_task(void *arg, uint32_t events)
{
    int fds[PRIVSEP_EXPORT_FDS];
    char why[TASK_WHY_SIZE] = "";
    struct privd *p = arg;

    loop_remove(&p->loop, &p->exchanger.source);
    int rc = is_import(p) ? runtime_import_finish(&p->exchanger.task, why)
                          : runtime_export_finish(&p->exchanger.task, fds, why);
    if (rc == -EAGAIN &&
        loop_add(&p->loop, &p->exchanger.source, p->exchanger.task.pidfd, on_task, p) == 0)
        return;
    if (rc == 0 && !is_import(p))
        end_exported(p, fds);
    else
        end(p, rc, why);
}

static int begin_task(struct privd *p)
{
    const struct privsep_msg *m = &p->exchanger.what;
    struct exchange_header h = {.level = kept_find(&p->kept, m->u.exchange.number)->level,
                                .cpu_milli = m->u.exchange.cpu_milli,
                                .memory_bytes = m->u.exchange.memory_bytes,
                                .disk_bytes = m->u.exchange.disk_bytes,
                                .made_real_ms = m->u.exchange.made_real_ms};
    int rc;

    memcpy(h.template_name, m->u.exchange.template_name, sizeof(h.template_name));
    memcpy(h.template_digest, m->u.exchange.template_digest, sizeof(h.template_digest));
    rc = is_import(p)
             ? runtime_import_begin(p->rt, m->u.exchange.number, m->u.exchange.template_number,
                                    p->kept.fd, &p->exchanger.task)
             : runtime_export_begin(p->rt, m->u.exchange.template_number, &h, &p->exchanger.task);
    return rc < 0 ? rc
                  : loop_add(&p->loop, &p->exchanger.source, p->exchanger.task.pidfd, on_task, p);
}

static void on_job(struct privd *p, uint32_t number, int status, const char *reason)
{
    int rc = status == 0 ? begin_task(p) : status;

    if (rc < 0)
        end(p, rc, status < 0 ? reason : "");
}

/* A refusal before anything was written has no end but its answer. */
static void begin(struct privd *p, const struct reply_to *to, const struct privsep_msg *m, int rc)
{
    if (rc == 0 && p->exchanger.number)
        rc = -EAGAIN;
    if (rc == 0 && (!runtime_can_keep(p->rt) || !p->options.seal))
        rc = -EOPNOTSUPP;
    if (rc == 0 && m->op == PRIVSEP_IMPORT) {
        struct kept_record r = {.number = m->u.exchange.number,
                                .state = KEPT_IMPORTING,
                                .slot = UINT32_MAX, /* no sandbox's */
                                .template_number = m->u.exchange.template_number,
                                .level = m->u.exchange.level,
                                .since_real_ms = clock_real_ms()};

        memcpy(r.owner, m->u.exchange.owner, sizeof(r.owner));
        rc = kept_write(&p->kept, &r);
    }
    if (rc < 0) {
        reply_reason(p, to, m->op, rc,
                     rc == -EAGAIN ? "another export or import is under way" : strerror(-rc));
        return;
    }
    p->exchanger = (struct exchanger){.number = m->u.exchange.number,
                                      .what = *m,
                                      .requested = *to,
                                      .task = TASK_NONE,
                                      .source = LOOP_SOURCE_NONE};
    rc = jobs_start(p, m->op == PRIVSEP_IMPORT ? JOB_IMPORT : JOB_EXPORT, m->u.exchange.number,
                    NULL, on_job);
    if (rc < 0)
        end(p, rc == -EBUSY ? -EAGAIN : rc, "other work is under way");
}

void exchange_export_requested(struct privd *p, const struct reply_to *to,
                               const struct privsep_msg *m)
{
    begin(
        p, to, m,
        keep_may_copy(p, m->u.exchange.number, m->u.exchange.owner, m->u.exchange.template_number));
}

void exchange_import_requested(struct privd *p, const struct reply_to *to,
                               const struct privsep_msg *m)
{
    int rc = kept_find(&p->kept, m->u.exchange.number)->state != KEPT_NONE ? -EEXIST : 0;

    if (rc == 0 && !template_find(p, m->u.exchange.template_number))
        rc = -ENOENT;
    begin(p, to, m, rc);
}

void exchange_stop(struct privd *p)
{
    struct exchanger *x = &p->exchanger;

    if (!x->number)
        return;
    x->requested = (struct reply_to){0};
    jobs_cancel(p, is_import(p) ? JOB_IMPORT : JOB_EXPORT, x->number);
}
