/* A change is asked for (the row is written, then privd is asked), answered, and only then
 * confirmed to those who wait for it. While one is under way callers of the other kind wait for
 * its end, which then begins theirs. When no answer comes (the deadline, a channel that broke),
 * LIST decides what is so: pause_settle, called by lifecycle.c. Which change a state allows is
 * the table's (life.c). */

#include "core/pause_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/archive_file.h"
#include "core/auto_delete.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/events.h"
#include "core/hooks.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/logs.h"
#include "core/pause_waiters.h"
#include "core/reboot.h"
#include "core/registry.h"
#include "core/sandbox.h"
#include "core/store_sandbox.h"
#include "core/tier.h"
#include "core/timers.h"
#include "core/to_disk.h"

#include <string.h>

#define PAUSE_AGAIN_MS 2000u /* after the end of its time, when it could not be paused */

/* -- steps ------------------------------------------------------------------------------------- */

/* LIST will tell what is so. */
void pause_channel_broke(struct sandbox_obj *o, int status, const char *what)
{
    struct err why;

    timers_cancel(&o->core->timers, &o->end);
    call_privd_err(&why, status, what);
    pause_fail(o, &why);
}

struct sandbox_obj *pause_answered(struct core *c, const char *id, enum life_change change,
                                   int status, const char *what)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !o->change_requested || sandbox_life(o)->change != change)
        return NULL;
    o->change_requested = false;
    if (!call_is_channel_error(status))
        return o;
    pause_channel_broke(o, status, what);
    return NULL;
}

/* -- resuming ---------------------------------------------------------------------------------- */

static void begin_pause_again(struct sandbox_obj *o);
static enum err_code begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                           enum sandbox_tier tier, struct err *e);
static void is_paused(struct sandbox_obj *o);

/* The field of an event about memory that was not kept, or did not come back; NULL: none. */
static json_t *about_memory(const struct sandbox_obj *o)
{
    return o->fell.text[0] ? json_pack("{s:s}", "memoryError", o->fell.text) : NULL;
}

static void notify_resumed(struct sandbox_obj *o)
{
    if (o->reboot_ran)
        return;
    log_info("sandbox %s: resumed", o->s.id);
    logs_add(o, "info", "sandbox resumed");
    events_add(o->tenant, EVENT_SANDBOX_RESUMED, o->s.id, about_memory(o));
}

/* The tier of the pause or resume that is under way. A snapshot's files have no memory. */
static const char *tier_name(const struct sandbox_obj *o)
{
    return o->rolled_back ? tier_of(SANDBOX_TIER_FILES)->name : tier_of_sandbox(&o->s)->name;
}

/* Its new life begins now, so its place in listings is another. */
static void start_anew(struct sandbox_obj *o)
{
    registry_move(&o->core->registry, o, clock_real_ms());
    o->s.end_real_ms = o->s.started_real_ms + o->resume_ttl_ms;
}

void pause_resumed(struct sandbox_obj *o)
{
    struct core *c = o->core;
    bool again = o->reboot && (!sandbox_life(o)->files || o->restoring);
    uint32_t left = o->rolled_back ? o->s.kept : 0;
    const char *tier = tier_name(o);
    char snapshot[IDS_SANDBOX_SIZE] = "";
    enum err_code code = ERR_OK;
    struct err why;

    if (to_disk_goes_on(o))
        return;
    if (o->rolled_back)
        memcpy(snapshot, o->rollback_to, sizeof(snapshot));
    if (sandbox_life(o)->files) {
        trace_sandbox_step(o, TRACE_RESUME_MADE, o->begun_us, o->made_us);
        trace_sandbox_step(o, TRACE_RESUME_AGENT, o->made_us, clock_mono_us());
    }
    if (!sandbox_life(o)->files)
        o->fell.text[0] = '\0'; /* nothing is lost */
    keep_forget(o);
    sandbox_move(o, SANDBOX_RUNNING);
    if (o->resume_ttl_ms == 0)
        o->resume_ttl_ms = o->s.idle_ms ? o->s.idle_ms : (int64_t)c->config.default_ttl_ms;
    start_anew(o);
    o->to_disk_tried = false;
    o->s.pause_reason = SANDBOX_PAUSE_NONE;
    o->used_ms = clock_mono_ms();
    sandbox_write_row(o);
    trace_sandbox_end(o, ERR_OK);
    lifecycle_arm(o);
    keep_drop_left(o->core, o->s.id, left);
    /* To boot anew it runs for a moment, as its environment is its agent's to tell, and then
     * ends but for its files. */
    if (again && (code = reboot_begin(o, &why)) == ERR_OK)
        return;
    pause_forget_wishes(o);
    notify_resumed(o);
    hooks_after_resume(o, tier, *snapshot ? "rollback" : "resume");
    o->reboot_ran = false;
    if (*snapshot)
        events_add(o->tenant, EVENT_SANDBOX_ROLLED_BACK, o->s.id,
                   json_pack("{s:s}", "snapshot", snapshot));
    pause_waiters_notify(o, &o->resumers, code == ERR_OK ? NULL : &why);
    begin_pause_again(o);
}

void pause_not_resumed(struct sandbox_obj *o, enum sandbox_state to, const struct err *why)
{
    log_warn("sandbox %s: not resumed: %s", o->s.id, why->text);
    trace_sandbox_end(o, why->code);
    if (o->s.state != to)
        sandbox_move(o, to);
    o->s.moving = false;
    auto_delete_arm(o);
    archive_file_arm(o->core);
    to_disk_arm(o->core);
    pause_forget_wishes(o);
    sandbox_write_row(o);
    pause_waiters_notify(o, &o->resumers, why);
    if (o->reboot_ran)
        is_paused(o);
    else
        pause_waiters_notify(o, &o->pausers, NULL);
    o->reboot_ran = false;
}

void pause_not_rebooted(struct sandbox_obj *o, const struct err *why)
{
    bool runs = sandbox_life(o)->pause == LIFE_CALL_DO;

    log_warn("sandbox %s: %s: %s", o->s.id, o->reboot ? "does not boot anew" : "not resumed",
             why->text);
    pause_forget_wishes(o);
    if (runs)
        notify_resumed(o);
    o->reboot_ran = false;
    pause_waiters_notify(o, &o->resumers, why);
    if (runs)
        begin_pause_again(o);
}

enum err_code pause_begin_resume(struct sandbox_obj *o, struct err *e)
{
    enum err_code code;

    if (archive_file_is_under_way(o))
        return archive_file_stop(o, e);
    if (archive_file_may_be_away(o))
        return archive_file_fetch(o, e);
    code = sandbox_reserve_change(o, e);
    if (code == ERR_OK)
        code = o->core->tiers[tier_number(&o->s)].resume(o, e);
    if (code != ERR_OK)
        sandbox_release_change(o);
    return code;
}

/* -- pausing ----------------------------------------------------------------------------------- */

void pause_notify_owner(struct sandbox_obj *o)
{
    const char *reason = core_pause_reason_name(o->s.pause_reason);
    const char *tier = core_pause_tier_name(&o->s);
    json_t *data = json_pack("{s:s, s:s}", "reason", reason, "tier", tier);

    log_info("sandbox %s: paused: %s, %s", o->s.id, reason, tier);
    logs_add(o, "info", "sandbox paused (%s, %s)", reason, tier);
    json_object_update_new(data, about_memory(o));
    events_add(o->tenant, EVENT_SANDBOX_PAUSED, o->s.id, data);
}

static void is_paused(struct sandbox_obj *o)
{
    pause_notify_owner(o);
    pause_waiters_notify(o, &o->pausers, NULL);
}

/* A sandbox that is kept only to boot anew goes on at once: callers that want it paused are served
 * when it runs again. */
void pause_done(struct sandbox_obj *o, enum sandbox_state to)
{
    bool only_reboots = o->reboot_keeps;
    struct core *c = o->core;
    struct err e;

    o->reboot_keeps = false;
    sandbox_move(o, to);
    auto_delete_arm(o);
    o->s.moving = false;
    o->s.end_real_ms = clock_real_ms();
    archive_file_arm(c);
    to_disk_arm(c);
    sandbox_write_row(o);
    trace_sandbox_end(o, ERR_OK);
    if (c->on_paused)
        c->on_paused(c->on_paused_arg, o->s.id);
    if (!only_reboots)
        is_paused(o);
    if (o->resumers && reboot_begin(o, &e) == ERR_OK) /* or waits for forks of it */
        return;
    o->reboot_ran = false;
    if (only_reboots)
        is_paused(o);
    if (!o->resumers)
        return;
    pause_forget_wishes(o);
    pause_waiters_notify(o, &o->resumers, &e);
}

/* Its memory was not written at the end of its time: the next try freezes it, so that its time does
 * not go on for as long as that fails, and each try does not stop it for nothing. fell says why. */
static void freeze_next(struct sandbox_obj *o, const struct err *why)
{
    o->refused_end_ms = o->s.end_real_ms;
    if (!o->fell.text[0])
        o->fell = *why;
}

/* To the disk, with what runs. */
static bool writes_memory(enum sandbox_tier tier)
{
    return tier != SANDBOX_TIER_FROZEN && tier_of(tier)->memory;
}

/* It was paused with its processes, and ran only so that its files alone could be kept (stop.c).
 * answer: the reason with what becomes of it. */
static void pause_as_before(struct sandbox_obj *o, const struct err *why, struct err *answer)
{
    enum sandbox_pause_reason before = o->paused_before;
    struct err e;

    *answer = *why;
    o->paused_before = SANDBOX_PAUSE_NONE;
    if (before == SANDBOX_PAUSE_NONE || o->resumers)
        return;
    if (begin(o, before, SANDBOX_TIER_FROZEN, &e) == ERR_OK) {
        err_hint(answer, "it is being paused again, with its programs as they were");
        return;
    }
    log_warn("sandbox %s: not paused again: %s", o->s.id, e.text);
    err_hint(answer, "it runs now");
}

/* Its time goes on; where that is over already it is tried again soon. Callers that want it to run
 * are answered. */
void pause_not_done(struct sandbox_obj *o, const struct err *why)
{
    const char *tier = tier_name(o);
    bool over = o->s.end_real_ms <= clock_real_ms();
    bool rebooting = o->reboot, only_reboots = o->reboot_keeps;
    int64_t ttl_ms = o->resume_ttl_ms;
    struct err answer;

    if (to_disk_not_done(o, why))
        return;
    if (over && o->s.pause_reason != SANDBOX_PAUSE_API && writes_memory(tier_number(&o->s)))
        freeze_next(o, why);
    else
        o->fell.text[0] = '\0';
    log_warn("sandbox %s: not paused: %s", o->s.id, why->text);
    logs_add(o, "warn", "not paused: %s", why->text);
    trace_sandbox_end(o, why->code);
    keep_forget(o);
    sandbox_move(o, SANDBOX_RUNNING);
    o->s.pause_reason = SANDBOX_PAUSE_NONE;
    o->hooks_requested = false;
    if (o->resumers && ttl_ms > 0)
        o->s.end_real_ms = MAX(o->s.end_real_ms, clock_real_ms() + ttl_ms);
    pause_forget_wishes(o);
    sandbox_write_row(o);
    lifecycle_arm(o);
    hooks_after_resume(o, tier, "not_paused");
    if (over && !o->resumers)
        timers_set(&o->core->timers, &o->end, clock_mono_ms() + PAUSE_AGAIN_MS);
    o->reboot_keeps = false;
    pause_as_before(o, why, &answer);
    if (only_reboots)
        notify_resumed(o);
    else
        pause_waiters_notify(o, &o->pausers, &answer);
    o->reboot_ran = false;
    pause_waiters_notify(o, &o->resumers, rebooting ? why : NULL);
    begin_pause_again(o);
}

/* Its files stay where they are until those copies are made. */
static enum err_code check_copies(const struct sandbox_obj *o, struct err *e)
{
    if (o->copies == 0)
        return ERR_OK;
    return err_set(e, ERR_UNAVAILABLE, "a snapshot of sandbox %s is just being made; try again",
                   o->s.id);
}

enum err_code pause_begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                          enum sandbox_tier tier, struct err *e)
{
    enum err_code code = sandbox_reserve_change(o, e);

    if (code == ERR_OK)
        code = o->core->tiers[tier].begin(o, reason, tier_of(tier), e);
    if (code != ERR_OK)
        sandbox_release_change(o);
    return code;
}

static enum err_code begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                           enum sandbox_tier tier, struct err *e)
{
    if (check_copies(o, e) != ERR_OK)
        return e->code;
    return pause_begin(o, reason, tier, e);
}

enum err_code pause_begin_keep(struct sandbox_obj *o, struct err *e)
{
    enum err_code code = begin(o, SANDBOX_PAUSE_API, SANDBOX_TIER_FILES, e);

    o->reboot_keeps = code == ERR_OK;
    return code;
}

/* A pause that a call asks for: within the tenant's quota. */
static enum err_code begin_requested(struct sandbox_obj *o, enum sandbox_tier tier, struct err *e)
{
    enum err_code code = quota_check_pause(o->tenant, e);

    return code == ERR_OK ? begin(o, SANDBOX_PAUSE_API, tier, e) : code;
}

/* A pause was asked for while it was being resumed; a caller told that it runs may have begun
 * one. */
static void begin_pause_again(struct sandbox_obj *o)
{
    struct err e;

    if (sandbox_life(o)->pause != LIFE_CALL_DO)
        return;
    if (o->pausers && begin_requested(o, o->pause_tier, &e) != ERR_OK)
        pause_waiters_notify(o, &o->pausers, &e);
}

void pause_on_timeout(struct sandbox_obj *o, enum sandbox_pause_reason reason)
{
    bool refused = o->refused_end_ms == o->s.end_real_ms;
    enum sandbox_tier tier = refused ? SANDBOX_TIER_FROZEN : o->s.timeout_tier;
    const struct err fell = o->fell;
    struct err e;

    trace_sandbox_requested(o); /* by no call */
    if (begin(o, reason, tier, &e) == ERR_OK) {
        if (refused)
            o->fell = fell;
        return;
    }
    if (writes_memory(tier) && o->copies == 0)
        freeze_next(o, &e);
    log_warn("sandbox %s: not paused at the end of its time, tried again: %s", o->s.id, e.text);
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + PAUSE_AGAIN_MS);
}

/* -- which state it is in, when no answer tells how it went ------------------------------------ */

void pause_settle(struct sandbox_obj *o, bool frozen)
{
    enum life_change change = sandbox_life(o)->change;
    struct err why;

    if (o->change_requested)
        return; /* the answer is still to come */
    if (change == LIFE_CHANGE_PAUSE && frozen) {
        pause_done(o, SANDBOX_PAUSED);
    } else if (change == LIFE_CHANGE_PAUSE) {
        err_set(&why, ERR_UNAVAILABLE, "the pause was interrupted by a restart: the sandbox runs");
        pause_not_done(o, &why);
    } else if (change == LIFE_CHANGE_RESUME && frozen) {
        err_set(&why, ERR_UNAVAILABLE, "it was interrupted by a restart: the sandbox is paused");
        o->to_disk_tried = false;
        pause_not_resumed(o, SANDBOX_PAUSED, &why);
    } else if (change == LIFE_CHANGE_RESUME) {
        pause_resumed(o);
    } else if (!frozen) { /* paused, and its processes go on: it runs, whatever was written */
        sandbox_move(o, SANDBOX_RESUMING);
        pause_resumed(o);
    }
}

void pause_on_deadline(struct sandbox_obj *o)
{
    if (o->core->tiers[tier_number(&o->s)].on_timer(o))
        return;
    log_error("sandbox %s: cay-privd does not say whether it is paused: its channel begins anew",
              o->s.id);
    privsep_client_restart(o->core->privd);
}

/* -- calls ------------------------------------------------------------------------------------- */

static enum err_code already_paused(const struct sandbox_obj *o, struct err *e)
{
    err_set(e, ERR_EXISTS, "Sandbox %s is already paused (%s)", o->s.id,
            tier_of_sandbox(&o->s)->name);
    err_hint(e, "for another tier `cay resume` it first, then pause it");
    return ERR_EXISTS;
}

void core_sandbox_pause(struct core *c, const char *tenant, const char *id, enum sandbox_tier tier,
                        core_sandbox_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct err e;
    enum err_code code = sandbox_visible(c, tenant, id, &o, &e);

    if (code == ERR_OK)
        code = core_check_ready(c, &e);
    if (code == ERR_OK)
        code = c->tiers[tier].check(c, &e);
    if (code == ERR_OK)
        trace_sandbox_requested(o);
    if (code == ERR_OK && sandbox_life(o)->pause == LIFE_CALL_ALREADY && !o->reboot_keeps)
        code = already_paused(o, &e);
    else if (code == ERR_OK && sandbox_life(o)->pause == LIFE_CALL_DO)
        code = begin_requested(o, tier, &e);
    if (code == ERR_OK)
        o->pause_tier = tier;
    if (code == ERR_OK)
        pause_waiters_add(c, &o->pausers, done, arg);
    else
        core_defer_error(c, done, arg, &e);
}

void pause_for_forks(struct sandbox_obj *o, core_sandbox_cb done, void *arg)
{
    struct err e;
    enum err_code code = o->core->tiers[SANDBOX_TIER_MEMORY].check(o->core, &e);

    if (code == ERR_OK && sandbox_life(o)->pause != LIFE_CALL_DO)
        code = sandbox_not_running(o, &e);
    trace_sandbox_requested(o);
    if (code == ERR_OK)
        code = begin(o, SANDBOX_PAUSE_API, SANDBOX_TIER_MEMORY, &e);
    if (code != ERR_OK) {
        core_defer_error(o->core, done, arg, &e);
        return;
    }
    o->pause_tier = SANDBOX_TIER_MEMORY;
    pause_waiters_add(o->core, &o->pausers, done, arg);
}

void core_sandbox_resume(struct core *c, const char *tenant, const char *id, int64_t ttl_ms,
                         bool reboot_it, core_sandbox_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct err e;
    enum err_code code = sandbox_visible(c, tenant, id, &o, &e);
    bool rebooted = o && o->reboot; /* that was wanted before */

    if (code == ERR_OK)
        code = core_check_ready(c, &e);
    if (code == ERR_OK && ttl_ms > 0)
        code = lifecycle_check_ttl(c, ttl_ms, &e);
    if (code == ERR_OK && reboot_it)
        code = keep_check(c, &e);
    if (code == ERR_OK) {
        trace_sandbox_requested(o);
        o->paused_before = SANDBOX_PAUSE_NONE;
    }
    if (code == ERR_OK && sandbox_life(o)->resume == LIFE_CALL_ALREADY) {
        to_disk_give_up(o, ttl_ms);
        code = err_set(&e, ERR_EXISTS, "Sandbox %s is already running", id);
    }
    if (code == ERR_OK)
        o->reboot |= reboot_it;
    if (code == ERR_OK && sandbox_life(o)->resume == LIFE_CALL_DO)
        code = reboot_begin(o, &e);
    if (code != ERR_OK) {
        if (o)
            o->reboot = rebooted;
        core_defer_error(c, done, arg, &e);
        return;
    }
    pause_wait_resumed(o, ttl_ms, done, arg);
}

void pause_wait_resumed(struct sandbox_obj *o, int64_t ttl_ms, core_sandbox_cb done, void *arg)
{
    o->resume_ttl_ms = MAX(o->resume_ttl_ms, ttl_ms);
    pause_waiters_add(o->core, &o->resumers, done, arg);
}
