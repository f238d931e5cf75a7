/* A request is read whole (connect_read), and its handler then answers once: connect_reply or
 * connect_fail for a unary call; for a stream connect_stream_begin, any number of messages,
 * connect_stream_end. After the begin an error can only travel in the last envelope, which
 * connect_fail knows. Called by the services of cay-init. */

#include "http/connect_rpc.h"

#include "base/envelope.h"
#include "http/json.h"
#include "http/response.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TEXT_BYTES 1024u

static const struct {
    const char *name;
    int status;
} codes[] = {
    [CONNECT_OK] = {"ok", 200},
    [CONNECT_CANCELED] = {"canceled", 499},
    [CONNECT_UNKNOWN] = {"unknown", 500},
    [CONNECT_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [CONNECT_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [CONNECT_NOT_FOUND] = {"not_found", 404},
    [CONNECT_ALREADY_EXISTS] = {"already_exists", 409},
    [CONNECT_PERMISSION_DENIED] = {"permission_denied", 403},
    [CONNECT_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [CONNECT_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [CONNECT_ABORTED] = {"aborted", 409},
    [CONNECT_OUT_OF_RANGE] = {"out_of_range", 400},
    [CONNECT_UNIMPLEMENTED] = {"unimplemented", 501},
    [CONNECT_INTERNAL] = {"internal", 500},
    [CONNECT_UNAVAILABLE] = {"unavailable", 503},
    [CONNECT_DATA_LOSS] = {"data_loss", 500},
    [CONNECT_UNAUTHENTICATED] = {"unauthenticated", 401},
};

/* An entry that is not written would be CONNECT_OK: success instead of an error. */
_Static_assert(ERR_CODE_COUNT == 15, "a new code of errors: give it a row in from_err");

static const enum connect_code from_err[ERR_CODE_COUNT] = {
    [ERR_OK] = CONNECT_OK,
    [ERR_INVALID] = CONNECT_INVALID_ARGUMENT,
    [ERR_UNAUTHENTICATED] = CONNECT_UNAUTHENTICATED,
    [ERR_DENIED] = CONNECT_PERMISSION_DENIED,
    [ERR_NOT_FOUND] = CONNECT_NOT_FOUND,
    [ERR_EXISTS] = CONNECT_ALREADY_EXISTS,
    [ERR_CONFLICT] = CONNECT_FAILED_PRECONDITION,
    [ERR_EXHAUSTED] = CONNECT_RESOURCE_EXHAUSTED,
    [ERR_TOO_LARGE] = CONNECT_RESOURCE_EXHAUSTED,
    [ERR_NO_SPACE] = CONNECT_RESOURCE_EXHAUSTED,
    [ERR_TIMEOUT] = CONNECT_DEADLINE_EXCEEDED,
    [ERR_UNAVAILABLE] = CONNECT_UNAVAILABLE,
    [ERR_UNIMPLEMENTED] = CONNECT_UNIMPLEMENTED,
    [ERR_CANCELED] = CONNECT_CANCELED,
    [ERR_INTERNAL] = CONNECT_INTERNAL,
};

const char *connect_code_name(enum connect_code code)
{
    return codes[code].name;
}

int connect_code_http_status(enum connect_code code)
{
    return codes[code].status;
}

enum connect_code connect_code_from_err(enum err_code code)
{
    return code < ERR_CODE_COUNT ? from_err[code] : CONNECT_UNKNOWN;
}

int connect_timeout_ms(const struct http_head *h, uint64_t *out)
{
    const char *text = http_head_get(h, "connect-timeout-ms");
    uint64_t value = 0;
    size_t n;

    if (!text) {
        *out = 0;
        return 0;
    }
    n = strlen(text);
    if (n == 0 || n > 10 || strspn(text, "0123456789") != n)
        return -EINVAL;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    *out = value;
    return 0;
}

/* -- forms ------------------------------------------------------------------------------------- */

/* Is the media type (without its parameters) that one? */
static bool is_type(const char *value, const char *type)
{
    size_t n = value ? strcspn(value, "; \t") : 0;

    return n == strlen(type) && strncasecmp(value, type, n) == 0;
}

static bool wants_stream(const struct http_exchange *x)
{
    return is_type(http_head_get(&x->head, "content-type"), "application/connect+json");
}

/* {"code":...,"message":...} appended to b. */
static int append_error(struct buf *b, enum connect_code code, const char *text)
{
    int r = buf_printf(b, "{\"code\":\"%s\",\"message\":", codes[code].name);

    if (r == 0)
        r = json_append_text(b, text, strlen(text));
    return r < 0 ? r : buf_append(b, "}", 1);
}

static void reply_error(struct http_exchange *x, enum connect_code code, const char *text)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    struct buf body CLEANUP_BUF;

    buf_init(&body, 8 * TEXT_BYTES);
    if (append_error(&body, code, text) < 0)
        http_exchange_abort(x);
    else
        http_respond(x, codes[code].status, &type, 1, body.data, body.len);
}

static int send_envelope(struct http_exchange *x, unsigned char flags, const char *json, size_t len)
{
    char head[ENVELOPE_HEAD_BYTES];
    struct iovec iov[2] = {{.iov_base = head, .iov_len = sizeof(head)},
                           {.iov_base = (void *)json, .iov_len = len}};

    if (len > UINT32_MAX) {
        http_exchange_abort(x);
        return 0;
    }
    envelope_write_head(head, flags, (uint32_t)len);
    return response_writev(x, iov, 2);
}

static void stream_end(struct http_exchange *x, enum connect_code code, const char *text)
{
    struct buf body CLEANUP_BUF;
    int r = 0;

    if (!x->begun)
        connect_stream_begin(x);
    buf_init(&body, 8 * TEXT_BYTES);
    if (code == CONNECT_OK) {
        r = buf_append_str(&body, "{}");
    } else {
        r = buf_append_str(&body, "{\"error\":");
        if (r == 0)
            r = append_error(&body, code, text);
        if (r == 0)
            r = buf_append_str(&body, "}");
    }
    if (r < 0) {
        http_exchange_abort(x);
        return;
    }
    send_envelope(x, ENVELOPE_END, body.data, body.len);
    http_response_end(x);
}

#define FORMAT_TEXT(text, fmt)                   \
    do {                                         \
        va_list ap_;                             \
        va_start(ap_, fmt);                      \
        vsnprintf(text, sizeof(text), fmt, ap_); \
        va_end(ap_);                             \
    } while (0)

void connect_stream_end(struct http_exchange *x, enum connect_code code, const char *fmt, ...)
{
    char text[TEXT_BYTES];

    FORMAT_TEXT(text, fmt);
    stream_end(x, code, text);
}

void connect_fail(struct http_exchange *x, enum connect_code code, const char *fmt, ...)
{
    char text[TEXT_BYTES];

    FORMAT_TEXT(text, fmt);
    if (x->ended)
        return;
    if (x->begun || wants_stream(x))
        stream_end(x, code, text);
    else
        reply_error(x, code, text);
}

/* -- requests ---------------------------------------------------------------------------------- */

static void on_too_large(struct http_exchange *x)
{
    connect_fail(x, CONNECT_RESOURCE_EXHAUSTED, "the message is larger than %zu bytes",
                 x->collect_max);
}

/* The one envelope of a stream's request. 0 and its contents, or -1 when it was answered. */
static int open_envelope(struct http_exchange *x, char **body, size_t *len)
{
    struct envelope one;

    if (!envelope_read_head(*body, *len, &one)) {
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "the request has no whole envelope");
        return -1;
    }
    if (one.flags & ENVELOPE_COMPRESSED) {
        connect_fail(x, CONNECT_UNIMPLEMENTED, "compressed messages are not supported");
        return -1;
    }
    if (one.flags != 0 || one.len != *len - ENVELOPE_HEAD_BYTES) {
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "the request is not one envelope of its length");
        return -1;
    }
    *body += ENVELOPE_HEAD_BYTES;
    *len = one.len;
    return 0;
}

static void on_body(struct http_exchange *x, char *body, size_t len)
{
    bool stream = wants_stream(x);
    json_t *request = NULL;
    struct err e;

    if (stream && open_envelope(x, &body, &len) < 0)
        return;
    if (json_parse(body, len, false, &request, &e) != ERR_OK) {
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "%s", e.text);
        return;
    }
    if (!json_is_object(request)) {
        json_decref(request);
        connect_fail(x, CONNECT_INVALID_ARGUMENT, "the request must be a JSON object");
        return;
    }
    x->rpc_done(x, request, stream);
}

/* Content codings are answered with what would be understood. Connect protocol, unary requests. */
static bool coded(const struct http_exchange *x)
{
    const char *coding = http_head_get(&x->head, "content-encoding");

    return coding && strcasecmp(coding, "identity") != 0;
}

void connect_read(struct http_exchange *x, size_t max,
                  void (*done)(struct http_exchange *x, json_t *request, bool stream))
{
    static const struct http_header allow = {"Allow", "POST"};
    static const struct http_header accept = {"Accept-Post",
                                              "application/json, application/connect+json"};
    bool stream = wants_stream(x);

    if (strcmp(x->head.method, "POST") != 0) {
        http_respond(x, 405, &allow, 1, NULL, 0);
    } else if (!stream && !is_type(http_head_get(&x->head, "content-type"), "application/json")) {
        http_respond(x, 415, &accept, 1, NULL, 0);
    } else if (coded(x)) {
        connect_fail(x, CONNECT_UNIMPLEMENTED, "compressed requests are not supported");
    } else {
        x->rpc_done = done;
        x->on_too_large = on_too_large;
        http_body_collect(x, max + (stream ? ENVELOPE_HEAD_BYTES : 0), on_body);
    }
}

/* -- answers ----------------------------------------------------------------------------------- */

void connect_reply(struct http_exchange *x, json_t *reply)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    char *text CLEANUP_FREE = json_text(reply, JSON_COMPACT);

    if (text)
        http_respond(x, 200, &type, 1, text, strlen(text));
    else
        reply_error(x, CONNECT_INTERNAL, "the answer cannot be written as JSON");
}

void connect_reply_empty(struct http_exchange *x)
{
    json_t *reply = json_object();

    connect_reply(x, reply);
    json_decref(reply);
}

void connect_stream_begin(struct http_exchange *x)
{
    static const struct http_header type = {"Content-Type", "application/connect+json"};

    http_response_begin(x, 200, &type, 1, -1);
}

int connect_stream_send_text(struct http_exchange *x, const char *json, size_t len)
{
    return send_envelope(x, 0, json, len);
}

int connect_stream_send(struct http_exchange *x, json_t *message)
{
    char *text CLEANUP_FREE = json_text(message, JSON_COMPACT);

    if (text)
        return send_envelope(x, 0, text, strlen(text));
    stream_end(x, CONNECT_INTERNAL, "a message cannot be written as JSON");
    return 0;
}
