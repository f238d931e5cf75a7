/* States of one: a task makes it (starting), its cay-init runs and its listeners are made
 * (claimed), its first byte has come (ready, answered), ending (killed, waited for), gone. A
 * failure or the end of time in any state leads to ending; where the task itself is stopped by
 * the tenant, it is given up and ends with the sandbox. Called by request.c (made, ended),
 * end.c (with its slot) and the end of a peer. All callbacks run in privd's one loop; none
 * waits. */

#include "privd/command_sandbox.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/egress.h"
#include "privd/loop.h"
#include "privd/pace.h"
#include "privd/pins.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/slots.h"
#include "privd/unkilled.h"
#include "runtime/runtime.h"
#include "sys/pid.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define START_TIMEOUT_MS 10000
#define START_USUAL_MS   500 /* one that takes longer may lose its place to another sandbox's */

static struct runtime_sandbox command_sandbox_parent(const struct command_sandbox *r)
{
    return (struct runtime_sandbox){.slot = r->slot_number, .gen = r->gen, .pidfd = r->pidfd};
}

/* -- answers ----------------------------------------------------------------------------------- */

static void answer_maker(struct command_sandbox *r, int status, uint32_t stage)
{
    struct privsep_msg m = {.op = PRIVSEP_COMMAND_SANDBOX,
                            .slot = r->slot_number,
                            .gen = r->gen,
                            .status = status,
                            .stage = stage};
    struct reply_to to = r->maker;

    r->maker = (struct reply_to){0};
    if (to.seq != 0)
        (void)reply_send(r->privd, &to, &m, NULL, 0);
}

static void answer_ender(struct command_sandbox *r, const struct reply_to *to, int status)
{
    struct privsep_msg m = {
        .op = PRIVSEP_COMMAND_SANDBOX_END, .slot = r->slot_number, .gen = r->gen, .status = status};

    m.u.command_sandbox.number = r->number;
    if (to->seq != 0)
        (void)reply_send(r->privd, to, &m, NULL, 0);
}

/* -- those that are being made ----------------------------------------------------------------- */

/* A tenant can stop the making of a command sandbox (until the task's own time is over:
 * runtime/command_sandbox.c), and so hold places. No sandbox has more of them than it may have
 * command sandboxes, and where all are taken a sandbox with fewer gets one of another's that takes
 * longer than is usual. */

static void enter_starting(struct command_sandbox *r)
{
    r->privd->command_sandboxes_starting[r->privd->n_command_sandboxes_starting++] = r;
    r->starting = true;
    r->begun_ms = clock_mono_ms();
}

static void leave_starting(struct command_sandbox *r)
{
    struct privd *p = r->privd;
    uint32_t i = 0;

    if (!r->starting)
        return;
    r->starting = false;
    while (p->command_sandboxes_starting[i] != r)
        i++;
    for (p->n_command_sandboxes_starting--; i < p->n_command_sandboxes_starting; i++)
        p->command_sandboxes_starting[i] = p->command_sandboxes_starting[i + 1];
}

static uint32_t starting_of(const struct privd *p, uint32_t slot_number)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_command_sandboxes_starting; i++)
        n += p->command_sandboxes_starting[i]->slot_number == slot_number;
    return n;
}

/* The oldest of the sandbox that has most, of those that take long; NULL: none. They are in the
 * order of their age. */
static struct command_sandbox *slowest(const struct privd *p, uint32_t more_than)
{
    struct command_sandbox *found = NULL;

    for (uint32_t i = 0; i < p->n_command_sandboxes_starting; i++) {
        struct command_sandbox *r = p->command_sandboxes_starting[i];
        uint32_t n = starting_of(p, r->slot_number);

        if (n > more_than && clock_mono_ms() - r->begun_ms >= START_USUAL_MS) {
            found = r;
            more_than = n;
        }
    }
    return found;
}

/* -- its end ----------------------------------------------------------------------------------- */

static void leave_slot(struct command_sandbox *r)
{
    struct command_sandbox **at = r->slot ? &r->slot->command_sandboxes
                                          : &r->privd->command_sandboxes_left;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (r->slot)
        r->slot->n_command_sandboxes--;
    r->slot = NULL;
}

static void unwatch(struct command_sandbox *r)
{
    struct privd *p = r->privd;

    loop_disarm(&p->loop, &r->timer);
    pace_cancel(&p->pace, &r->kill);
    loop_remove(&p->loop, &r->task_source);
    loop_remove(&p->loop, &r->pid_source);
    loop_remove(&p->loop, &r->boot_source);
}

/* No process of it lives, and no task works on it. */
static void gone(struct command_sandbox *r)
{
    struct privd *p = r->privd;

    leave_starting(r);
    unwatch(r);
    pins_drop(p, &r->pin, r->driver->kill_cost(NULL, 1), r->paid);
    util_close(&r->pidfd);
    util_close(&r->boot_fd);
    egress_close_command_sandbox(p, r);
    leave_slot(r);
    explicit_bzero(&r->claim, sizeof(r->claim));
    answer_maker(r, -ECHILD, PRIVSEP_STAGE_READY);
    answer_ender(r, &r->ender, 0);
    free(r);
}

static void on_pid(void *arg, uint32_t events)
{
    struct command_sandbox *r = arg;
    struct runtime_sandbox self = command_sandbox_parent(r);
    struct runtime_exit how;

    /* It is the child of the sandbox's own PID 1, which reaps it: only whether it has ended is to
     * be known. */
    if (r->driver->reap(&self, &how) != -EAGAIN)
        gone(r);
}

static void kill_now(void *arg)
{
    struct command_sandbox *r = arg;
    struct runtime_sandbox self = command_sandbox_parent(r);

    r->paid = true;
    (void)r->driver->command_sandbox_kill(&self);
}

/* In its turn, when many end together (pace.h). While a task still works on it, on_made goes on
 * from here. */
static void end_command_sandbox(struct command_sandbox *r)
{
    r->ending = true;
    if (r->pidfd >= 0)
        pace_request(&r->privd->pace, &r->kill, r->driver->kill_cost(NULL, 1), kill_now, r);
}

static void fail(struct command_sandbox *r, int status, uint32_t stage)
{
    if (log_rate_allows(&r->privd->command_sandbox_log))
        log_warn("slot %u: no command sandbox: %s (%s)", r->slot_number, strerror(-status),
                 privsep_stage_name(stage));
    answer_maker(r, status, stage);
    end_command_sandbox(r);
}

/* The task was killed. Processes that it began inside are in its sandbox's own control group, and
 * end with it at the latest (command_sandboxes_kill_unfinished: now). */
static void on_task_ended(void *arg, uint32_t events)
{
    struct command_sandbox *r = arg;

    loop_remove(&r->privd->loop, &r->task_source);
    unkilled_add(r->privd, r->slot_number, task_cancel(&r->task));
    if (r->slot)
        r->driver->command_sandboxes_kill_unfinished(r->privd->rt, r->slot_number);
    gone(r);
}

/* Its time is over. Where its task still works that is not waited for, and counts for its sandbox
 * alone. */
static void give_up(struct command_sandbox *r)
{
    struct loop *l = &r->privd->loop;

    fail(r, -ETIMEDOUT, PRIVSEP_STAGE_READY);
    leave_starting(r);
    if (r->task.pidfd < 0)
        return;
    (void)pid_kill(r->task.pidfd, SIGKILL);
    loop_remove(l, &r->task_source);
    if (loop_add(l, &r->task_source, r->task.pidfd, on_task_ended, r) < 0)
        on_task_ended(r, 0);
}

/* -- its start --------------------------------------------------------------------------------- */

static void on_timeout(void *arg)
{
    give_up(arg);
}

static void ready(struct command_sandbox *r)
{
    struct privd *p = r->privd;
    struct privsep_msg m = {.op = PRIVSEP_COMMAND_SANDBOX, .slot = r->slot_number, .gen = r->gen};
    struct reply_to to = r->maker;
    int fds[PRIVSEP_COMMAND_SANDBOX_SOCKETS];
    struct runtime_sandbox self = command_sandbox_parent(r);
    int rc = r->driver->sockets(p->rt, &self, fds, ARRAY_SIZE(fds));

    loop_disarm(&p->loop, &r->timer);
    loop_remove(&p->loop, &r->boot_source);
    util_close(&r->boot_fd);
    if (rc < 0) {
        fail(r, rc, PRIVSEP_STAGE_READY);
        return;
    }
    r->maker = (struct reply_to){0};
    m.u.command_sandbox.number = r->number;
    if (reply_send(p, &to, &m, fds, ARRAY_SIZE(fds)) < 0)
        end_command_sandbox(r); /* no peer knows of it */
}

/* The first byte is all that is believed; what else it says is not looked at. */
static void on_boot(void *arg, uint32_t events)
{
    struct command_sandbox *r = arg;
    char byte;
    ssize_t n = read(r->boot_fd, &byte, 1);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && byte == AGENT_READY && !r->ending) {
        ready(r);
        return;
    }
    loop_remove(&r->privd->loop, &r->boot_source);
    fail(r, n == 1 ? -EIO : -ECHILD, PRIVSEP_STAGE_READY);
}

/* cay-init runs and waits: its listeners come first, so that no process in it can have their
 * ports. */
static int claim(struct command_sandbox *r)
{
    struct privd *p = r->privd;
    struct runtime_sandbox self = command_sandbox_parent(r);
    int rc;

    egress_open_command_sandbox(p, r);
    rc = r->driver->claim(p->rt, &self, r->boot_fd, &r->claim);
    explicit_bzero(&r->claim, sizeof(r->claim));
    return rc < 0 ? rc : loop_add(&p->loop, &r->boot_source, r->boot_fd, on_boot, r);
}

static void take_pin(struct command_sandbox *r)
{
    struct runtime_sandbox self = command_sandbox_parent(r);

    r->pin = pins_take(r->privd, r->driver, &self);
}

static void on_made(void *arg, uint32_t events)
{
    struct command_sandbox *r = arg;
    struct privd *p = r->privd;
    struct runtime_started as = {.pidfd = -1};
    uint32_t stage = PRIVSEP_STAGE_NAMESPACES;
    int rc;

    loop_remove(&p->loop, &r->task_source);
    rc = r->driver->command_sandbox_finish(p->rt, &r->task, &as, &stage);
    if (rc == -EAGAIN && loop_add(&p->loop, &r->task_source, r->task.pidfd, on_made, r) == 0)
        return;
    leave_starting(r);
    r->pidfd = as.pidfd;
    if (rc == 0)
        take_pin(r);
    if (rc == 0)
        rc = loop_add(&p->loop, &r->pid_source, r->pidfd, on_pid, r);
    if (rc == 0 && !r->ending && r->slot)
        rc = claim(r);
    else if (rc == 0)
        end_command_sandbox(r);
    if (rc < 0)
        fail(r, rc, stage);
    if (r->pid_source.fd < 0)
        gone(r); /* there is nothing to wait for */
}

static int begin(struct command_sandbox *r)
{
    struct runtime_sandbox sb = slots_sandbox(r->slot);
    struct privd *p = r->privd;
    int rc = r->driver->command_sandbox_begin(p->rt, &sb, r->slot->kind.limits.open_files, &r->task,
                                              &r->boot_fd);

    if (rc < 0)
        return rc;
    rc = loop_add(&p->loop, &r->task_source, r->task.pidfd, on_made, r);
    if (rc < 0)
        unkilled_add(p, r->slot_number, task_cancel(&r->task)); /* memory is out */
    return rc;
}

static struct command_sandbox *new_command_sandbox(struct privd *p, struct slot *s,
                                                   const struct reply_to *to,
                                                   const struct privsep_msg *m)
{
    struct command_sandbox *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    *r = (struct command_sandbox){.privd = p,
                                  .slot = s,
                                  .driver = s->driver,
                                  .slot_number = s->number,
                                  .gen = s->gen,
                                  .number = ++s->last_command_sandbox,
                                  .task = TASK_NONE,
                                  .task_source = LOOP_SOURCE_NONE,
                                  .pidfd = -1,
                                  .pin = -1,
                                  .pid_source = LOOP_SOURCE_NONE,
                                  .boot_fd = -1,
                                  .boot_source = LOOP_SOURCE_NONE,
                                  .maker = *to,
                                  .egress_fds = {-1, -1},
                                  .next = s->command_sandboxes};
    memcpy(r->claim.id, s->id, sizeof(r->claim.id));
    memcpy(r->claim.key, m->u.command_sandbox.key, sizeof(r->claim.key));
    s->command_sandboxes = r;
    s->n_command_sandboxes++;
    return r;
}

void command_sandbox_make(struct privd *p, struct slot *s, const struct reply_to *to,
                          const struct privsep_msg *m)
{
    struct command_sandbox *r;
    int rc = s->n_command_sandboxes >= PRIVSEP_COMMAND_SANDBOXES_MAX             ? -EMFILE
             : s->last_command_sandbox == UINT32_MAX                             ? -ERANGE
             : p->n_command_sandboxes_starting >= COMMAND_SANDBOXES_STARTING_MAX ? -EAGAIN
                                                                                 : 0;

    if (rc == -EAGAIN && (r = slowest(p, starting_of(p, s->number))) != NULL) {
        give_up(r);
        rc = 0;
    }
    r = rc == 0 ? new_command_sandbox(p, s, to, m) : NULL;
    if (!r) {
        reply_status(p, to, PRIVSEP_COMMAND_SANDBOX, rc ? rc : -ENOMEM, PRIVSEP_STAGE_SLOT);
        return;
    }
    enter_starting(r);
    loop_arm(&p->loop, &r->timer, START_TIMEOUT_MS, on_timeout, r);
    rc = begin(r);
    if (rc < 0) {
        answer_maker(r, rc, PRIVSEP_STAGE_NAMESPACES);
        gone(r);
    }
}

/* -- asked to ---------------------------------------------------------------------------------- */

void command_sandbox_end_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                                   const struct privsep_msg *m)
{
    struct command_sandbox *r = s->command_sandboxes;

    while (r && r->number != m->u.command_sandbox.number)
        r = r->next;
    if (!r || r->ender.seq != 0) {
        reply_status(p, to, PRIVSEP_COMMAND_SANDBOX_END, r ? -EALREADY : -ENOENT,
                     PRIVSEP_STAGE_NONE);
        return;
    }
    r->ender = *to;
    end_command_sandbox(r);
}

void command_sandbox_forget_slot(struct slot *s)
{
    while (s->command_sandboxes) {
        struct command_sandbox *r = s->command_sandboxes;

        leave_slot(r);
        r->next = s->privd->command_sandboxes_left;
        s->privd->command_sandboxes_left = r;
        r->ending = true; /* its processes have ended with the sandbox, whose turn was for both */
        if (r->pidfd >= 0)
            kill_now(r);
        r->paid = s->paid;
    }
    s->last_command_sandbox = 0;
}

void command_sandbox_end_all(struct privd *p)
{
    for (uint32_t i = 0; i < p->options.slots_max; i++)
        for (struct command_sandbox *r = p->slots[i].command_sandboxes; r; r = r->next)
            end_command_sandbox(r);
}

static void free_list(struct command_sandbox **list)
{
    while (*list) {
        struct command_sandbox *r = *list;

        unwatch(r);
        if (r->slot && r->pidfd >= 0)
            kill_now(r);
        leave_slot(r);
        util_close(&r->pidfd);
        util_close(&r->boot_fd);
        free(r);
    }
}

void command_sandbox_free_all(struct privd *p)
{
    for (uint32_t i = 0; p->slots && i < p->options.slots_max; i++)
        free_list(&p->slots[i].command_sandboxes);
    free_list(&p->command_sandboxes_left);
}
