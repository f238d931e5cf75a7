/* FREEZE and THAW: every process of a sandbox stops, or goes on. A pause that keeps memory is no
 * more than that, so nothing of the sandbox is given up or made anew.
 *
 * To ask the kernel is one write; that all have stopped is seen a little later, at the next looks
 * of a timer, so that nothing here waits. A process that cannot be stopped in time (it waits for a
 * disk, or in the kernel) ends the attempt: all go on, and the requester is told. FROZEN is in the
 * record before it is answered, RUNNING before anything goes on: a privd that takes over in between
 * lets go on what was not answered. */
#include "privd/freeze.h"

#include "privd/command_sandbox.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/copy.h"
#include "privd/loop.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/request.h"
#include "privd/slots.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

#define COMMAND_SANDBOXES_MS 12000 /* longer than the making of a command sandbox may take */
#define FREEZE_MS            5000
#define POLL_MAX_MS          100 /* looks after 1, 1, 2, 4, ... ms, then each time so long */
#define POLL_SHIFT           7
#define AFRESH_POLLS         10 /* so many looks, and it is begun again */

static void poll_frozen(void *arg);

static void answer_freezer(struct slot *s, int status)
{
    struct privsep_msg m = {
        .op = PRIVSEP_FREEZE, .status = status, .slot = s->number, .gen = s->gen};
    struct reply_to to = s->freezer;

    if (s->copying) {
        copy_frozen(s, status);
        return;
    }
    s->freezer = (struct reply_to){0};
    if (to.seq != 0)
        (void)request_reply(s->privd, &to, &m, NULL, 0);
}

/* The record first: a frozen sandbox whose record says that it runs is let go on by the next
 * privd. */
static int go_on(struct slot *s)
{
    struct runtime_sandbox sb = slots_sandbox(s);

    loop_disarm(&s->privd->loop, &s->timer);
    if (s->state != SLOT_RUNNING)
        slots_enter(s->privd, s, SLOT_RUNNING);
    return s->driver->thaw(s->privd->rt, &sb);
}

static void give_up(struct slot *s, int status)
{
    log_warn("sandbox %.*s, slot %u: not frozen: %s; it goes on", PRIVSEP_ID_SIZE, s->id, s->number,
             strerror(-status));
    (void)go_on(s);
    answer_freezer(s, status);
}

/* The process that makes one stands in the sandbox's control group, and privd waits for it: it must
 * not be stopped. No further one is begun while the slot is FREEZING, so that this comes to an
 * end. */
static bool makes_command_sandboxes(const struct slot *s)
{
    for (const struct command_sandbox *r = s->command_sandboxes; r; r = r->next)
        if (r->starting || r->maker.seq != 0 || r->task.pidfd >= 0)
            return true;
    return false;
}

/* Version 1 of the freezer can miss a process that was being made while it looked: asked again it
 * finds it, and where even that does not help, from the beginning. */
static int freeze_cgroup(struct slot *s)
{
    const struct runtime *rt = s->privd->rt;
    struct runtime_sandbox sb = slots_sandbox(s);

    if (s->freeze_polls == 0)
        s->freeze_end_ms = clock_mono_ms() + FREEZE_MS;
    else if (s->freeze_polls % AFRESH_POLLS == 0)
        (void)s->driver->thaw(rt, &sb);
    return s->driver->freeze(rt, &sb);
}

static void poll_later(struct slot *s)
{
    uint32_t n = s->freeze_polls > 0 ? s->freeze_polls - 1 : 0;

    if (clock_mono_ms() >= s->freeze_end_ms) {
        give_up(s, s->freeze_polls > 0 ? -ETIMEDOUT : -EAGAIN);
        return;
    }
    loop_arm(&s->privd->loop, &s->timer, MIN(1u << MIN(n, POLL_SHIFT), POLL_MAX_MS), poll_frozen,
             s);
}

/* 1: all stand still; 0: not yet; -errno. */
static int try_once(struct slot *s)
{
    const struct runtime *rt = s->privd->rt;
    struct runtime_sandbox sb = slots_sandbox(s);
    int r;

    if (s->freeze_polls == 0 && makes_command_sandboxes(s))
        return 0;
    if (s->freeze_polls > 0 && s->driver->is_frozen(rt, &sb))
        return 1;
    r = freeze_cgroup(s);
    s->freeze_polls++;
    return r < 0 ? r : s->driver->is_frozen(rt, &sb);
}

static void poll_frozen(void *arg)
{
    struct slot *s = arg;
    int r = try_once(s);

    if (r < 0) {
        give_up(s, r);
    } else if (r == 0) {
        poll_later(s);
    } else {
        slots_enter(s->privd, s, SLOT_FROZEN);
        answer_freezer(s, 0);
    }
}

void freeze_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                      const struct privsep_msg *m)
{
    slots_enter(p, s, SLOT_FREEZING);
    s->freezer = *to;
    s->freeze_polls = 0;
    s->freeze_end_ms = clock_mono_ms() + COMMAND_SANDBOXES_MS;
    poll_frozen(s);
}

void freeze_for_copy(struct slot *s)
{
    slots_enter(s->privd, s, SLOT_FREEZING);
    s->freezer = (struct reply_to){0};
    s->freeze_polls = 0;
    s->freeze_end_ms = clock_mono_ms() + COMMAND_SANDBOXES_MS;
    poll_frozen(s);
}

void freeze_end(struct slot *s)
{
    (void)go_on(s);
}

void freeze_undo_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                           const struct privsep_msg *m)
{
    struct privsep_msg r = {.op = PRIVSEP_THAW, .slot = s->number, .gen = s->gen};
    struct runtime_sandbox sb = slots_sandbox(s);

    if (s->state == SLOT_FROZEN)
        s->driver->notify_resumed(&sb);
    r.status = go_on(s);
    answer_freezer(s, -ECANCELED);
    (void)request_reply(p, to, &r, NULL, 0);
}

void freeze_forget(struct slot *s)
{
    answer_freezer(s, -ESTALE);
}

void freeze_forget_all(struct privd *p)
{
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        struct slot *s = &p->slots[i];

        if (s->state != SLOT_FREEZING)
            continue;
        s->freezer = (struct reply_to){0};
        (void)go_on(s);
        answer_freezer(s, -ECANCELED); /* of a COPY */
    }
}
