/* The end of a call: its answer in its dialect's shape, counted, and all that the call held is
 * freed. A handler calls one of these once. Knows no route and no dialect's table. */

#include "api/api_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/key.h"
#include "http/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(ERR_CODE_COUNT == 15, "a new code of errors: give it a status");

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

void api_response_free(struct api_response *r)
{
    free(r->body);
    r->body = NULL;
    r->body_len = 0;
    if (r->stream_fd > 0)
        close(r->stream_fd);
    r->stream_fd = 0;
    if (r->upload_fd > 0)
        close(r->upload_fd);
    r->upload_fd = 0;
}

static void finish(struct api_call *call, int status)
{
    struct api_response response = call->response;

    response.status = status;
    memcpy(response.tenant, call->who.tenant, sizeof(response.tenant));
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
    static const char no_memory[] =
        "{\"code\":503,\"message\":\"memory is out: the answer is not whole; try again\"}";

    call->response.body = json_was_cut() ? NULL : json_text(body, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(body);
    if (!call->response.body) {
        call->response.body = strdup(no_memory);
        status = 503;
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

void api_reply_file(struct api_call *call, const char *type, int fd, uint64_t bytes)
{
    call->response.stream_bytes = bytes;
    api_reply_stream(call, type, fd);
}

void api_reply_upload(struct api_call *call, int fd, uint64_t number, uint64_t most_bytes)
{
    call->response.upload_fd = fd;
    call->response.upload_number = number;
    call->response.upload_most_bytes = most_bytes;
    finish(call, 202);
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
    (void)json_was_cut();                  /* of what is not sent now */
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
    (void)json_was_cut(); /* of what is not sent now */
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
