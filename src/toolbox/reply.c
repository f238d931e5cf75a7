/* Answers of the toolbox in Daytona's shapes: JSON, empty, text, and errors with the codes that
 * its SDKs compare. All handlers answer through this file, once for each call; a call whose
 * client has gone is not answered (call.c). Errors of the agent come in two forms, Connect's and
 * plain, and are read here; the status that a client sees is derived from the code alone, the
 * message is for people. */

#include "toolbox/reply.h"

#include "base/buf.h"
#include "base/clock.h"
#include "http/json.h"
#include "http/server.h"
#include "toolbox/call.h"
#include "toolbox/routes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MESSAGE_SIZE 1024

static const struct http_header cors = {"Access-Control-Allow-Origin", "*"};
static const struct http_header json_header = {"Content-Type", "application/json"};

/* Text that may hold any bytes as a JSON string. */
static json_t *text_json(const char *text)
{
    CLEANUP_BUF struct buf b = {0};
    json_t *out = NULL;

    buf_init(&b, 64 * MESSAGE_SIZE);
    if (json_append_text(&b, text, strlen(text)) == 0)
        out = json_load(b.data, b.len);
    if (!out)
        json_set_cut();
    return out;
}

void toolbox_reply_json(struct toolbox_call *c, int status, json_t *body)
{
    const struct http_header headers[] = {json_header, cors, {"Retry-After", "1"}};
    size_t count = ARRAY_SIZE(headers) - (status == 429 || status == 503 ? 0 : 1);
    CLEANUP_FREE char *text = json_was_cut() ? NULL : json_text(body, JSON_COMPACT);

    if (c->x && !c->answered) {
        c->answered = true;
        if (text)
            http_respond(c->x, status, headers, count, text, strlen(text));
        else
            http_respond_error(c->x, 503, "memory is out");
    }
    json_decref(body);
}

void toolbox_reply_empty(struct toolbox_call *c, int status)
{
    if (!c->x || c->answered)
        return;
    c->answered = true;
    http_respond(c->x, status, &cors, 1, NULL, 0);
}

void toolbox_reply_text(struct toolbox_call *c, const char *json, size_t len)
{
    const struct http_header headers[] = {json_header, cors};

    if (!c->x || c->answered)
        return;
    c->answered = true;
    http_respond(c->x, 200, headers, ARRAY_SIZE(headers), json, len);
}

int toolbox_put_text(struct buf *b, const char *name, const char *text, size_t len)
{
    int rc = buf_printf(b, "%s\"%s\":", b->len > 1 ? "," : "", name);

    return rc < 0 ? rc : json_append_text(b, text, len);
}

/* -- errors ------------------------------------------------------------------------------------ */

static const char *code_of(int status)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {{400, "BAD_REQUEST"},
                 {401, "UNAUTHORIZED"},
                 {403, "FORBIDDEN"},
                 {404, "NOT_FOUND"},
                 {408, "REQUEST_TIMEOUT"},
                 {409, "CONFLICT"},
                 {410, "GONE"},
                 {422, "UNPROCESSABLE_ENTITY"},
                 {429, "TOO_MANY_REQUESTS"},
                 {501, "NOT_IMPLEMENTED"},
                 {503, "SERVICE_UNAVAILABLE"},
                 {504, "GATEWAY_TIMEOUT"},
                 {507, "INSUFFICIENT_STORAGE"},
                 {413, "PAYLOAD_TOO_LARGE"}};

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return "INTERNAL_SERVER_ERROR";
}

char *toolbox_error_text(const char *message, char *out, size_t size)
{
    static const char system[] = "no such file or directory", ours[] = "file not found";
    size_t used = 0;

    while (*message && used + 1 < size) {
        if (strncasecmp(message, system, strlen(system)) != 0) {
            out[used++] = *message++;
            continue;
        }
        used += MIN((size_t)snprintf(out + used, size - used, "%s", ours), size - used - 1);
        message += strlen(system);
    }
    out[used] = '\0';
    return out;
}

json_t *toolbox_error_json(const struct toolbox_call *c, int status, const char *code,
                           const char *message)
{
    char now[CLOCK_RFC3339_SIZE], text[MESSAGE_SIZE];
    json_t *body = json_object();

    clock_format_rfc3339(clock_real_ms(), now);
    json_object_set_new(body, "statusCode", json_integer(status));
    json_object_set_new(body, "message",
                        text_json(toolbox_error_text(message, text, sizeof(text))));
    json_object_set_new(body, "code", json_string(code ? code : code_of(status)));
    json_object_set_new(body, "source", json_string("DAYTONA_DAEMON"));
    json_object_set_new(body, "timestamp", json_string(now));
    if (c->x) {
        const struct http_head *h = http_exchange_head(c->x);

        json_object_set_new(body, "path", text_json(h->path));
        json_object_set_new(body, "method", text_json(h->method));
    }
    return body;
}

void toolbox_fail(struct toolbox_call *c, int status, const char *code, const char *fmt, ...)
{
    char message[MESSAGE_SIZE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    (void)json_was_cut(); /* of what is not sent now */
    toolbox_reply_json(c, status, toolbox_error_json(c, status, code, message));
}

static int status_of(enum err_code code)
{
    switch (code) {
    case ERR_INVALID: return 400;
    case ERR_UNAUTHENTICATED: return 401;
    case ERR_DENIED: return 403;
    case ERR_NOT_FOUND: return 404;
    case ERR_EXISTS:
    case ERR_CONFLICT:
    case ERR_CANCELED: return 409; /* the sandbox was paused meanwhile */
    case ERR_EXHAUSTED: return 429;
    case ERR_TOO_LARGE: return 413;
    case ERR_NO_SPACE: return 507;
    case ERR_TIMEOUT: return 504;
    case ERR_UNAVAILABLE: return 503;
    case ERR_UNIMPLEMENTED: return 501;
    default: return 500;
    }
}

void toolbox_fail_err(struct toolbox_call *c, const struct err *why)
{
    if (why->code == ERR_CANCELED)
        toolbox_fail(c, status_of(why->code), NULL,
                     "the call was ended: the sandbox was paused, or the server stops");
    else if (why->hint[0])
        toolbox_fail(c, status_of(why->code), NULL, "%s; %s", why->text, why->hint);
    else
        toolbox_fail(c, status_of(why->code), NULL, "%s", why->text);
}

/* -- of files ---------------------------------------------------------------------------------- */

/* Reads the agent's refusal of a path, in Connect's or in plain form. text: its message. */
static void read_refusal(const char *body, size_t len, char *code, size_t code_size, char *text,
                         size_t text_size)
{
    json_t *o = len ? json_load_answer(body, len) : NULL;
    const char *word = json_string_value(json_object_get(o, "code"));
    const char *message = json_string_value(json_object_get(o, "message"));
    struct err e;

    err_set(&e, ERR_INTERNAL, "%.500s", message ? message : "the sandbox's agent refused it");
    snprintf(code, code_size, "%s", word ? word : "");
    snprintf(text, text_size, "%s", e.text); /* without control characters */
    json_decref(o);
}

/* The refusals of an agent, which the sandbox can replace: a redirect, or a question for a key, is
 * not given to a client of this server. */
static bool is_refusal(int status)
{
    static const int all[] = {400, 403, 404, 408, 409, 412, 413, 416, 429, 500, 501, 503, 504, 507};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        if (all[i] == status)
            return true;
    return false;
}

/* A file that is in use is no fault of the server: upstream's status of an upload that fails. */
static bool is_busy(const char *text)
{
    return strcasestr(text, "text file busy") || strcasestr(text, strerror(EBUSY));
}

int toolbox_file_error(int status, const char *body, size_t len, const char *path,
                       const char **code, char *message, size_t size)
{
    char word[32], text[512];

    if (!is_refusal(status)) {
        *code = NULL;
        snprintf(message, size, "the sandbox's agent answers with the status %d", status);
        return 500;
    }
    read_refusal(body, len, word, sizeof(word), text, sizeof(text));
    if (status == 404 || strcmp(word, "not_found") == 0) {
        *code = "FILE_NOT_FOUND";
        snprintf(message, size, "file not found: %.800s", path);
        return 404;
    }
    if (status == 403 || strcmp(word, "permission_denied") == 0) {
        *code = "FILE_ACCESS_DENIED";
        snprintf(message, size, "permission denied: %.800s", path);
        return 403;
    }
    if (strstr(text, "is a directory")) {
        *code = "INVALID_FILE_PATH";
        snprintf(message, size, "invalid file path: path points to a directory: %.800s", path);
        return 400;
    }
    if (status == 409 || strcmp(word, "already_exists") == 0) {
        *code = "CONFLICT";
        snprintf(message, size, "file already exists: %.800s", path);
        return 409;
    }
    *code = status == 400 ? "INVALID_FILE_PATH" : NULL;
    toolbox_error_text(text, message, size);
    return status == 412 || is_busy(text) ? 400 : status;
}

const char *toolbox_whole_code(const char *code)
{
    return code && strcmp(code, "INVALID_FILE_PATH") == 0 ? NULL : code;
}

void toolbox_fail_file(struct toolbox_call *c, const struct http_head *head, const char *body,
                       size_t len, const struct err *why, const char *path)
{
    char message[MESSAGE_SIZE];
    const char *code = NULL;
    int status;

    if (why) {
        toolbox_fail_err(c, why);
        return;
    }
    status = toolbox_file_error(head->status, body, len, path, &code, message, sizeof(message));
    toolbox_fail(c, status, toolbox_whole_code(code), "%s", message);
}

void toolbox_unsupported(struct toolbox_call *c)
{
    toolbox_fail(c, 501, NULL, "not supported by this server: %s", c->route->note);
}
