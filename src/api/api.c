/* A request takes one way: its dialect is found by the path's beginning, its route in the
 * dialect's table, the call is admitted (the key, its tenant, memory for an answer), and the
 * handler of the route runs. A handler answers once, now or from a callback of core later:
 * api_reply_* or api_fail_*, which end the call. A state that a handler hangs on the call is
 * freed with it. What is in this file knows no dialect but for the table of them. Runs on the
 * control loop. */

#include "api/api.h"

#include "api/cay_v1.h"
#include "api/openmetrics.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/key.h"
#include "core/trace.h"
#include "http/json.h"
#include "http/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct api {
    struct core *core;
    struct api_config config;
    char *domain, *state_dir;
    struct cay_v1 *cay_v1;
    struct api_metrics metrics;
};

static const int statuses[ERR_CODE_COUNT] = {
    [ERR_OK] = 200,
    [ERR_INVALID] = 400,
    [ERR_UNAUTHENTICATED] = 401,
    [ERR_DENIED] = 403,
    [ERR_NOT_FOUND] = 404,
    [ERR_EXISTS] = 409,
    [ERR_CONFLICT] = 409,
    [ERR_EXHAUSTED] = 429,
    [ERR_TOO_LARGE] = 400,
    [ERR_NO_SPACE] = 507,
    [ERR_TIMEOUT] = 504,
    [ERR_UNAVAILABLE] = 503,
    [ERR_UNIMPLEMENTED] = 501,
    [ERR_CANCELED] = 499,
    [ERR_INTERNAL] = 500,
};

int api_status_of(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT ? statuses[code] : 500;
}

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

const struct api_config *api_config_of(const struct api *a)
{
    return &a->config;
}

struct cay_v1 *api_cay_v1(const struct api *a)
{
    return a->cay_v1;
}

struct api_metrics *api_metrics_of(struct api *a)
{
    return &a->metrics;
}

void api_response_free(struct api_response *r)
{
    free(r->body);
    r->body = NULL;
    r->body_len = 0;
    if (r->stream_fd > 0)
        close(r->stream_fd);
    r->stream_fd = 0;
}

/* -- answers ----------------------------------------------------------------------------------- */

static void finish(struct api_call *call, int status)
{
    struct api_response response = call->response;

    response.status = status;
    api_metrics_answered(&call->api->metrics, call->request->path, status,
                         clock_mono_us() - call->begun_us);
    log_debug("api: %s %s for %s: %d", call->request->method, call->request->path,
              call->who.tenant[0] ? call->who.tenant : "-", status);
    call->done(call->done_arg, &response);
    if (call->state_free)
        call->state_free(call->state);
    json_decref(call->body);
    api_request_free(call->request);
    if (call->has_begun)
        core_call_end(call->core);
    free(call);
}

void api_header_add(struct api_call *call, const char *name, const char *value)
{
    struct api_response *r = &call->response;

    if (r->header_count >= API_HEADERS_MAX)
        return;
    snprintf(r->headers[r->header_count].name, sizeof(r->headers[0].name), "%s", name);
    snprintf(r->headers[r->header_count].value, sizeof(r->headers[0].value), "%s", value);
    r->header_count++;
}

void api_reply_json(struct api_call *call, int status, json_t *body)
{
    static const char no_memory[] = "{\"code\":500,\"message\":\"no memory for the answer\"}";

    call->response.body = body ? json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(body);
    if (!call->response.body) {
        call->response.body = strdup(no_memory);
        status = 500;
    }
    call->response.body_len = call->response.body ? strlen(call->response.body) : 0;
    finish(call, status);
}

void api_reply_text(struct api_call *call, int status, const char *json, size_t len)
{
    call->response.body = strndup(json, len);
    if (!call->response.body) {
        api_reply_json(call, 503, NULL);
        return;
    }
    call->response.body_len = strlen(call->response.body);
    finish(call, status);
}

void api_reply_empty(struct api_call *call, int status)
{
    finish(call, status);
}

/* The key may have been revoked since the call began: streams that are there then end
 * (connloop_key_revoked), and one that begins later would not. */
void api_reply_stream(struct api_call *call, const char *type, int fd)
{
    struct core_identity who;
    struct err e;

    if (core_authenticate(call->core, call->request->key, &who, &e) != ERR_OK) {
        close(fd);
        api_fail_err(call, &e);
        return;
    }
    call->response.stream_fd = fd;
    call->response.stream_type = type;
    finish(call, 200);
}

json_t *api_json_text(const char *text)
{
    size_t n = strlen(text);
    json_t *s = json_stringn(text, n);

    while (!s && n > 0)
        s = json_stringn(text, --n);
    return s ? s : json_string("");
}

void api_fail(struct api_call *call, int status, const char *fmt, ...)
{
    struct err e;
    va_list ap;
    char text[sizeof(e.text)];

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    err_set(&e, ERR_INTERNAL, "%s", text); /* replaces control characters */
    api_reply_json(call, status, call->dialect->error(call, status, e.text, ""));
}

void api_fail_err(struct api_call *call, const struct err *e)
{
    int status = api_status_of(e->code);
    char message[sizeof(e->text) + sizeof(e->hint) + 4];

    if (status >= 500)
        log_warn("api: %s %s: %s", call->request->method, call->request->path, e->text);
    /* The SDKs show `message` alone: the hint must be in it to reach the caller. */
    snprintf(message, sizeof(message), "%s%s%s", e->text, e->hint[0] ? "; " : "", e->hint);
    /* 429 is a limit of the tenant's own, 503 a machine or a part of it that is busy: both pass. */
    if (status == 429 || status == 503) {
        api_header_add(call, "Retry-After", "1");
        api_header_add(call, "Should-Retry", "true"); /* E2B's SDKs from 2.61 on go by it */
    }
    api_reply_json(call, status, call->dialect->error(call, status, message, e->hint));
}

void api_unsupported(struct api_call *call)
{
    if (strstr(call->request->path, "//")) {
        api_fail(call, 404,
                 "there is no %s here: the address that it was made from ends in a slash",
                 call->request->path);
        return;
    }
    api_fail(call, 501, "not supported yet by this server: %s", call->route->note);
}

/* -- what handlers read ------------------------------------------------------------------------ */

bool api_call_body(struct api_call *call)
{
    struct err e;
    json_t *body = NULL;

    if (json_parse_request(call->request->body, call->request->body_len, true, &body, &e) !=
        ERR_OK) {
        api_fail_err(call, &e);
        return false;
    }
    if (!json_is_object(body)) {
        json_decref(body);
        api_fail(call, 400, "the body must be a JSON object");
        return false;
    }
    call->body = body;
    return true;
}

void *api_call_state(struct api_call *call, size_t size, void (*state_free)(void *state))
{
    void *state;

    if (!api_call_body(call)) /* the call was answered, and is gone */
        return NULL;
    state = calloc(1, size);
    if (!state) {
        api_fail(call, 503, "memory is out");
        return NULL;
    }
    call->state = state;
    call->state_free = state_free;
    return state;
}

bool api_call_query(struct api_call *call, const char *name, char *out, size_t size)
{
    ssize_t n = http_query_get(call->request->query, name, out, size);

    if (n >= 0)
        return true;
    out[0] = '\0';
    if (n == -ENOENT)
        return true;
    api_fail(call, 400, "the query parameter \"%s\" is %s", name,
             n == -EMSGSIZE ? "too long" : "not validly percent-encoded");
    return false;
}

bool api_call_query_int(struct api_call *call, const char *name, int64_t min, int64_t max,
                        int64_t *out)
{
    char text[32], *end;
    long long value;

    if (!api_call_query(call, name, text, sizeof(text)))
        return false;
    if (text[0] == '\0')
        return true;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno || *end || end == text || text[0] == ' ' || value < min || value > max) {
        api_fail(call, 400,
                 "the query parameter \"%s\" must be a whole number of %lld to %lld, not \"%s\"",
                 name, (long long)min, (long long)max, text);
        return false;
    }
    *out = value;
    return true;
}

enum err_code api_read_maps(const json_t *body, const char *metadata, const char *env,
                            struct sandbox_request *r, struct err *e)
{
    enum err_code rc;

    if ((rc = json_get_obj(body, metadata, NULL, JSON_OPTIONAL, &r->metadata, e)) ||
        (rc = json_get_obj(body, env, NULL, JSON_OPTIONAL, &r->env, e)))
        return rc;
    if (r->metadata && (rc = json_check_str_map(r->metadata, metadata, API_MAP_MAX_COUNT,
                                                API_METADATA_MAX_BYTES, e)))
        return rc;
    return r->env ? json_check_env(r->env, env, API_MAP_MAX_COUNT, API_ENV_MAX_BYTES, e) : ERR_OK;
}

json_t *api_json_time(int64_t real_ms)
{
    char text[CLOCK_RFC3339_SIZE];

    clock_format_rfc3339(real_ms, text);
    return json_string(text);
}

/* -- routes ------------------------------------------------------------------------------------ */

/* What a client asks for whose address is not quite right, and the address that is. */
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
