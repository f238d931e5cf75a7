/* Each step is written before privd is asked for it. How a pause or resume ends is pause.c's:
 * pause_done, pause_not_done, pause_resumed, pause_not_resumed. */

#include "core/freeze.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/hooks.h"
#include "core/life.h"
#include "core/pause_internal.h"
#include "core/sandbox.h"
#include "core/sockets.h"
#include "core/store_sandbox.h"
#include "core/timers.h"

#include <errno.h>
#include <string.h>

/* Row first: privd, or the sandbox, is asked only for what the next start would look for. On
 * failure nothing has changed. */
static enum err_code write_change(struct sandbox_obj *o, enum sandbox_state state,
                                  enum sandbox_pause_reason reason, struct err *e)
{
    struct sandbox changed = o->s;

    changed.state = state;
    changed.pause_reason = reason;
    return store_sandbox_update(o->core->store, &changed, e);
}

/* 0 or -errno. */
static int64_t send_change(struct sandbox_obj *o, enum privsep_op op, call_privd_cb cb)
{
    struct privsep_msg m = {.op = (uint16_t)op, .slot = o->s.slot, .gen = o->s.gen};

    return call_privd(o->core, o->s.id, &m, cb, NULL);
}

static void await_change(struct sandbox_obj *o, uint64_t wait_ms)
{
    o->change_requested = true;
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + wait_ms);
}

/* Any server can. */
enum err_code freeze_check(const struct core *c, struct err *e)
{
    return ERR_OK;
}

/* -- resuming ---------------------------------------------------------------------------------- */

static void on_thawed(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = pause_answered(c, id, LIFE_CHANGE_RESUME, status,
                                           "resuming the sandbox");
    struct err why;

    if (!o)
        return;
    if (status == 0) {
        pause_resumed(o);
        return;
    }
    call_privd_err(&why, status, "resuming the sandbox");
    pause_not_resumed(o, SANDBOX_PAUSED, &why);
}

/* Its owner sees it as what it is, and can resume it. */
static void show_as_paused(struct sandbox_obj *o, int status)
{
    log_error("sandbox %s: it is to run, and stands still: %s; it is shown as paused", o->s.id,
              strerror(-status));
    sandbox_move(o, SANDBOX_PAUSING);
    o->s.pause_reason = SANDBOX_PAUSE_ERROR;
    o->fell.text[0] = '\0';
    timers_cancel(&o->core->timers, &o->end);
    timers_cancel(&o->core->timers, &o->sample);
    sockets_discard(o);
    pause_done(o, SANDBOX_PAUSED);
}

static void on_let_go_on(struct core *c, const char *id, int status, const struct privsep_msg *m,
                         int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || status == 0 || status == -ESTALE || call_is_channel_error(status))
        return; /* ENDED, or the next LIST */
    if (sandbox_life(o)->pause == LIFE_CALL_DO)
        show_as_paused(o, status);
    else
        log_warn("sandbox %s: it does not go on: %s", id, strerror(-status));
}

void freeze_let_go_on(struct sandbox_obj *o)
{
    log_warn("sandbox %s: cay-privd has it frozen, though it is to run: it goes on", o->s.id);
    (void)send_change(o, PRIVSEP_THAW, on_let_go_on);
}

enum err_code freeze_resume(struct sandbox_obj *o, struct err *e)
{
    const uint64_t begun_us = clock_mono_us();
    enum err_code code = write_change(o, SANDBOX_RESUMING, o->s.pause_reason, e);
    int64_t rc;

    if (code != ERR_OK)
        return code;
    rc = send_change(o, PRIVSEP_THAW, on_thawed);
    if (rc < 0) {
        sandbox_write_row(o);
        return call_privd_err(e, rc, "resuming the sandbox");
    }
    sandbox_move(o, SANDBOX_RESUMING);
    trace_sandbox_begin(o, TRACE_RESUME, tier_of_sandbox(&o->s)->name, begun_us);
    await_change(o, o->core->config.privd_timeout_ms);
    return ERR_OK;
}

/* -- pausing ----------------------------------------------------------------------------------- */

static void on_frozen(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = pause_answered(c, id, LIFE_CHANGE_PAUSE, status, "pausing the sandbox");
    struct err why;

    if (!o)
        return;
    if (status == 0) {
        pause_done(o, SANDBOX_PAUSED);
        return;
    }
    if (status == -ETIMEDOUT)
        err_set(
            &why, ERR_TIMEOUT,
            "the sandbox was not paused: a process in it cannot be stopped now, as it waits for "
            "the disk or in the kernel; everything in it goes on");
    else
        call_privd_err(&why, status, "pausing the sandbox");
    pause_not_done(o, &why);
    if (status == -ENOTRECOVERABLE && sandbox_life(o)->pause == LIFE_CALL_DO)
        freeze_let_go_on(o);
}

enum err_code freeze_begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                           const struct tier *tier, struct err *e)
{
    const uint64_t begun_us = clock_mono_us();
    enum err_code code = write_change(o, SANDBOX_PAUSING, reason, e);

    if (code != ERR_OK)
        return code;
    sandbox_move(o, SANDBOX_PAUSING);
    o->s.pause_reason = reason;
    o->fell.text[0] = '\0';
    trace_sandbox_begin(o, TRACE_PAUSE, tier->name, begun_us);
    timers_cancel(&o->core->timers, &o->sample);
    await_change(o, hooks_wait_ms() + o->core->config.privd_timeout_ms);
    hooks_before_pause(o, tier->name);
    return ERR_OK;
}

/* The sockets that its agent's answer came with go too. An agent that did not answer is no matter:
 * it is stopped with the others. */
void freeze_go_on(struct sandbox_obj *o, const struct err *ignored)
{
    int64_t rc = send_change(o, PRIVSEP_FREEZE, on_frozen);
    struct err why;

    sockets_discard(o);
    await_change(o, o->core->config.privd_timeout_ms);
    if (rc >= 0)
        return;
    o->change_requested = false;
    call_privd_err(&why, rc, "pausing the sandbox");
    pause_not_done(o, &why);
}

bool freeze_on_timer(struct sandbox_obj *o)
{
    return false;
}
