/* FREEZE and THAW: every process of a sandbox stops, or goes on. A pause that keeps memory is no
 * more than that, so nothing of the sandbox is given up or made anew.
 *
 * To ask the kernel is one write; that all have stopped is seen a little later, at the next looks
 * of a timer, so that nothing here waits. A process that cannot be stopped in time (it waits for a
 * disk, or in the kernel) ends the attempt: all go on, and the requester is told. FROZEN is in the
 * record before it is answered, RUNNING before anything goes on: a privd that takes over in between
 * lets go on what was not answered.
 *
 * The write by which they go on can fail, as any can where memory or descriptors are short. Then
 * the slot is FREEZING again, and it is tried again for a while; a sandbox that stands still for
 * good is FROZEN, and who asked for the thaw, the freeze or the copy is told (-ENOTRECOVERABLE). */
#include "privd/freeze.h"

#include "privd/command_sandbox.h"

#include "base/clock.h"
#include "base/log.h"
#include "privd/copy.h"
#include "privd/loop.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/slots.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

#define COMMAND_SANDBOXES_MS 12000 /* longer than the making of a command sandbox may take */
#define FREEZE_MS            5000
#define THAW_POLL_MAX_MS     100 /* tries after 1, 2, 4, ... ms, then each time so long */
#define THAW_POLL_SHIFT      7
#define MAKER_POLL_US        1000 /* for what makes a command sandbox */
/* Looks after 0.1, 0.2, 0.4, ... ms: an idle one stands still at once. Then each time so long. */
#define POLL_US      100
#define POLL_MAX_US  100000
#define POLL_SHIFT   10
#define AFRESH_POLLS 13   /* so many looks, some 0.4 s, and it is begun again */
#define THAW_MS      3000 /* so long it is tried to let them go on */

static void poll_frozen(void *arg);
static void poll_thawed(void *arg);

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
        (void)reply_send(s->privd, &to, &m, NULL, 0);
}

static void answer_thawer(struct slot *s, int status)
{
    struct privsep_msg m = {.op = PRIVSEP_THAW, .status = status, .slot = s->number, .gen = s->gen};
    struct reply_to to = s->thawer;

    s->thawer = (struct reply_to){0};
    if (to.seq != 0)
        (void)reply_send(s->privd, &to, &m, NULL, 0);
}

/* status: 0, or -ENOTRECOVERABLE for what stands still. A FREEZE that was given up, or was undone,
 * has its own. */
static void went_on(struct slot *s, int status)
{
    answer_thawer(s, status);
    if (s->copying || s->freezer.seq != 0)
        answer_freezer(s, status < 0 ? status : s->freeze_status);
    copy_went_on(s, status);
}

/* Without a freezer nothing was frozen. */
static int thaw(struct slot *s)
{
    struct runtime_sandbox sb = slots_sandbox(s);
    int r = s->driver->thaw(s->privd->rt, &sb);

    return r == -EOPNOTSUPP ? 0 : r;
}

static void thaw_again_later(struct slot *s)
{
    uint32_t in_ms = MIN(1u << MIN(s->freeze_polls, THAW_POLL_SHIFT), THAW_POLL_MAX_MS);

    s->freeze_polls++;
    loop_arm(&s->privd->loop, &s->timer, in_ms, poll_thawed, s);
}

static void poll_thawed(void *arg)
{
    struct slot *s = arg;
    int r = thaw(s);

    if (r < 0 && clock_mono_ms() < s->freeze_end_ms) {
        thaw_again_later(s);
        return;
    }
    if (r < 0)
        log_error("sandbox %.*s, slot %u: its processes cannot be told to go on, and stand still: "
                  "%s",
                  PRIVSEP_ID_SIZE, s->id, s->number, strerror(-r));
    slots_enter(s->privd, s, r < 0 ? SLOT_FROZEN : SLOT_RUNNING);
    went_on(s, r < 0 ? -ENOTRECOVERABLE : 0);
}

/* The record first: a frozen sandbox whose record says that it runs is let go on by the next
 * privd. */
static void go_on(struct slot *s)
{
    int r;

    loop_disarm(&s->privd->loop, &s->timer);
    if (s->state != SLOT_RUNNING)
        slots_enter(s->privd, s, SLOT_RUNNING);
    r = thaw(s);
    if (r == 0) {
        went_on(s, 0);
        return;
    }
    log_warn("sandbox %.*s, slot %u: its processes are not told to go on, tried again: %s",
             PRIVSEP_ID_SIZE, s->id, s->number, strerror(-r));
    slots_enter(s->privd, s, SLOT_FREEZING);
    s->freeze_end_ms = clock_mono_ms() + THAW_MS;
    s->freeze_polls = 0;
    thaw_again_later(s);
}

static void give_up(struct slot *s, int status)
{
    log_warn("sandbox %.*s, slot %u: not frozen: %s; it goes on", PRIVSEP_ID_SIZE, s->id, s->number,
             strerror(-status));
    s->freeze_status = status;
    go_on(s);
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
    uint32_t in_us = MAKER_POLL_US;

    if (clock_mono_ms() >= s->freeze_end_ms) {
        give_up(s, s->freeze_polls > 0 ? -ETIMEDOUT : -EAGAIN);
        return;
    }
    if (s->freeze_polls > 0)
        in_us = MIN(POLL_US << MIN(s->freeze_polls - 1, POLL_SHIFT), POLL_MAX_US);
    loop_arm_us(&s->privd->loop, &s->timer, in_us, poll_frozen, s);
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
    go_on(s);
}

void freeze_undo_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                           const struct privsep_msg *m)
{
    struct runtime_sandbox sb = slots_sandbox(s);

    if (s->state == SLOT_FROZEN)
        s->driver->notify_resumed(&sb);
    answer_thawer(s, -ECANCELED);
    s->thawer = *to;
    s->freeze_status = -ECANCELED;
    go_on(s);
}

void freeze_forget(struct slot *s)
{
    s->freeze_status = -ESTALE;
    answer_thawer(s, -ESTALE);
    answer_freezer(s, -ESTALE);
    copy_went_on(s, 0);
}

void freeze_forget_all(struct privd *p)
{
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        struct slot *s = &p->slots[i];

        if (s->state != SLOT_FREEZING)
            continue;
        s->freezer = s->thawer = (struct reply_to){0};
        s->freeze_status = -ECANCELED; /* of a COPY */
        go_on(s);
    }
}
