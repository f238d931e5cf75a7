/* Ends: asked for, by themselves, after a failed start, at a stop. All come through the same door:
 * kill, wait for PID 1 (the kernel has then ended the whole pid namespace), remove what is left. */
#include "privd/end.h"

#include "privd/command_sandbox.h"
#include "privd/egress.h"
#include "privd/pins.h"
#include "privd/unkilled.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/dump.h"
#include "privd/freeze.h"
#include "privd/jobs.h"
#include "privd/keep.h"
#include "privd/loop.h"
#include "privd/members.h"
#include "privd/pace.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/sandbox.h"
#include "privd/slots.h"
#include "privd/volume.h"
#include "privsep/server.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define KILL_AGAIN_MS    2000
#define RETRY_FIRST_MS   5
#define RETRY_SHIFT      8  /* at most RETRY_FIRST_MS << 8: 1.3 s */
#define RETRIES_REPORTED 30 /* then it is said that it does not go; it is still tried */
#define GATHER_MS        10 /* a task costs more than what it does for one */

static void clean_some(struct privd *p);

static int kill_by(const struct slot *s)
{
    struct runtime_sandbox sb = slots_sandbox(s);

    return s->driver->kill(s->privd->rt, &sb);
}

/* -- removing what is left --------------------------------------------------------------------- */

static void answer_killer(struct slot *s, int status)
{
    struct reply_to to = s->killer;

    s->killer = (struct reply_to){0};
    if (to.seq != 0) {
        struct privsep_msg m = {
            .op = PRIVSEP_KILL, .status = status, .slot = s->number, .gen = s->gen};

        (void)reply_send(s->privd, &to, &m, NULL, 0);
    }
}

static void answer_create(struct slot *s)
{
    if (!s->create)
        return;
    reply_status(s->privd, &s->create->reply_to, PRIVSEP_CREATE, s->failure, s->failure_stage);
    free(TAKE_PTR(s->create));
}

static void on_gathered(void *arg)
{
    clean_some(arg);
}

static void on_removed(void *arg, uint32_t events);

static void stop_when_all_are_gone(struct privd *p)
{
    if (!p->stopping)
        return;
    for (uint32_t i = 0; i < p->options.slots_max; i++)
        if (p->slots[i].state != SLOT_EMPTY)
            return;
    loop_stop(&p->loop);
}

static void gone(struct slot *s)
{
    struct privd *p = s->privd;

    s->pid = 0;
    slots_enter(p, s, SLOT_EMPTY);
    keep_slot_gone(s, 0);
    answer_create(s);
    slots_put_empty(p, s);
    if (p->stopping) {
        stop_when_all_are_gone(p);
        return;
    }
    sandbox_pump(p);
    slots_refill(p);
    jobs_sweep_if_idle(p);
}

static void on_retry(void *arg);

static void try_again(struct slot *s, int why)
{
    s->retries++;
    if (s->retries == RETRIES_REPORTED) {
        log_error("slot %u: its layer and cgroups cannot be %s: %s", s->number,
                  s->kept ? "kept" : "removed", strerror(-why));
        answer_create(s);
        keep_slot_waits(s);
    }
    if (why == -EBUSY)
        (void)kill_by(s);
    loop_arm(&s->privd->loop, &s->timer, (uint64_t)RETRY_FIRST_MS << MIN(s->retries, RETRY_SHIFT),
             on_retry, s);
}

static void put_ended(struct slot *s)
{
    struct cleaner *c = &s->privd->cleaner;

    if (unkilled_of(s->privd, s->number)) { /* it may be about to make what would be removed here */
        try_again(s, -EBUSY);
        return;
    }
    slots_list_put(&c->ended, s);
    /* A caller waits for what is kept; for one that is removed there is none. */
    if (s->privd->stopping || c->ended.n >= RUNTIME_ENDS_MAX || s->kept)
        clean_some(s->privd);
    else if (!loop_timer_armed(&c->timer))
        loop_arm(&s->privd->loop, &c->timer, GATHER_MS, on_gathered, s->privd);
}

static void on_retry(void *arg)
{
    put_ended(arg);
}

/* The task has ended, or there was none: what becomes of each. */
static void take_statuses(struct privd *p, int r)
{
    const struct cleaner done = p->cleaner; /* the next may begin below */

    p->cleaner.n = 0;
    for (unsigned i = 0; i < done.n; i++) {
        int status = r < 0 ? r : done.ends[i].status;

        if (status < 0 && !keep_slot_took_none(done.slots[i], status))
            try_again(done.slots[i], status);
        else
            gone(done.slots[i]);
    }
}

static int watch_cleaner(struct privd *p)
{
    return loop_add(&p->loop, &p->cleaner.source, p->cleaner.task.pidfd, on_removed, p);
}

static void on_removed(void *arg, uint32_t events)
{
    struct privd *p = arg;
    struct cleaner *c = &p->cleaner;
    int r;

    loop_remove(&p->loop, &c->source);
    r = c->driver->end_finish(p->rt, &c->task, c->ends, c->n);
    if (r == -EAGAIN && watch_cleaner(p) == 0)
        return;
    take_statuses(p, r);
    clean_some(p);
}

/* Only a dump that came to its end has left an image that is of use. An image of an earlier dump
 * goes back with its files, where a start from it has failed. */
static bool is_without_memory(const struct slot *s)
{
    return s->kept && s->privd->kept.all[s->kept].state == KEPT_KEEPING &&
           (s->keeper_op != PRIVSEP_DUMP || s->keeper_status < 0);
}

static bool was_to_take(const struct slot *s)
{
    return s->kept && s->privd->kept.all[s->kept].state == KEPT_TAKING;
}

/* Starts one task at a time, with all of one level that have ended meanwhile. */
static void clean_some(struct privd *p)
{
    struct cleaner *c = &p->cleaner;
    int r;

    if (c->n > 0 || c->ended.n == 0)
        return;
    loop_disarm(&p->loop, &c->timer);
    c->driver = c->ended.first->driver;
    while (c->n < RUNTIME_ENDS_MAX && c->ended.n > 0 && c->ended.first->driver == c->driver) {
        struct slot *s = slots_list_take(&c->ended);

        c->slots[c->n] = s;
        c->ends[c->n++] = (struct runtime_end){.number = s->number,
                                               .gen = s->gen,
                                               .keep = s->kept,
                                               .taken = was_to_take(s),
                                               .drop_image = is_without_memory(s),
                                               .records_fd = p->kept.fd,
                                               .sync = volume_any_writable(s->volumes)};
    }
    r = c->driver->end_begin(p->rt, c->ends, c->n, &c->task);
    if (r == 0)
        r = watch_cleaner(p);
    if (r < 0)
        take_statuses(p, r);
}

void end_hurry(struct privd *p)
{
    clean_some(p);
}

/* No process that is known lives any more: the requester of the kill gets to know. */
static void clean_up(struct slot *s)
{
    struct privd *p = s->privd;

    pace_cancel(&p->pace, &s->kill);
    loop_disarm(&p->loop, &s->timer);
    loop_remove(&p->loop, &s->pid_source);
    if (s->pidfd >= 0 && !s->paid)
        pace_note(&p->pace, clock_mono_ms(), s->kind.limits.filters);
    if (s->pidfd >= 0)
        pins_drop(p, &s->pin, s->driver->kill_cost(NULL, 1), s->paid);
    util_close(&s->pidfd);
    util_close(&s->boot_fd);
    s->driver->slot_close(&s->pooled);
    command_sandbox_forget_slot(s);
    egress_close(p, s);
    slots_enter(p, s, SLOT_ENDING);
    freeze_forget(s);
    resize_forget(s);
    answer_killer(s, 0);
    put_ended(s);
}

/* -- PID 1 ------------------------------------------------------------------------------------- */

static uint32_t cause_of(struct slot *s, const struct runtime_exit *e)
{
    struct runtime_sandbox sb = slots_sandbox(s);

    if (e->code == CLD_EXITED)
        return PRIVSEP_CAUSE_EXITED;
    if (e->status == SIGKILL && s->driver->was_oom(s->privd->rt, &sb))
        return PRIVSEP_CAUSE_OOM;
    return PRIVSEP_CAUSE_KILLED;
}

static void report_ended(struct slot *s, const struct runtime_exit *e)
{
    struct privsep_msg m = {.op = PRIVSEP_ENDED, .slot = s->number, .gen = s->gen};

    memcpy(m.u.ended.id, s->id, sizeof(m.u.ended.id));
    m.u.ended.cause = cause_of(s, e);
    m.u.ended.exit_status = e->status;
    log_info("sandbox %.*s, slot %u: PID 1 ended by itself (code %d, status %d)", PRIVSEP_ID_SIZE,
             s->id, s->number, e->code, e->status);
    (void)privsep_server_send(s->privd->server, 0, &m, NULL, 0);
}

static void on_pid(void *arg, uint32_t events)
{
    struct slot *s = arg;
    struct privd *p = s->privd;
    struct runtime_sandbox sb = slots_sandbox(s);
    struct runtime_exit how = {0};

    /* Its dump ends it, which the task tells in a moment; or it does not, and this comes again. */
    if (s->state == SLOT_DUMPING) {
        loop_remove(&p->loop, &s->pid_source);
        return;
    }
    if (s->driver->reap(&sb, &how) == -EAGAIN)
        return;
    if (permit_lives(s->state)) {
        p->n_sandboxes--;
        report_ended(s, &how);
    } else if (s->state == SLOT_PRESTARTED) {
        members_lost(p, s);
    }
    clean_up(s);
}

int end_watch(struct privd *p, struct slot *s)
{
    return loop_add(&p->loop, &s->pid_source, s->pidfd, on_pid, s);
}

/* -- killing ----------------------------------------------------------------------------------- */

static void on_still_alive(void *arg)
{
    struct slot *s = arg;

    log_warn("slot %u: PID 1 is still there, killed again", s->number);
    (void)kill_by(s);
    loop_arm(&s->privd->loop, &s->timer, KILL_AGAIN_MS, on_still_alive, s);
}

static void kill_now(void *arg)
{
    struct slot *s = arg;
    struct privd *p = s->privd;

    s->paid = true;
    (void)kill_by(s);
    if (s->pidfd < 0 || (s->pid_source.fd < 0 && end_watch(p, s) < 0)) {
        clean_up(s);
        return;
    }
    loop_arm(&p->loop, &s->timer, KILL_AGAIN_MS, on_still_alive, s);
}

/* At once, but for many at a time: then each in its turn (pace.h). Nothing else happens to a slot
 * that waits for it: no deadline, no ready byte; only PID 1 may end by itself. */
static void kill_it(struct slot *s)
{
    struct privd *p = s->privd;

    slots_enter(p, s, SLOT_KILLING);
    loop_disarm(&p->loop, &s->timer);
    freeze_forget(s);
    dump_forget(s);
    loop_remove(&p->loop, &s->boot_source);
    pace_request(&p->pace, &s->kill,
                 s->pidfd < 0 ? 0 : s->driver->kill_cost(&s->kind.limits, s->n_command_sandboxes),
                 kill_now, s);
}

void end_requested(struct privd *p, struct slot *s, const struct reply_to *to)
{
    /* A single caller waits; one whose connection is gone makes room. */
    if (s->killer.seq != 0 && s->killer.peer == privsep_server_peer(p->server)) {
        reply_status(p, to, PRIVSEP_KILL, -EALREADY, PRIVSEP_STAGE_NONE);
        return;
    }
    if (s->state == SLOT_ENDING) {
        s->killer = *to;
        answer_killer(s, 0);
        return;
    }
    s->killer = *to;
    if (permit_lives(s->state)) {
        p->n_sandboxes--;
        kill_it(s);
    }
}

void end_force(struct privd *p, struct slot *s)
{
    struct runtime_sandbox sb = slots_sandbox(s);

    if (s->state == SLOT_KILLING || s->state == SLOT_ENDING || s->state == SLOT_EMPTY)
        return;
    if (permit_lives(s->state))
        p->n_sandboxes--;
    if (s->task.pid > 0) {
        loop_remove(&p->loop, &s->task_source);
        (void)s->driver->thaw(p->rt, &sb); /* it may be in the slot's own control group */
        unkilled_add(p, s->number, task_cancel(&s->task));
    }
    kill_it(s);
}
