#include "core/idle.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/pause.h"
#include "core/sandbox.h"
#include "core/store_sandbox.h"
#include "core/timers.h"

#include <errno.h>

#define PROBE_AGAIN_MS 1000u /* LIST tells first what there is */

int64_t idle_end_real_ms(const struct sandbox_obj *o)
{
    int64_t end_ms = clock_real_ms() - (int64_t)(clock_mono_ms() - o->used_ms) + o->s.idle_ms;

    return o->s.last_end_real_ms ? MIN(end_ms, o->s.last_end_real_ms) : end_ms;
}

static bool counts(const struct sandbox_obj *o, enum sandbox_idle what)
{
    return o->s.idle_counts & (unsigned)what;
}

/* The end that it has by this use is what callers are shown; nothing is written. */
void core_sandbox_used(struct core *c, const char *id)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !counts(o, SANDBOX_IDLE_TRAFFIC))
        return;
    o->used_ms = clock_mono_ms();
    if (o->s.idle_ms && sandbox_life(o)->timer == LIFE_TIMER_LIFETIME)
        o->s.end_real_ms = MAX(o->s.end_real_ms, idle_end_real_ms(o));
}

/* The end of one that lives as long as it is used is looked at when it comes, so that a call costs
 * no write. */
static bool renew(struct sandbox_obj *o)
{
    int64_t end_ms;
    struct err e;

    if (o->commands > 0 && counts(o, SANDBOX_IDLE_TRAFFIC))
        o->used_ms = clock_mono_ms();
    end_ms = idle_end_real_ms(o);
    if (o->s.idle_ms == 0 || end_ms <= clock_real_ms())
        return false;
    o->s.end_real_ms = end_ms;
    if (store_sandbox_update(o->core->store, &o->s, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text); /* the next start looks earlier */
    lifecycle_arm(o);
    return true;
}

/* -- processes --------------------------------------------------------------------------------- */

/* Since the last look; since its start where there was none in this life of cayd. A boot begins at
 * 0 again. */
static bool was_busy(struct sandbox_obj *o, uint64_t cpu_us)
{
    uint64_t now_ms = clock_mono_ms();
    uint64_t since_ms = o->idle_check_ms ? now_ms - o->idle_check_ms : (uint64_t)o->s.idle_ms;
    uint64_t before_us = cpu_us >= o->idle_cpu_us ? o->idle_cpu_us : 0;
    bool busy = cpu_us - before_us >= since_ms * 1000u / 100u * IDLE_BUSY_PCT;

    o->idle_check_ms = now_ms;
    o->idle_cpu_us = cpu_us;
    return busy;
}

void idle_time_is_over(struct sandbox_obj *o)
{
    if (sandbox_life(o)->timeout[o->s.on_timeout] == LIFE_TIMEOUT_PAUSE) {
        pause_on_timeout(o, o->s.idle_ms ? SANDBOX_PAUSE_IDLE : SANDBOX_PAUSE_TIMEOUT);
        return;
    }
    o->end_reason = o->s.idle_ms ? "idle" : "timeout";
    lifecycle_end(o, o->s.idle_ms ? "it was not used" : "its time is over");
}

static void on_stat(struct core *c, const char *id, int status, const struct privsep_msg *m,
                    int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !o->idle_requested || sandbox_life(o)->timer != LIFE_TIMER_LIFETIME)
        return; /* its end was set anew meanwhile, or it does not run */
    o->idle_requested = false;
    if (status < 0) {
        timers_set(&c->timers, &o->end, clock_mono_ms() + PROBE_AGAIN_MS);
        return;
    }
    if (was_busy(o, m->u.stat.cpu_used_us))
        o->used_ms = clock_mono_ms();
    if (!renew(o))
        idle_time_is_over(o);
}

/* The end's timer is the deadline of the answer: without one it is over. */
static bool probe_privd(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_STAT, .slot = o->s.slot, .gen = o->s.gen};
    struct core *c = o->core;

    if (o->idle_requested || o->s.idle_ms == 0 || !counts(o, SANDBOX_IDLE_PROCESSES) ||
        (o->s.last_end_real_ms && o->s.last_end_real_ms <= clock_real_ms()))
        return false;
    o->idle_requested = call_privd(c, o->s.id, &m, on_stat, NULL) >= 0;
    timers_set(&c->timers, &o->end,
               clock_mono_ms() + (o->idle_requested ? c->config.privd_timeout_ms : PROBE_AGAIN_MS));
    return true;
}

bool idle_goes_on(struct sandbox_obj *o)
{
    return renew(o) || probe_privd(o);
}

/* -- calls ------------------------------------------------------------------------------------- */

/* Its end with another idle time. Without an idle time from now on its end is the longest lifetime;
 * where it had none before, its end stays. */
static int64_t end_with_idle(const struct core *c, const struct sandbox *s, int64_t idle_ms)
{
    int64_t end_ms = clock_real_ms() + (idle_ms > 0 ? idle_ms : (int64_t)c->config.max_ttl_ms);

    if (idle_ms == 0 && s->idle_ms == 0)
        return s->end_real_ms;
    return s->last_end_real_ms ? MIN(end_ms, s->last_end_real_ms) : end_ms;
}

/* tier NULL: the action at the end of its time stays as it is. */
static enum err_code check(struct core *c, const struct sandbox_obj *o,
                           const enum sandbox_tier *tier, struct err *e)
{
    if (!tier)
        return ERR_OK;
    if (o->s.on_timeout == SANDBOX_ON_TIMEOUT_KILL)
        return err_set(e, ERR_CONFLICT, "the sandbox %s is deleted at the end of its time",
                       o->s.id);
    return *tier == SANDBOX_TIER_FILES ? keep_check(c, e) : ERR_OK;
}

static enum err_code set_idle(struct core *c, const char *tenant, const char *id, int64_t idle_ms,
                              const enum sandbox_tier *tier, const struct sandbox **out,
                              struct err *e)
{
    struct sandbox_obj *o = NULL;
    struct sandbox changed;
    enum err_code code = lifecycle_check_ttl(c, MAX(idle_ms, 1), e);

    if (code == ERR_OK)
        code = sandbox_visible(c, tenant, id, &o, e);
    if (code == ERR_OK)
        code = check(c, o, tier, e);
    if (code != ERR_OK)
        return code;
    changed = o->s;
    if (tier)
        changed.timeout_tier = *tier;
    changed.end_real_ms = end_with_idle(c, &o->s, idle_ms);
    changed.idle_ms = idle_ms;
    code = sandbox_write_through(o, &changed, out, e);
    if (code != ERR_OK)
        return code;
    o->used_ms = clock_mono_ms();
    lifecycle_arm(o);
    return ERR_OK;
}

enum err_code core_sandbox_set_idle(struct core *c, const char *tenant, const char *id,
                                    int64_t idle_ms, const struct sandbox **out, struct err *e)
{
    return set_idle(c, tenant, id, idle_ms, NULL, out, e);
}

enum err_code core_sandbox_set_idle_pause(struct core *c, const char *tenant, const char *id,
                                          int64_t idle_ms, enum sandbox_tier tier,
                                          const struct sandbox **out, struct err *e)
{
    return set_idle(c, tenant, id, idle_ms, &tier, out, e);
}
