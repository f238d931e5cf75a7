/* Starting, stopping and pausing. A sandbox that is stopped has its files and nothing else; one
 * that is paused has its processes too. A state that a call does not allow is 400, as upstream has
 * it. */
#include "api/daytona.h"

#include "base/clock.h"
#include "core/archive.h"
#include "core/life.h"

#include <string.h>

/* As of its creation: so long after the last call, or as long as there is. */
static int64_t life_ms(struct api_call *call, const struct sandbox *s)
{
    return s->idle_ms > 0 ? s->idle_ms : (int64_t)api_config_of(call->api)->max_ttl_ms;
}

static void answer(struct api_call *call, const char *id)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, id);

    if (s)
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
    else
        daytona_no_sandbox(call);
}

/* The sandbox is in the requested state already. */
static void changed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (why && why->code == ERR_EXISTS)
        answer(call, call->state);
    else
        daytona_sandbox_done(arg, s, why);
}

static bool remember(struct api_call *call, const struct sandbox *s)
{
    call->state = strdup(s->id);
    call->state_free = free;
    if (!call->state)
        api_fail(call, 503, "memory is out");
    return call->state != NULL;
}

void daytona_start(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);

    if (s && remember(call, s))
        core_sandbox_resume(call->core, call->who.tenant, s->id, life_ms(call, s), false, changed,
                            call);
}

static void stopped(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;
    const struct sandbox *now = core_sandbox_find(call->core, call->who.tenant, call->state);

    if (why && why->code != ERR_EXISTS)
        api_fail_err(call, why);
    else if (now && !core_sandbox_is_stopped(now))
        api_fail(call, 409, "Sandbox %s was not stopped: it is %s; try again", now->id,
                 daytona_state(now));
    else
        answer(call, call->state);
}

/* A sandbox that runs, and has autoDeleteInterval 0, is deleted when it stops. Of one that is
 * paused or stopped nothing is lost: another client has kept it. */
void daytona_stop(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    bool is_paused = s && life_of(s->state)->pause == LIFE_CALL_ALREADY;

    if (!s)
        return;
    if (!is_paused && s->on_timeout == SANDBOX_ON_TIMEOUT_KILL)
        daytona_sandbox_delete(call, s);
    else if (core_sandbox_is_archived(s, clock_real_ms()))
        api_fail(call, 400, "Sandbox %s is archived: start it, and stop it then", s->id);
    else if (!remember(call, s))
        return;
    else if (is_paused && core_sandbox_has_memory(s))
        core_sandbox_stop_paused(call->core, call->who.tenant, s->id, life_ms(call, s), stopped,
                                 call);
    else
        core_sandbox_pause(call->core, call->who.tenant, s->id, SANDBOX_TIER_FILES, changed, call);
}

void daytona_pause(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);

    if (!s)
        return;
    if (life_of(s->state)->pause == LIFE_CALL_ALREADY && !core_sandbox_has_memory(s))
        api_fail(call, 400, "Sandbox %s is stopped: start it, and pause it then", s->id);
    else if (remember(call, s))
        core_sandbox_pause(call->core, call->who.tenant, s->id, SANDBOX_TIER_FROZEN, changed, call);
}

/* An archived sandbox stays so. A start makes a running one of it, as of one that is stopped. */
void daytona_archive(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    struct err e;

    if (!s)
        return;
    if (core_sandbox_archive(call->core, call->who.tenant, s->id, &s, &e) != ERR_OK) {
        if (e.code == ERR_CONFLICT) /* it is not stopped */
            e.code = ERR_INVALID;
        api_fail_err(call, &e);
    } else {
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
    }
}

/* No sandbox here is in upstream's state `error` and could be brought back from it: one that an
 * image's build or its create has failed never was. */
void daytona_recover(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);

    if (s)
        api_fail(call, 400, "Sandbox is not in a recoverable state: %s is %s", s->id,
                 daytona_state(s));
}

/* As upstream, for older clients: files are kept without it. */
void daytona_backup(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);

    if (s)
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
}
