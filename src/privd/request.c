/* Requests of the peer: checked by permit.c, then given to the function that does it. A table has
 * them all. */
#include "privd/request.h"

#include "privd/command_sandbox.h"

#include "base/log.h"
#include "contract/checkpoint_boot.h"
#include "privd/archive.h"
#include "privd/bucket.h"
#include "privd/copy.h"
#include "privd/dump.h"
#include "privd/end.h"
#include "privd/freeze.h"
#include "privd/jobs.h"
#include "privd/keep.h"
#include "privd/list.h"
#include "privd/members.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/resize.h"
#include "privd/sandbox.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privd/volume.h"
#include "privsep/server.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* -- without a sandbox ------------------------------------------------------------------------- */

static void do_hello(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = PRIVSEP_HELLO, .u.hello.version = PRIVSEP_VERSION};

    if (m->u.hello.version != PRIVSEP_VERSION)
        r.status = -EPROTONOSUPPORT;
    r.u.hello.keeps = runtime_can_keep(p->rt);
    memcpy(r.u.hello.boot_id, p->boot_id, sizeof(r.u.hello.boot_id));
    (void)reply_send(p, to, &r, NULL, 0);
}

static void do_list(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    list_begin(p, to);
}

static void do_templates(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    reply_templates(p, to->peer);
    reply_status(p, to, PRIVSEP_TEMPLATES, 0, PRIVSEP_STAGE_NONE);
}

/* Rows of one template are one. */
static void report_pool(const struct privd *p, struct privsep_pool out[static PRIVSEP_POOL_ROWS])
{
    for (size_t i = 0; i < POOL_ROWS; i++) {
        const struct pool_row *row = &p->pool.rows[i];
        uint32_t number = row->kind.template_number;
        const struct pool_counts *n = &p->pool_counts[number];
        struct privsep_pool *to = out;

        if (!row->id)
            continue;
        while (to->template_number && to->template_number != number)
            to++;
        *to = (struct privsep_pool){.template_number = number,
                                    .ready = (uint16_t)(to->ready + row->ready),
                                    .target = (uint16_t)(to->target + row->target),
                                    .claims = n->claims,
                                    .misses = n->misses,
                                    .refills = n->refills};
    }
}

/* As it is now: CRIU may come and go while the server runs. */
static int may_keep_memory(const struct privd *p)
{
    if (!runtime_can_keep(p->rt) || !p->options.checkpoint || !p->options.seal)
        return -EOPNOTSUPP;
    CLEANUP_CLOSE int fd = open(CHECKPOINT_CRIU, O_PATH | O_CLOEXEC);
    return fd < 0 ? -ENOENT : 0;
}

static void do_capacity(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = PRIVSEP_CAPACITY};
    const char *name = runtime_disk_name(p->rt);

    r.u.capacity.slots_max = p->options.slots_max;
    r.u.capacity.slots_ready = p->ready.n + p->prestarted.n;
    r.u.capacity.sandboxes = p->n_sandboxes;
    r.u.capacity.memory = may_keep_memory(p);
    report_pool(p, r.u.capacity.pool);
    r.status = runtime_disk_space(p->rt, &r.u.capacity.disk_total_bytes,
                                  &r.u.capacity.disk_free_bytes);
    memcpy(r.u.capacity.disk_backend, name, strnlen(name, sizeof(r.u.capacity.disk_backend) - 1));
    (void)reply_send(p, to, &r, NULL, 0);
}

static int may_run_job(const struct privd *p, const struct privsep_msg *m)
{
    if (m->u.job.kind != PRIVSEP_JOB_TEMPLATE_REMOVE)
        return 0;
    if (!template_find(p, m->u.job.template_number))
        return -ENOENT;
    return template_in_use(p, m->u.job.template_number) ? -EBUSY : 0;
}

static void do_job(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    int r = may_run_job(p, m);

    if (r == 0)
        r = jobs_start(p, m->u.job.kind, m->u.job.template_number, to, NULL);
    if (r < 0)
        reply_status(p, to, PRIVSEP_JOB, r, PRIVSEP_STAGE_PERMIT);
}

/* Where it is just being archived this is EBUSY, and the peer asks again. */
static void do_drop(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    bool away = runtime_is_away(p->rt, m->u.kept.number);

    (void)archive_give_up(p, m);
    bucket_give_up(p, m);
    members_discard_kept(p, m->u.kept.number, m->u.kept.owner);
    keep_drop_requested(p, to, m);
    if (away)
        bucket_note_drop(p, m->u.kept.number);
}

/* -- with a sandbox ---------------------------------------------------------------------------- */

static void do_kill(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m)
{
    end_requested(p, s, to);
}

static void do_connect(struct privd *p, struct slot *s, const struct reply_to *to,
                       const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = PRIVSEP_CONNECT, .slot = s->number, .gen = s->gen};
    struct runtime_sandbox sb = slots_sandbox(s);
    int fds[PRIVSEP_MAX_FDS];
    unsigned n = m->u.connect.count;

    r.status = s->driver->sockets(p->rt, &sb, fds, n);
    (void)reply_send(p, to, &r, fds, r.status == 0 ? n : 0);
}

static void do_stat(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = PRIVSEP_STAT, .slot = s->number, .gen = s->gen};
    struct runtime_sandbox sb = slots_sandbox(s);
    struct runtime_stat st = {0};

    r.status = s->driver->stat(p->rt, &sb, &st);
    r.u.stat.memory_used_bytes = st.memory_used_bytes;
    r.u.stat.memory_limit_bytes = st.memory_limit_bytes;
    r.u.stat.memory_cache_bytes = st.memory_cache_bytes;
    r.u.stat.cpu_used_us = st.cpu_used_us;
    r.u.stat.disk_used_bytes = st.disk_used_bytes;
    r.u.stat.disk_limit_bytes = st.disk_limit_bytes;
    r.u.stat.cpu_milli = s->kind.limits.cpu_milli;
    r.u.stat.pids_used = st.pids_used;
    (void)reply_send(p, to, &r, NULL, 0);
}

/* -- distribution ------------------------------------------------------------------------------ */

static const struct {
    void (*plain)(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);
    void (*sandbox)(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m);
} handlers[PRIVSEP_REQUEST_COUNT] = {
    [PRIVSEP_HELLO] = {.plain = do_hello},
    [PRIVSEP_CREATE] = {.plain = sandbox_create},
    [PRIVSEP_KILL] = {.sandbox = do_kill},
    [PRIVSEP_CONNECT] = {.sandbox = do_connect},
    [PRIVSEP_STAT] = {.sandbox = do_stat},
    [PRIVSEP_LIST] = {.plain = do_list},
    [PRIVSEP_TEMPLATES] = {.plain = do_templates},
    [PRIVSEP_JOB] = {.plain = do_job},
    [PRIVSEP_CAPACITY] = {.plain = do_capacity},
    [PRIVSEP_COMMAND_SANDBOX] = {.sandbox = command_sandbox_make},
    [PRIVSEP_COMMAND_SANDBOX_END] = {.sandbox = command_sandbox_end_requested},
    [PRIVSEP_FREEZE] = {.sandbox = freeze_requested},
    [PRIVSEP_THAW] = {.sandbox = freeze_undo_requested},
    [PRIVSEP_KEEP] = {.sandbox = keep_requested},
    [PRIVSEP_DROP] = {.plain = do_drop},
    [PRIVSEP_KEPTS] = {.plain = keep_list_requested},
    [PRIVSEP_COPY] = {.sandbox = copy_requested},
    [PRIVSEP_VOLUME_MAKE] = {.plain = volume_make_requested},
    [PRIVSEP_VOLUME_REMOVE] = {.plain = volume_remove_requested},
    [PRIVSEP_VOLUMES] = {.plain = volume_list_requested},
    [PRIVSEP_RESIZE] = {.sandbox = resize_requested},
    [PRIVSEP_DUMP] = {.sandbox = dump_requested},
    [PRIVSEP_ARCHIVE] = {.plain = archive_requested},
    [PRIVSEP_ARCHIVE_STOP] = {.plain = archive_stop_requested},
    [PRIVSEP_FETCH] = {.plain = bucket_fetch_requested},
    [PRIVSEP_EXPORT] = {.plain = exchange_export_requested},
    [PRIVSEP_IMPORT] = {.plain = exchange_import_requested},
};
_Static_assert(PRIVSEP_REQUEST_COUNT == 28, "a new request: give it a handler");

void request_handle(void *privd, const struct privsep_msg *m)
{
    struct privd *p = privd;
    struct reply_to to = {privsep_server_peer(p->server), m->seq};
    int r = p->stopping ? -ESHUTDOWN : permit_fields(m, &p->bounds);
    struct slot *s = NULL;

    if (r == 0 && permit_needs_sandbox(m->op))
        s = slots_find(p, m, &r);
    if (r == 0 && !(s ? (void *)handlers[m->op].sandbox : (void *)handlers[m->op].plain))
        r = -EPROTO; /* permitted, but without a handler of its kind */
    if (r < 0) {
        struct privsep_msg refusal = {.op = m->op,
                                      .status = r,
                                      .stage = PRIVSEP_STAGE_PERMIT,
                                      .slot = m->slot,
                                      .gen = m->gen};

        log_debug("%s refused: %s", privsep_op_name(m->op), strerror(-r));
        (void)reply_send(p, &to, &refusal, NULL, 0);
        return;
    }
    if (s)
        handlers[m->op].sandbox(p, s, &to, m);
    else
        handlers[m->op].plain(p, &to, m);
}

/* No sandbox that runs ends with a peer: the next one lists them. */
void request_peer(void *privd, bool there)
{
    if (log_rate_allows(&((struct privd *)privd)->peer_log))
        log_info("cayd %s", there ? "has connected" : "has gone");
    if (there)
        return;
    command_sandbox_end_all(privd); /* their keys were the peer's alone */
    freeze_forget_all(privd);
    archive_stop(privd, 0); /* the next one may want to start what is being archived */
    bucket_stop_fetches(privd);
    exchange_stop(privd); /* the file was for its client */
    list_forget(privd);
    sandbox_forget_waiting(privd);
}
