/* A new boot begins here, and goes on in pause.c (waiters, states) and keep.c (KEEP, CREATE). A
 * wish to boot anew is in the sandbox (reboot, rollback_to) until it runs or has failed; it is not
 * written: after a restart of cayd it is as LIST and KEPTS say. Called by api, by pause.c, and by
 * snapshot_make.c when a copy is made. */

#include "core/reboot.h"

#include "base/clock.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/pause_internal.h"
#include "core/pause_waiters.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/snapshot_internal.h"
#include "core/timers.h"

#include <string.h>

#define COPIES_WAIT_MS 15000u

static void on_copies_wait(struct timer *t)
{
    struct sandbox_obj *o = CONTAINER_OF(t, struct sandbox_obj, copies_wait);
    struct err why;

    err_set(&why, ERR_UNAVAILABLE,
            "a snapshot of sandbox %s, or forks of it, are still being made; try again", o->s.id);
    pause_not_rebooted(o, &why);
}

enum err_code reboot_begin(struct sandbox_obj *o, struct err *e)
{
    if (o->copies == 0)
        return sandbox_life(o)->pause == LIFE_CALL_DO ? pause_begin_keep(o, e)
                                                      : pause_begin_resume(o, e);
    if (!timer_armed(&o->copies_wait)) {
        o->copies_wait.fire = on_copies_wait;
        timers_set(&o->core->timers, &o->copies_wait, clock_mono_ms() + COPIES_WAIT_MS);
    }
    return ERR_OK;
}

/* A sandbox that was resumed by another call meanwhile boots anew when it runs (pause_resumed). */
void reboot_copies_made(struct sandbox_obj *o)
{
    struct err why;

    if (!timer_armed(&o->copies_wait))
        return;
    timers_cancel(&o->core->timers, &o->copies_wait);
    if (sandbox_life(o)->change == LIFE_CHANGE_NONE && reboot_begin(o, &why) != ERR_OK)
        pause_not_rebooted(o, &why);
}

/* -- rollback ---------------------------------------------------------------------------------- */

static enum err_code check_state(const struct sandbox_obj *o, struct err *e)
{
    if (sandbox_life(o)->change == LIFE_CHANGE_NONE && !o->reboot)
        return ERR_OK;
    return err_set(e, ERR_CONFLICT, "sandbox %s is just being %s; try again", o->s.id,
                   sandbox_life(o)->change == LIFE_CHANGE_PAUSE ? "paused" : "resumed");
}

static enum err_code check(struct core *c, const char *tenant, const char *id, const char *name,
                           struct sandbox_obj **out, const struct snapshot **snapshot,
                           struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code == ERR_OK)
        code = sandbox_visible(c, tenant, id, out, e);
    if (code == ERR_OK)
        code = keep_check(c, e);
    if (code != ERR_OK)
        return code;
    *snapshot = core_snapshot_find(c, tenant, name);
    if (!*snapshot)
        return snapshot_missing(name, e);
    if (strcmp((*snapshot)->template_id, (*out)->s.template_id) != 0 ||
        (*snapshot)->level != (*out)->s.level) {
        err_set(e, ERR_CONFLICT, "snapshot %s lies on template %s, and sandbox %s on %s",
                (*snapshot)->id, (*snapshot)->template_id, id, (*out)->s.template_id);
        err_hint(e, "create a new sandbox from it");
        return ERR_CONFLICT;
    }
    return check_state(*out, e);
}

/* The time until the end of a running sandbox, where its end is a time. */
static int64_t time_left_ms(const struct sandbox_obj *o)
{
    if (sandbox_life(o)->timer != LIFE_TIMER_LIFETIME || o->s.idle_ms != 0)
        return 0;
    return MAX(o->s.end_real_ms - clock_real_ms(), 1);
}

static enum err_code begin(struct sandbox_obj *o, const struct snapshot *s, struct err *e)
{
    enum err_code code;

    o->reboot_ran = sandbox_life(o)->pause == LIFE_CALL_DO;
    memcpy(o->rollback_to, s->id, sizeof(o->rollback_to));
    o->reboot = true;
    code = reboot_begin(o, e);
    if (code == ERR_OK)
        return ERR_OK;
    pause_forget_reboot(o);
    o->reboot_ran = false;
    return code;
}

void core_sandbox_rollback(struct core *c, const char *tenant, const char *id, const char *snapshot,
                           core_sandbox_cb done, void *arg)
{
    const struct snapshot *found = NULL;
    struct sandbox_obj *o = NULL;
    struct err e;
    enum err_code code = check(c, tenant, id, snapshot, &o, &found, &e);
    int64_t left_ms = code == ERR_OK ? time_left_ms(o) : 0;

    if (code == ERR_OK) {
        trace_sandbox_requested(o);
        code = begin(o, found, &e);
    }
    if (code == ERR_OK)
        pause_wait_resumed(o, left_ms, done, arg);
    else
        core_defer_error(c, done, arg, &e);
}
