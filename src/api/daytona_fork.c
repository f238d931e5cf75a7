/* Forks for Daytona's clients: a sandbox is made as one, and is asked for those that were made of
 * it, and for those that it was made of. Of both the ones that are there are shown: nothing is kept
 * of a sandbox that has ended. */
#include "api/daytona_later.h"
#include "base/clock.h"
#include "core/fork.h"
#include "core/life.h"

#define FORKS_MAX     100u /* of an answer, as upstream's */
#define ANCESTORS_MAX 50u

/* -- making one -------------------------------------------------------------------------------- */

/* As long as the source still has; 0: no end but by its idle time. */
static int64_t left_ms(struct api_call *call, const struct sandbox *s)
{
    int64_t most_ms = (int64_t)api_config_of(call->api)->max_ttl_ms, end_ms = s->last_end_real_ms;

    if (end_ms == 0 && s->idle_ms > 0)
        return 0;
    if (end_ms == 0 && s->on_timeout == SANDBOX_ON_TIMEOUT_KILL)
        end_ms = s->end_real_ms;
    return end_ms == 0 ? most_ms : MIN(MAX(end_ms - clock_real_ms(), 1), most_ms);
}

static void forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct api_call *call = arg;
    const struct sandbox *s = NULL;

    if (!why && n > 0 && *forks[0].id)
        s = core_sandbox_find(call->core, call->who.tenant, forks[0].id);
    if (s)
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
    else if (why || (n > 0 && !*forks[0].id))
        api_fail_err(call, why ? why : &forks[0].why);
    else
        api_fail(call, 404, "the fork has ended already");
}

static void fork_one(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    struct core_fork_request r = {.count = 1};
    struct err e;

    if (!s || !api_call_body(call))
        return;
    r.ttl_ms = left_ms(call, s);
    r.idle_ms = s->idle_ms;
    if (s->destroy_real_ms)
        r.destroy_ms = MAX(s->destroy_real_ms - clock_real_ms(), 1);
    if (daytona_name_read(call->body, &r.name, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (!life_of(s->state)->reachable)
        api_fail(call, 400, "Sandbox must be in started state to fork");
    else
        core_sandbox_fork(call->core, call->who.tenant, s->id, &r, forked, call);
}

/* -- of which it is one, and its own ----------------------------------------------------------- */

/* NULL: it is no fork, or its source has ended. */
static const struct sandbox *parent_of(struct api_call *call, const struct sandbox *s)
{
    return *s->parent ? core_sandbox_find(call->core, call->who.tenant, s->parent) : NULL;
}

/* `includeDestroyed` finds none more. */
static void get_forks(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call), *forks[FORKS_MAX];
    json_t *out;
    size_t n;

    if (!s)
        return;
    out = json_array();
    n = core_sandbox_forks(call->core, call->who.tenant, s->id, forks, FORKS_MAX);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, daytona_sandbox_json(call, forks[i], false));
    api_reply_json(call, 200, out);
}

static void get_parent(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call), *parent;

    if (!s)
        return;
    parent = parent_of(call, s);
    if (parent)
        api_reply_json(call, 200, daytona_sandbox_json(call, parent, false));
    else
        api_fail(call, 404, "Parent sandbox not found for sandbox %s", call->params[0]);
}

/* From the first of them on, as upstream. A parent is older than its fork, so that this ends. */
static void get_ancestors(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    json_t *out;

    if (!s)
        return;
    out = json_array();
    for (size_t i = 0; i < ANCESTORS_MAX && (s = parent_of(call, s)); i++)
        json_array_insert_new(out, 0, daytona_sandbox_json(call, s, false));
    api_reply_json(call, 200, out);
}

const struct api_route daytona_fork_routes[] = {
    {API_WRITE, "POST", "/api/sandbox/{id}/fork", fork_one},
    {API_READ, "GET", "/api/sandbox/{id}/forks", get_forks},
    {API_READ, "GET", "/api/sandbox/{id}/parent", get_parent},
    {API_READ, "GET", "/api/sandbox/{id}/ancestors", get_ancestors},
    {0},
};
