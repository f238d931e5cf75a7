/* The sandbox that a path names, and two calls about it: to show and to end it. A sandbox that
 * waits for its image (daytona_later.h) is shown and ended too, and refused to all others. */
#include "api/daytona_later.h"

const struct sandbox *daytona_find(struct api_call *call)
{
    const char *given = call->params[0];
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, given);
    const struct core_create_later *l;

    if (!s)
        s = core_sandbox_find_named(call->core, call->who.tenant, given);
    l = s ? NULL : daytona_later_find(call);
    if (l)
        daytona_later_refuse(call, l);
    else if (!s)
        daytona_no_sandbox(call);
    else if (api_role_may(call->who.role,
                          API_WRITE)) /* a key that may only read keeps nothing running */
        core_sandbox_used(call->core, s->id);
    return s;
}

void daytona_get(struct api_call *call)
{
    const struct core_create_later *l = daytona_later_find(call);
    const struct sandbox *s = l ? NULL : daytona_find(call);

    if (l)
        api_reply_json(call, 200, daytona_later_json(call, l, false));
    else if (s)
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
}

static void free_last_words(void *state)
{
    json_decref(state);
}

static void removed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (!why)
        api_reply_json(call, 200, json_incref(call->state));
    else if (why->code == ERR_NOT_FOUND)
        daytona_no_sandbox(call);
    else
        api_fail_err(call, why);
}

/* The answer is what it was, which cannot be asked any more when it has ended. */
void daytona_sandbox_delete(struct api_call *call, const struct sandbox *s)
{
    call->state = daytona_sandbox_json(call, s, false);
    call->state_free = free_last_words;
    json_object_set_new(call->state, "state", json_string(daytona_state_name(SANDBOX_ENDED)));
    core_sandbox_kill(call->core, call->who.tenant, s->id, removed, call);
}

void daytona_remove(struct api_call *call)
{
    const struct core_create_later *l = daytona_later_find(call);
    const struct sandbox *s = l ? NULL : daytona_find(call);

    if (l)
        daytona_later_remove(call, l);
    else if (s)
        daytona_sandbox_delete(call, s);
}
