/* A request takes one way: its dialect is found by the path's beginning, its route in the
 * dialect's table, the call is admitted (the key, its tenant, memory for an answer), and the
 * handler of the route runs. A handler answers once, now or from a callback of core later:
 * api_reply_* or api_fail_*, which end the call. A state that a handler hangs on the call is
 * freed with it. This file knows no dialect but for the table of them. Runs on the control loop. */

#include "api/api_internal.h"

#include "api/cay_v1.h"
#include "base/clock.h"
#include "core/key.h"
#include "core/trace.h"
#include "http/json.h"

#include <string.h>

enum err_code api_new(struct core *core, const struct api_config *config, struct api **out,
                      struct err *e)
{
    struct api *a = calloc(1, sizeof(*a));

    if (!a)
        return err_set(e, ERR_EXHAUSTED, "no memory for the API's routes");
    a->core = core;
    a->config = *config;
    a->domain = strdup(config->domain ? config->domain : "");
    a->state_dir = strdup(config->state_dir ? config->state_dir : ".");
    if (!a->domain || !a->state_dir) {
        api_free(a);
        return err_set(e, ERR_EXHAUSTED, "no memory for the API's routes");
    }
    a->config.domain = a->domain;
    a->config.state_dir = a->state_dir;
    if (cay_v1_new(core, &a->config, &a->cay_v1, e) != ERR_OK) {
        api_free(a);
        return e ? e->code : ERR_INTERNAL;
    }
    *out = a;
    return ERR_OK;
}

void api_free(struct api *a)
{
    if (!a)
        return;
    cay_v1_free(a->cay_v1);
    free(a->domain);
    free(a->state_dir);
    free(a);
}

/* -- routes ------------------------------------------------------------------------------------ */

/* Paths that clients with a slightly wrong address ask for, and the right address. */
static const struct {
    const char *path, *hint;
} strays[] = {
    /* E2B's command line prints an address of E2B's dashboard, made from the domain. */
    {"/dashboard",
     "there is no dashboard: `cay ls`, `cay top` and `cay logs SANDBOX` show what one "
     "would"},
    {"/sandbox", "Daytona's API is below /api: set DAYTONA_API_URL as `cay env` prints it"},
    {"/config", "Daytona's API is below /api: set DAYTONA_API_URL as `cay env` prints it"},
    {"/api", "nothing is at this address itself: DAYTONA_API_URL ends in /api, without a slash"},
    {"/mcp", "the address of the Model Context Protocol ends in /mcp, without a slash"},
};

static const char *hint_for_stray(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(strays); i++) {
        size_t len = strlen(strays[i].path);

        if (strncmp(path, strays[i].path, len) == 0 && (path[len] == '/' || path[len] == '\0'))
            return strays[i].hint;
    }
    return NULL;
}

static void refuse_route(struct api_call *call, const char *allow)
{
    const char *hint = hint_for_stray(call->request->path);
    struct err e;

    if (allow[0]) {
        api_header_add(call, "Allow", allow);
        api_fail(call, 405, "%s is not allowed on %s; allowed: %s", call->request->method,
                 call->request->path, allow);
        return;
    }
    err_set(&e, ERR_NOT_FOUND, "there is no %s %s in this API", call->request->method,
            call->request->path);
    if (hint)
        err_hint(&e, "%s", hint);
    api_fail_err(call, &e);
}

/* True: go on. Otherwise the call was answered. */
static bool admit(struct api_call *call)
{
    struct err e;

    if (call->dialect->admit && !call->dialect->admit(call))
        return false;
    if (call->route->access == API_OPEN)
        return true;
    if (core_authenticate(call->core, call->request->key, &call->who, &e) != ERR_OK) {
        api_fail_err(call, &e);
        return false;
    }
    if (api_role_may(call->who.role, call->route->access))
        return true;
    if (call->route->access == API_OPERATE)
        api_fail(call, 403, "only the operator of this server may do that; use the operator's key");
    else
        api_fail(call, 403, "this API key is %s; use one of the role owner",
                 core_role_name(call->who.role));
    return false;
}

/* The call may be over when its handler returns. */
static void handle(struct api_call *call)
{
    struct core *c = call->core;
    const struct trace_context before = core_trace_call(c, call->request->headers[API_TRACEPARENT]);

    (void)json_was_cut(); /* of another call */
    call->route->handler(call);
    (void)trace_enter(c, &before);
}

void api_dispatch(struct api *a, struct api_request *r, api_done done, void *arg)
{
    struct api_call *call = calloc(1, sizeof(*call));
    char allow[128];

    if (!call) {
        struct api_response response = {.status = 503};

        api_request_free(r);
        done(arg, &response);
        return;
    }
    call->api = a;
    call->core = a->core;
    call->request = r;
    call->begun_us = clock_mono_us();
    call->done = done;
    call->done_arg = arg;
    call->dialect = api_route_dialect(a->config.dialects, r->path);
    call->route = api_route_find(call->dialect, r->method, r->path, call->params, allow,
                                 sizeof(allow));
    if (!call->route) {
        refuse_route(call, allow);
        return;
    }
    call->has_begun = core_call_begin(a->core);
    if (!call->has_begun)
        api_fail(call, 503, "the server's memory is out; try again in a moment");
    else if (strlen(r->query) > API_QUERY_MAX_BYTES)
        api_fail(call, 400, "the query of the address has more than %u bytes", API_QUERY_MAX_BYTES);
    else if (admit(call))
        handle(call);
}
