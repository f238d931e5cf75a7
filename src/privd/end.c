/* Ends: asked for, by themselves, after a failed start, at a stop. All come through the same door:
 * kill, wait for PID 1 (the kernel has then ended the whole pid namespace), remove what is left. */
#include "privd/privd.h"

#include "base/log.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#define KILL_AGAIN_MS    2000
#define RETRY_FIRST_MS   5
#define RETRY_SHIFT      8  /* at most RETRY_FIRST_MS << 8: 1.3 s */
#define RETRIES_REPORTED 30 /* then who asked is told that it does not go; it is still tried */

static void clean_up(struct slot *s);

/* -- removing what is left --------------------------------------------------------------------- */

static void answer_killer(struct slot *s, int status)
{
    struct asker who = s->killer;

    s->killer = (struct asker){0};
    if (who.seq != 0) {
        struct privsep_msg m = {
            .op = PRIVSEP_KILL, .status = status, .slot = s->number, .gen = s->gen};

        (void)request_reply(s->privd, &who, &m, NULL, 0);
    }
}

static void answer_create(struct slot *s)
{
    if (!s->create)
        return;
    request_reply_status(s->privd, &s->create->asker, PRIVSEP_CREATE, s->failure, s->failure_stage);
    free(TAKE_PTR(s->create));
}

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
    answer_killer(s, 0);
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

static void on_retry(void *arg)
{
    clean_up(arg);
}

static void try_again(struct slot *s, int why)
{
    s->retries++;
    if (s->retries == RETRIES_REPORTED) {
        log_error("slot %u: what is left of it cannot be removed: %s", s->number, strerror(-why));
        answer_killer(s, why);
        answer_create(s);
    }
    if (why == -EBUSY)
        (void)runtime_kill(s->privd->rt, s->number, -1);
    loop_arm(&s->privd->loop, &s->timer, (uint64_t)RETRY_FIRST_MS << MIN(s->retries, RETRY_SHIFT),
             on_retry, s);
}

static void on_removed(void *arg, uint32_t events)
{
    struct slot *s = arg;
    struct privd *p = s->privd;
    int r;

    loop_remove(&p->loop, &s->task_source);
    r = p->driver->end_finish(p->rt, &s->task);
    if (r == -EAGAIN && slots_watch_task(s, on_removed) == 0)
        return;
    if (r < 0)
        try_again(s, r);
    else
        gone(s);
}

/* No process that is known lives any more. */
static void clean_up(struct slot *s)
{
    struct privd *p = s->privd;
    int r;

    loop_disarm(&p->loop, &s->timer);
    loop_remove(&p->loop, &s->pid_source);
    util_close(&s->pidfd);
    util_close(&s->boot_fd);
    runtime_slot_close(&s->pooled);
    if (s->state != SLOT_ENDING)
        slots_enter(p, s, SLOT_ENDING);
    r = p->driver->end_begin(p->rt, s->number, s->gen, &s->task);
    if (r == 0)
        r = slots_watch_task(s, on_removed);
    if (r < 0)
        try_again(s, r);
}

/* -- PID 1 ------------------------------------------------------------------------------------- */

static uint32_t cause_of(struct slot *s, const struct runtime_exit *e)
{
    if (e->code == CLD_EXITED)
        return PRIVSEP_CAUSE_EXITED;
    if (e->status == SIGKILL && runtime_was_oom(s->privd->rt, s->number))
        return PRIVSEP_CAUSE_OOM;
    return PRIVSEP_CAUSE_KILLED;
}

static void tell_ended(struct slot *s, const struct runtime_exit *e)
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
    struct runtime_exit how = {0};

    if (runtime_reap(s->pidfd, &how) == -EAGAIN)
        return;
    if (s->state == SLOT_RUNNING) {
        p->n_sandboxes--;
        tell_ended(s, &how);
    } else if (s->state == SLOT_READY) {
        slots_lose_warm(p, s);
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
    (void)runtime_kill(s->privd->rt, s->number, s->pidfd);
    loop_arm(&s->privd->loop, &s->timer, KILL_AGAIN_MS, on_still_alive, s);
}

static void kill_it(struct slot *s)
{
    struct privd *p = s->privd;

    slots_enter(p, s, SLOT_KILLING);
    (void)runtime_kill(p->rt, s->number, s->pidfd);
    if (s->pidfd < 0 || (s->pid_source.fd < 0 && end_watch(p, s) < 0)) {
        clean_up(s);
        return;
    }
    loop_arm(&p->loop, &s->timer, KILL_AGAIN_MS, on_still_alive, s);
}

void end_asked(struct privd *p, struct slot *s, const struct asker *who)
{
    /* One waits at a time; one whose connection is gone makes room. */
    if (s->killer.seq != 0 && s->killer.peer == privsep_server_peer(p->server)) {
        request_reply_status(p, who, PRIVSEP_KILL, -EALREADY, PRIVSEP_STAGE_NONE);
        return;
    }
    s->killer = *who;
    if (s->state == SLOT_RUNNING) {
        p->n_sandboxes--;
        kill_it(s);
    }
}

void end_force(struct privd *p, struct slot *s)
{
    if (s->state == SLOT_KILLING || s->state == SLOT_ENDING || s->state == SLOT_EMPTY)
        return;
    if (s->state == SLOT_RUNNING)
        p->n_sandboxes--;
    if (s->task.pid > 0) {
        loop_remove(&p->loop, &s->task_source);
        task_cancel(&s->task);
    }
    kill_it(s);
}
