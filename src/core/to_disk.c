/* Called by pause.c with what becomes of the thaw and of the pause, by lifecycle.c at a timer, by
 * core.c when sandboxes are known. Of a sandbox whose memory could not be kept it is tried once for
 * each time that it is frozen. */

#include "core/to_disk.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/meminfo.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/freeze.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/logs.h"
#include "core/pause_internal.h"
#include "core/sandbox.h"
#include "core/tier.h"
#include "core/timers.h"

#define CHECK_MS        5000u /* at the host's memory */
#define FREEZE_AGAIN_MS 2000u

/* -- which one is next ------------------------------------------------------------------------- */

static bool is_frozen(const struct sandbox_obj *o)
{
    const struct life *life = sandbox_life(o);

    return life->group == LIFE_GROUP_PAUSED && life->change == LIFE_CHANGE_NONE && !life->files;
}

/* A sandbox that stands still without having been asked to is let be. */
static bool may_move(const struct sandbox_obj *o)
{
    return is_frozen(o) && o->known_to_privd && !o->to_disk_tried && !o->resumers &&
           o->copies == 0 && o->s.limits.filters == 0 && o->s.to_disk_ms >= 0 &&
           o->s.pause_reason != SANDBOX_PAUSE_ERROR;
}

/* When it is due by its age; INT64_MAX: never. Its end is when it was frozen. */
static int64_t due_real_ms(const struct core *c, const struct sandbox_obj *o)
{
    int64_t after = o->s.to_disk_ms ? o->s.to_disk_ms : (int64_t)c->config.to_disk_after_ms;

    return after > 0 ? o->s.end_real_ms + after : INT64_MAX;
}

/* By age, or (memory) the one that has been frozen longest. NULL: none, or one is under way. */
static struct sandbox_obj *next_of(struct core *c, bool memory)
{
    struct sandbox_obj *found = NULL;
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];
        int64_t at = memory ? o->s.end_real_ms : due_real_ms(c, o);

        if (o->s.moving)
            return NULL;
        if (may_move(o) && at < least) {
            found = o;
            least = at;
        }
    }
    return found;
}

static bool memory_is_short(const struct core *c)
{
    return c->config.to_disk_below_pct > 0 && meminfo_is_below(c->config.to_disk_below_pct);
}

/* -- moving ------------------------------------------------------------------------------------ */

static enum sandbox_tier tier_to(const struct sandbox_obj *o)
{
    return o->s.timeout_tier == SANDBOX_TIER_MEMORY_OR_FILES ? SANDBOX_TIER_MEMORY_OR_FILES
                                                             : SANDBOX_TIER_MEMORY;
}

static void begin(struct sandbox_obj *o)
{
    struct err e;
    enum err_code code = keep_check(o->core, &e);

    o->to_disk_tried = true;
    o->s.moving = code == ERR_OK;
    trace_sandbox_requested(o); /* by no call */
    if (code == ERR_OK)
        code = freeze_resume(o, &e);
    if (code == ERR_OK)
        return;
    o->s.moving = false;
    log_warn("sandbox %s: its memory does not go to the disk: %s", o->s.id, e.text);
}

static void on_due(struct timer *t)
{
    struct core *c = CONTAINER_OF(t, struct core, to_disk_due);
    const bool is_short = memory_is_short(c);
    struct sandbox_obj *o = next_of(c, is_short);

    if (o && c->ready && (is_short || due_real_ms(c, o) <= clock_real_ms()))
        begin(o);
    to_disk_arm(c);
}

void to_disk_arm(struct core *c)
{
    struct sandbox_obj *o = c->ready && !c->stopping ? next_of(c, false) : NULL;
    bool checks = c->config.to_disk_below_pct > 0 && c->ready && !c->stopping && next_of(c, true);
    int64_t in_ms = o ? MAX(due_real_ms(c, o) - clock_real_ms(), 0) : INT64_MAX;

    c->to_disk_due.fire = on_due;
    if (checks)
        in_ms = MIN(in_ms, CHECK_MS);
    if (in_ms < INT64_MAX)
        timers_set(&c->timers, &c->to_disk_due,
                   clock_mono_ms() + (uint64_t)MIN(in_ms, CORE_TO_DISK_MAX_MS));
    else
        timers_cancel(&c->timers, &c->to_disk_due);
}

/* -- what comes of it -------------------------------------------------------------------------- */

/* It runs, and is to stand still as before. */
static void freeze_again(struct sandbox_obj *o)
{
    const struct err fell = o->fell;
    struct err e;

    if (freeze_begin(o, o->s.pause_reason, tier_of(SANDBOX_TIER_FROZEN), &e) == ERR_OK) {
        o->fell = fell;
        return;
    }
    log_warn("sandbox %s: not frozen again, tried again: %s", o->s.id, e.text);
    timers_set(&o->core->timers, &o->end, clock_mono_ms() + FREEZE_AGAIN_MS);
}

bool to_disk_goes_on(struct sandbox_obj *o)
{
    enum sandbox_tier tier = tier_to(o);
    struct err e;

    if (!o->s.moving)
        return false;
    if (o->resumers || o->reboot) {
        o->s.moving = false;
        return false;
    }
    trace_sandbox_end(o, ERR_OK);
    sandbox_move(o, SANDBOX_RUNNING);
    if (pause_begin(o, o->s.pause_reason, tier, &e) == ERR_OK)
        return true;
    o->fell = e;
    freeze_again(o);
    return true;
}

bool to_disk_not_done(struct sandbox_obj *o, const struct err *why)
{
    if (!o->s.moving)
        return false;
    if (o->resumers) {
        to_disk_give_up(o, o->resume_ttl_ms);
        return false;
    }
    log_warn("sandbox %s: its memory does not go to the disk: %s", o->s.id, why->text);
    logs_add(o, "warn", "its memory does not go to the disk: %s", why->text);
    if (!o->fell.text[0])
        o->fell = *why;
    trace_sandbox_end(o, why->code);
    const bool was_frozen_again = !sandbox_life(o)->files;
    keep_forget(o);
    sandbox_move(o, SANDBOX_RUNNING);
    sandbox_write_row(o);
    if (was_frozen_again)
        timers_set(&o->core->timers, &o->end, clock_mono_ms() + FREEZE_AGAIN_MS);
    else
        freeze_again(o);
    return true;
}

bool to_disk_on_timer(struct sandbox_obj *o)
{
    if (o->s.moving)
        freeze_again(o);
    return o->s.moving;
}

void to_disk_give_up(struct sandbox_obj *o, int64_t ttl_ms)
{
    const struct core *c = o->core;

    if (!o->s.moving)
        return;
    o->s.moving = false;
    if (ttl_ms == 0)
        ttl_ms = o->s.idle_ms ? o->s.idle_ms : (int64_t)c->config.default_ttl_ms;
    o->s.end_real_ms = MAX(o->s.end_real_ms, clock_real_ms() + ttl_ms);
    if (sandbox_life(o)->timer != LIFE_TIMER_LIFETIME)
        return;
    o->s.pause_reason = SANDBOX_PAUSE_NONE;
    sandbox_write_row(o);
    lifecycle_arm(o);
}
