/* A sandbox in memory: found by callers that may know of it, moved along the table of life.c (the
 * only file that changes a state), and charged to its tenant by what its state and limits cost.
 * Below every file that works on sandboxes; they are made and freed in sandbox_make.c, and
 * lifecycle.c, create.c and pause.c decide when they move. */

#include "core/sandbox.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/ended.h"
#include "core/life.h"
#include "core/registry.h"
#include "core/state_follow.h"
#include "core/store_sandbox.h"
#include "core/tenant.h"
#include "core/timers.h"

#include <string.h>

/* A sandbox that is being resumed is paused again where that fails, or where a pause waits for it:
 * its charge as paused stays until it runs. */
static bool is_paused(const struct life *life)
{
    return life->group == LIFE_GROUP_PAUSED || life->change == LIFE_CHANGE_RESUME;
}

void sandbox_account(struct sandbox_obj *o)
{
    const struct life *life = sandbox_life(o);
    const struct privsep_limits *l = &o->s.limits;
    const bool counts = !life->gone;
    const uint64_t costs[TENANT_SANDBOX_RESOURCES] = {
        [TENANT_SANDBOXES] = counts,
        [TENANT_PAUSED] = counts && is_paused(life),
        [TENANT_CPU_MILLI] = counts ? l->cpu_milli : 0,
        [TENANT_MEMORY_BYTES] = counts ? l->memory_bytes : 0,
        [TENANT_DISK_BYTES] = counts ? l->disk_bytes : 0,
        [TENANT_FILTERS] = counts && l->filters != 0,
        [TENANT_KEPT] = o->s.kept != 0};

    for (int i = 0; i < TENANT_SANDBOX_RESOURCES; i++)
        tenant_recharge(o->tenant, (enum tenant_resource)i, costs[i], &o->charges[i]);
}

/* Of the state that it leaves, or armed later where it has to be. */
static bool drops_timer(const struct life *from, const struct life *to)
{
    return to->timer == LIFE_TIMER_NONE || to->timer == LIFE_TIMER_REST ||
           from->timer == LIFE_TIMER_REST;
}

enum err_code sandbox_reserve_change(struct sandbox_obj *o, struct err *e)
{
    if (!o->change_reserved && !core_call_begin(o->core))
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    o->change_reserved = true;
    return ERR_OK;
}

void sandbox_release_change(struct sandbox_obj *o)
{
    if (o->change_reserved)
        core_call_end(o->core);
    o->change_reserved = false;
}

void sandbox_move(struct sandbox_obj *o, enum sandbox_state to)
{
    enum sandbox_state before = o->s.state;
    const struct life *from = sandbox_life(o), *next = life_of(to);

    if (!life_may_move(o->s.state, to)) {
        log_error("sandbox %s: from %s to %s is no step", o->s.id, from->name, next->name);
        abort();
    }
    o->s.state = to;
    o->s.archived = false;
    o->s.kept_real_ms = life_is_at_rest(to) ? clock_real_ms() : 0;
    sandbox_account(o);
    if (next->change == LIFE_CHANGE_NONE)
        sandbox_release_change(o);
    if (drops_timer(from, next))
        timers_cancel(&o->core->timers, &o->end);
    state_follow_notify(o, before);
}

struct sandbox_obj *sandbox_get(struct core *c, const char *tenant, const char *id)
{
    struct sandbox_obj *o = registry_find(&c->registry, id);

    return o && (!tenant || strcmp(o->s.tenant, tenant) == 0) ? o : NULL;
}

enum err_code sandbox_visible(struct core *c, const char *tenant, const char *id,
                              struct sandbox_obj **out, struct err *e)
{
    struct sandbox_obj *o = sandbox_get(c, tenant, id);

    if (!o || !sandbox_life(o)->visible || o->s.serves_volume)
        return core_sandbox_absent(c, tenant, id, e);
    *out = o;
    return ERR_OK;
}

enum err_code sandbox_write_through(struct sandbox_obj *o, const struct sandbox *changed,
                                    const struct sandbox **out, struct err *e)
{
    enum err_code code = store_sandbox_update(o->core->store, changed, e);

    if (code != ERR_OK)
        return code;
    o->s = *changed;
    *out = &o->s;
    return ERR_OK;
}

const char *sandbox_state_text(const struct sandbox_obj *o)
{
    const struct life *life = sandbox_life(o);

    if (life_is_at_rest(o->s.state))
        return core_sandbox_has_memory(&o->s) ? "paused with its memory on the disk"
                                              : "paused with its files alone";
    return life->change == LIFE_CHANGE_PAUSE    ? "being paused"
           : life->change == LIFE_CHANGE_RESUME ? "being resumed"
                                                : life->name;
}

enum err_code sandbox_not_running(const struct sandbox_obj *o, struct err *e)
{
    err_set(e, ERR_CONFLICT, "sandbox %s does not run: it is %s", o->s.id, sandbox_state_text(o));
    if (sandbox_life(o)->visible)
        err_hint(e, "resume it first: `cay resume %s`, or connect to it", o->s.id);
    return ERR_CONFLICT;
}

enum err_code sandbox_reachable(struct core *c, const char *tenant, const char *id,
                                struct sandbox_obj **out, struct err *e)
{
    enum err_code code = sandbox_visible(c, tenant, id, out, e);

    if (code == ERR_OK && !sandbox_life(*out)->reachable)
        code = sandbox_not_running(*out, e);
    return code;
}

const struct sandbox *core_sandbox_find(struct core *c, const char *tenant, const char *id)
{
    struct sandbox_obj *o = NULL;

    return sandbox_visible(c, tenant, id, &o, NULL) == ERR_OK ? &o->s : NULL;
}

const struct sandbox *core_sandbox_find_named(struct core *c, const char *tenant, const char *name)
{
    for (size_t i = 0; *name && i < c->registry.n; i++) {
        const struct sandbox *s = &c->registry.order[i]->s, *found = NULL;

        if (strcmp(s->tenant, tenant) == 0 && strcmp(s->name, name) == 0)
            found = core_sandbox_find(c, tenant, s->id);
        if (found)
            return found;
    }
    return NULL;
}

bool sandbox_name_is_taken(const struct core *c, const char *tenant, const char *name)
{
    for (size_t i = 0; *name && i < c->registry.n; i++) {
        const struct sandbox *s = &c->registry.order[i]->s;

        if (strcmp(s->tenant, tenant) == 0 && strcmp(s->name, name) == 0 &&
            (life_of(s->state)->awaits_create || life_of(s->state)->visible))
            return true;
    }
    return false;
}

void sandbox_write_row(struct sandbox_obj *o)
{
    struct err e;

    if (store_sandbox_update(o->core->store, &o->s, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text);
}

bool core_sandbox_pauses_when_idle(const struct sandbox *s)
{
    return s->idle_ms > 0 && s->on_timeout == SANDBOX_ON_TIMEOUT_PAUSE &&
           s->timeout_tier != SANDBOX_TIER_FILES;
}

bool sandbox_has_memory_on_disk(const struct sandbox_obj *o)
{
    return life_is_at_rest(o->s.state) && o->s.kept_memory;
}
