/* CREATE: a slot, cay-init in it, its ready byte, the answer; or everything undone and why.
 * States of a create: waiting for a slot (in the order of coming, with a deadline), starting (a
 * task makes it, or a prepared one is claimed), booting (its socket is watched for the ready
 * byte), answered. Any failure or the deadline leads to end.c, which undoes all of it and then
 * answers. Called by request.c; slots_make.c calls sandbox_pump when a slot is ready. */
#include "privd/sandbox.h"

#include "privd/copy.h"
#include "privd/create_check.h"
#include "privd/egress.h"
#include "privd/pins.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/end.h"
#include "privd/keep.h"
#include "privd/list.h"
#include "privd/loop.h"
#include "privd/opened.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/restores.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privd/volume.h"
#include "runtime/runtime.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define START_PARALLEL   16
#define START_TIMEOUT_MS 20000 /* from the claim of a slot to the ready byte */
#define SLOT_TIMEOUT_MS  15000 /* for a slot to become free */

/* -- creates that wait for a slot -------------------------------------------------------------- */

/* A slot that is made ahead has neither. */
static bool is_of_its_own(const struct create_request *c)
{
    return c->kept || volume_any(c->volumes);
}

static void put_waiting(struct privd *p, struct create_request *c)
{
    c->next = NULL;
    if (p->waiting_last)
        p->waiting_last->next = c;
    else
        p->waiting_first = c;
    p->waiting_last = c;
    p->n_waiting++;
    p->n_waiting_pooled += !is_of_its_own(c);
}

static struct create_request *take_waiting(struct privd *p)
{
    struct create_request *c = p->waiting_first;

    if (!c)
        return NULL;
    p->waiting_first = c->next;
    if (!p->waiting_first)
        p->waiting_last = NULL;
    p->n_waiting--;
    p->n_waiting_pooled -= !is_of_its_own(c);
    loop_disarm(&p->loop, &c->timer);
    return c;
}

/* Whatever failed first: that nothing can be written is why, and what can be mended. */
static void blame_disk(const struct privd *p, int *status, uint32_t *stage)
{
    int trouble = runtime_disk_trouble(p->rt);

    if (trouble == 0)
        return;
    *status = trouble;
    *stage = PRIVSEP_STAGE_LAYER;
}

void sandbox_no_slot(struct privd *p, int status, uint32_t stage)
{
    struct create_request *c = take_waiting(p);

    if (!c)
        return;
    blame_disk(p, &status, &stage);
    reply_status(p, &c->reply_to, PRIVSEP_CREATE, status, stage);
    free(c);
}

void sandbox_forget_waiting(struct privd *p)
{
    for (struct create_request *c = take_waiting(p); c; c = take_waiting(p))
        free(c);
}

/* Timers are all of the same length, so it is always the oldest whose time is over. */
static void on_no_slot(void *arg)
{
    struct create_request *c = arg;

    sandbox_no_slot(c->privd, -ETIMEDOUT, PRIVSEP_STAGE_SLOT);
}

/* -- starting ---------------------------------------------------------------------------------- */

/* A start without a member, or that gives one its files, does not share the processors with the
 * making of others (slots_refill_later). */
static bool is_cold(const struct create_request *c)
{
    return (!c->claims || c->kept) && !c->memory;
}

static void start_ended(struct slot *s)
{
    struct privd *p = s->privd;

    p->n_starting--;
    p->n_cold -= is_cold(s->create);
    loop_disarm(&p->loop, &s->timer);
    loop_remove(&p->loop, &s->boot_source);
    util_close(&s->boot_fd);
}

/* The answer follows when everything is undone (end.c). */
static void start_failed(struct slot *s, int status, uint32_t stage)
{
    blame_disk(s->privd, &status, &stage);
    log_warn("sandbox %.*s, slot %u: not started: %s (%s)", PRIVSEP_ID_SIZE, s->id, s->number,
             strerror(-status), privsep_stage_name(stage));
    s->failure = status;
    s->failure_stage = stage;
    start_ended(s);
    end_force(s->privd, s);
    restores_group_end(s->privd, s->create);
    sandbox_pump(s->privd);
}

static void on_start_timeout(void *arg)
{
    start_failed(arg, -ETIMEDOUT, PRIVSEP_STAGE_READY);
}

/* It runs, and its requester is gone. Kept files that it took go back to their number (the record
 * still says so); but the memory that was beside them is what runs now, and is nowhere else: that
 * one lives on, and the next peer finds it in its list, or is told of it where it has listed
 * already. It is told before the number is free: the peer that asks for both never finds neither.
 * Test: test_restore_ends.py, "for a peer that is gone". */
static void started_alone(struct slot *s, bool has_all)
{
    struct privd *p = s->privd;

    log_info("sandbox %.*s, slot %u: %s, no peer is there to be notified", PRIVSEP_ID_SIZE, s->id,
             s->number, has_all ? "restored" : "ended");
    if (!has_all) {
        end_force(p, s);
        return;
    }
    list_report(p, s);
    keep_slot_runs(s);
}

static void started(struct slot *s)
{
    struct privd *p = s->privd;
    struct privsep_msg m = {.op = PRIVSEP_CREATE, .slot = s->number, .gen = s->gen};
    struct runtime_sandbox sb = slots_sandbox(s);
    const bool has_all = s->create->memory && !s->create->copy;
    int fds[PRIVSEP_CREATE_SOCKETS];
    unsigned n_fds = 0;
    int r;

    s->started_real_ms = clock_real_ms();
    r = end_watch(p, s);
    if (r < 0) {
        start_failed(s, r, PRIVSEP_STAGE_READY);
        return;
    }
    start_ended(s);
    slots_enter(p, s, SLOT_RUNNING);
    p->n_sandboxes++;
    m.u.created.template_number = s->kind.template_number;
    m.u.created.started_real_ms = s->started_real_ms;
    /* The requester speaks to the agent next; without them it asks with CONNECT. */
    if (s->driver->sockets(p->rt, &sb, fds, ARRAY_SIZE(fds)) == 0)
        n_fds = ARRAY_SIZE(fds);
    r = reply_send(p, &s->create->reply_to, &m, fds, n_fds);
    restores_group_end(p, s->create);
    free(TAKE_PTR(s->create));
    if (r < 0)
        started_alone(s, has_all);
    else
        keep_slot_runs(s);
    sandbox_pump(p);
}

/* Output of a sandbox's own program is logged as untrusted text. */
static void log_agent_failure(const struct slot *s, char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isprint((unsigned char)text[i]))
            text[i] = text[i] ? '?' : ' ';
    log_warn("slot %u: cay-init: %.*s", s->number, (int)n, text);
}

static void on_boot(void *arg, uint32_t events)
{
    struct slot *s = arg;
    char text[256];
    ssize_t n = read(s->boot_fd, text, sizeof(text));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && text[0] == AGENT_READY) {
        started(s);
        return;
    }
    if (n > 1 && text[0] == AGENT_FAILED)
        log_agent_failure(s, text + 1, (size_t)n - 1);
    start_failed(s, n > 0 ? -EIO : -ECHILD, PRIVSEP_STAGE_READY);
}

/* cay-init runs or is about to: it gets to know whose it is. */
static void claim(struct slot *s)
{
    struct privd *p = s->privd;
    struct runtime_sandbox sb = slots_sandbox(s);
    int r;

    egress_open(p, s); /* before anything of a tenant runs: see privd/egress.h */
    r = s->driver->claim(p->rt, &sb, s->boot_fd, &s->create->claim);
    if (r == 0 && s->create->memory) /* all of it stands still until now */
        r = s->driver->thaw(p->rt, &sb);

    explicit_bzero(s->create->claim.key, sizeof(s->create->claim.key));
    if (r == 0)
        r = loop_add(&p->loop, &s->boot_source, s->boot_fd, on_boot, s);
    if (r < 0)
        start_failed(s, r, PRIVSEP_STAGE_READY);
}

static void on_start(void *arg, uint32_t events)
{
    struct slot *s = arg;
    struct privd *p = s->privd;
    struct runtime_started started_as = {
        .pidfd = -1, .listener_fd = -1, .opened = RUNTIME_OPENED_NONE};
    struct runtime_image image;
    uint32_t stage = PRIVSEP_STAGE_NAMESPACES;
    int r;

    loop_remove(&p->loop, &s->task_source);
    r = s->driver->start_finish(p->rt, &s->task, &started_as, &stage);
    if (r == -EAGAIN && slots_watch_task(s, on_start) == 0)
        return;
    s->driver->slot_close(&s->pooled);
    if (r == 0 && s->create->memory && started_as.opened.fd >= 0)
        opened_put(p, s->create->kept, restores_image(p, &s->kind, s->create->kept, &image),
                   &started_as.opened);
    if (r < 0) {
        start_failed(s, r, stage);
        return;
    }
    s->pid = started_as.pid;
    s->pidfd = started_as.pidfd;
    if (started_as.listener_fd >= 0)
        pins_take_fd(s, started_as.listener_fd);
    else
        pins_take_slot(s);
    claim(s);
}

/* Its template, limits and kept files, as any start has them. */
static struct runtime_start start_of(const struct privd *p, const struct slot *s)
{
    const struct create_request *c = s->create;

    return (struct runtime_start){.template_number = s->kind.template_number,
                                  .limits = s->kind.limits,
                                  .kept = c->kept,
                                  .copy = c->copy,
                                  .last = c->last,
                                  .ahead = c->copy ? copy_ahead(p, c->kept) : 0,
                                  .records_fd = p->kept.fd};
}

static int start_cold(struct privd *p, struct slot *s)
{
    struct runtime_start start = start_of(p, s);
    struct runtime_image image;
    int fds[IMAGE_GROUP_FDS], n = 0;

    if (s->create->memory) {
        start.image = restores_image(p, &s->kind, s->create->kept, &image);
        n = restores_group_begin(p, s->create, image.memory_bytes, fds);
        start.opened = start.copy ? opened_get(p, start.kept, &image) : RUNTIME_OPENED_NONE;
        start.image_join_fds = fds;
        start.n_image_join_fds = n;
    }
    if (n < 0)
        return n;
    memcpy(start.volumes, s->volumes, sizeof(start.volumes));
    volume_sizes(p, s->volumes, start.volume_bytes);
    int r = s->driver->start_begin(p->rt, &s->pooled, &start, &s->task, &s->boot_fd);

    for (int i = 0; i < n; i++)
        util_close(&fds[i]);
    return r == 0 ? slots_watch_task(s, on_start) : r;
}

static void on_files(void *arg, uint32_t events)
{
    struct slot *s = arg;
    uint32_t stage = PRIVSEP_STAGE_NAMESPACES;
    int r;

    loop_remove(&s->privd->loop, &s->task_source);
    r = s->driver->files_finish(s->privd->rt, &s->task, &stage);
    if (r == -EAGAIN && slots_watch_task(s, on_files) == 0)
        return;
    if (r < 0)
        start_failed(s, r, stage);
    else
        claim(s);
}

/* Of a member: before it is told whose it is. */
static int give_files(struct privd *p, struct slot *s)
{
    const struct runtime_start start = start_of(p, s);
    const struct runtime_sandbox sb = slots_sandbox(s);
    int r = s->driver->files_begin(p->rt, &sb, s->pid, &start, &s->task);

    return r == 0 ? slots_watch_task(s, on_files) : r;
}

/* Takes c over. */
static void start(struct privd *p, struct slot *s, struct create_request *c)
{
    int r;

    s->create = c;
    memcpy(s->id, c->claim.id, sizeof(s->id));
    memcpy(s->volumes, c->volumes, sizeof(s->volumes));
    s->kind = c->kind;
    s->on_archive = c->on_archive;
    s->account = c->account;
    s->started_real_ms = clock_real_ms();
    c->claims = s->pid > 0;
    p->n_starting++;
    p->n_cold += is_cold(c);
    slots_enter(p, s, SLOT_STARTING);
    loop_arm(&p->loop, &s->timer, c->memory ? RESTORE_TIMEOUT_MS : START_TIMEOUT_MS,
             on_start_timeout, s);
    r = c->kept && !c->copy ? keep_take(s, c->kept) : 0;
    if (r < 0) {
        start_failed(s, r, PRIVSEP_STAGE_LAYER);
        return;
    }
    if (s->pid > 0) /* until it is ready its boot socket tells of its end */
        loop_remove(&p->loop, &s->pid_source);
    if (s->pid > 0 && (!c->kept || c->memory)) {
        claim(s);
        return;
    }
    r = s->pid > 0 ? give_files(p, s) : start_cold(p, s);
    if (r < 0)
        start_failed(s, r, PRIVSEP_STAGE_NAMESPACES);
}

/* A copy takes the place of the empty layer of a prepared slot. Kept files that are taken do not:
 * until their record says otherwise they must be found as they were, and by no other layer's
 * name. Nor do many creates at once: to make a slot and then start in it costs more than a whole
 * start, which one alone does not have to wait for. */
static bool may_use_prepared(const struct privd *p, const struct create_request *c)
{
    return c->kept && c->copy && !c->memory && !volume_any(c->volumes) &&
           c->kind.level == p->pool_level && p->n_starting == 0 && p->n_waiting == 1;
}

/* A member that was started because this create waited is a miss, too. */
static void count(struct privd *p, const struct slot *s, const struct create_request *c)
{
    struct pool_counts *n = &p->pool_counts[c->kind.template_number];

    if (c->may_claim && s->pid > 0 && !c->has_waited)
        n->claims++;
    else if (c->may_claim)
        n->misses++;
}

static struct slot *take_slot(struct privd *p, const struct create_request *c)
{
    struct slot *s = c->may_claim && c->kept ? slots_take_member(p, &c->kind) : NULL;

    if (s)
        return s;
    s = may_use_prepared(p, c) ? slots_list_take(&p->ready) : NULL;
    if (s)
        return s;
    return is_of_its_own(c) ? slots_take_unpooled(p, c->kind.level)
                            : slots_take_ready(p, &c->kind, c->may_claim);
}

uint32_t sandbox_need_slots(const struct privd *p)
{
    return p->n_starting < START_PARALLEL ? p->n_waiting_pooled : 0;
}

void sandbox_pump(struct privd *p)
{
    while (!p->stopping && p->n_waiting > 0 && p->n_starting < START_PARALLEL) {
        struct slot *s = take_slot(p, p->waiting_first);
        struct create_request *c = s ? take_waiting(p) : NULL;

        if (!c)
            break;
        count(p, s, c);
        start(p, s, c);
    }
}

/* -- the request ------------------------------------------------------------------------------- */

void sandbox_create(struct privd *p, const struct reply_to *to, const struct privsep_msg *m)
{
    struct privsep_msg refusal = {.op = PRIVSEP_CREATE};
    struct create_request *c;

    refusal.status = create_check(p, m, &refusal.stage, refusal.u.refused.why);
    if (refusal.status < 0) {
        (void)reply_send(p, to, &refusal, NULL, 0);
        return;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        reply_status(p, to, PRIVSEP_CREATE, -ENOMEM, PRIVSEP_STAGE_SLOT);
        return;
    }
    c->privd = p;
    c->reply_to = *to;
    c->kind = (struct slot_kind){.template_number = m->u.create.template_number,
                                 .level = m->u.create.level,
                                 .limits = m->u.create.limits};
    memcpy(c->claim.id, m->u.create.id, sizeof(c->claim.id));
    memcpy(c->claim.key, m->u.create.key, sizeof(c->claim.key));
    c->kept = m->u.create.kept;
    c->copy = m->u.create.flags & PRIVSEP_CREATE_COPY;
    c->last = m->u.create.flags & PRIVSEP_CREATE_LAST;
    c->memory = m->u.create.flags & PRIVSEP_CREATE_MEMORY;
    c->account = m->u.create.account;
    c->on_archive = c->kept && runtime_is_archived(p->rt, c->kept);
    memcpy(c->volumes, m->u.create.volumes, sizeof(c->volumes));
    c->may_claim = c->kind.level == p->pool_level && pool_may_claim(m) &&
                   (c->memory || !c->on_archive);
    if (c->may_claim)
        c->kind = pool_kind(m);
    if (c->may_claim)
        pool_note(&p->pool, &c->kind, clock_mono_ms());
    put_waiting(p, c);
    loop_arm(&p->loop, &c->timer, SLOT_TIMEOUT_MS, on_no_slot, c);
    sandbox_pump(p);
    if (p->waiting_last) /* the newest, if any: they are taken in their order */
        p->waiting_last->has_waited = true;
    slots_refill_later(p);
}
