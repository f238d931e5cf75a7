/* A response is made in one of three orders: http_respond alone; begin, any number of writes,
 * end; or for the relay a raw head, contents that are framed already, end (an interim head may
 * come before). Whether the connection serves another request is decided when the head is
 * written. A write that the peer does not take says so (1), and the writer goes on at the
 * drain. Nothing is written after the end, which conn.c then finishes. */
#include "http/response.h"

#include "base/log.h"
#include "http/json.h"
#include "http/server_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/uio.h>

#define MAX_PIECES   4
#define DIRECT_BYTES 16384u /* from here on a copy costs more than an early write */

/* -- heads ------------------------------------------------------------------------------------- */

/* A head is the program's own: a mistake in it is a fault of the code, and not an answer. */
NORETURN static void broken(const char *why)
{
    log_error("http: a response's head cannot be written: %s", why);
    abort();
}

static void put(struct buf *b, const char *s, size_t n)
{
    if (buf_append(b, s, n) < 0)
        broken("it is longer than the program's own heads are");
}

void response_put(struct buf *b, const char *s)
{
    put(b, s, strlen(s));
}

void response_put_number(struct buf *b, uint64_t value)
{
    char text[24];
    char *p = text + sizeof(text);

    do
        *--p = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    put(b, p, (size_t)(text + sizeof(text) - p));
}

/* A header that could end the head early would be a hole, not an error to report. */
void response_put_header(struct buf *b, const char *name, const char *value)
{
    for (const char *p = name; *p; p++)
        if (!gate_is_token((unsigned char)*p))
            broken("a character in the name of a header");
    for (const char *p = value; *p; p++)
        if (!gate_is_value((unsigned char)*p))
            broken("a character in the value of a header");
    response_put(b, name);
    put(b, ": ", 2);
    response_put(b, value);
    put(b, "\r\n", 2);
}

static void put_status(struct http_server *s, struct buf *b, int status, const char *reason)
{
    const char *text = reason ? reason : http_status_text(status);

    for (const char *p = text; *p; p++)
        if (*p < 0x20 || *p > 0x7e)
            broken("a character in the status text");
    buf_clear(b);
    put(b, "HTTP/1.1 ", 9);
    response_put_number(b, (uint64_t)status);
    put(b, " ", 1);
    response_put(b, text);
    put(b, "\r\nDate: ", 8);
    response_put(b, server_date(s));
    put(b, "\r\n", 2);
}

static void put_framing(struct http_exchange *x, struct buf *b, int status, int64_t length)
{
    if (status == 204 || status < 200 || (status == 304 && length <= 0))
        return;
    if (length >= 0) {
        response_put(b, "Content-Length: ");
        response_put_number(b, (uint64_t)length);
        put(b, "\r\n", 2);
    } else if (x->head.minor == 1) {
        response_put(b, "Transfer-Encoding: chunked\r\n");
        x->chunked = true;
    } else {
        x->close = true; /* HTTP/1.0: the end of the connection ends the body */
    }
}

/* Can the connection serve another request after this response? */
void http_exchange_close_after(struct http_exchange *x)
{
    x->close = true;
}

bool response_must_close(const struct http_exchange *x)
{
    if (x->close || !x->head.keep_alive || x->conn->server->stopping)
        return true;
    if (x->body.done)
        return false;
    if (x->expects_continue)
        return true; /* the client may or may not send its body: the next bytes are unclear */
    return x->head.framing == HTTP_BODY_LENGTH && x->body.left > HTTP_DISCARD_BYTES;
}

static struct buf *make_head(struct http_exchange *x, int status, const struct http_header *headers,
                             size_t n, int64_t length)
{
    struct http_server *s = x->conn->server;
    struct buf *b = &s->scratch;

    assert(!x->begun && status >= 200 && status < 600);
    x->begun = true;
    x->no_body = strcmp(x->head.method, "HEAD") == 0 || status == 204 || status == 304;
    x->counted = length >= 0;
    x->left = length > 0 ? (uint64_t)length : 0;
    x->streams = length < 0 && !x->no_body;
    put_status(s, b, status, x->reason);
    x->reason = NULL;
    for (size_t i = 0; i < n; i++)
        response_put_header(b, headers[i].name, headers[i].value);
    put_framing(x, b, status, length);
    x->close = response_must_close(x);
    if (x->close)
        response_put(b, "Connection: close\r\n");
    else if (x->head.minor == 0)
        response_put(b, "Connection: keep-alive\r\n");
    put(b, "\r\n", 2);
    return b;
}

static void set_ended(struct http_exchange *x)
{
    x->ended = true;
    x->want_drain = false;
    if (x->mode != BODY_TUNNEL)
        x->mode = BODY_DISCARD;
    server_mark_dirty(x->conn);
}

void http_response_reason(struct http_exchange *x, const char *text)
{
    x->reason = text;
}

/* -- responses --------------------------------------------------------------------------------- */

void http_respond(struct http_exchange *x, int status, const struct http_header *headers, size_t n,
                  const void *body, size_t len)
{
    struct buf *head = make_head(x, status, headers, n, (int64_t)len);
    struct iovec iov[2] = {{.iov_base = head->data, .iov_len = head->len},
                           {.iov_base = (void *)body, .iov_len = x->no_body ? 0 : len}};

    set_ended(x);
    if (!x->aborted)
        conn_send(x->conn, iov, 2, true);
}

static void error_body(struct buf *b, int status, const char *text)
{
    buf_clear(b);
    put(b, "{\"code\":", 8);
    response_put_number(b, (uint64_t)status);
    response_put(b, ",\"message\":");
    if (json_append_text(b, text, strlen(text)) < 0)
        abort(); /* texts are bounded and the buffer is made for them */
    put(b, "}", 1);
}

void http_respond_error(struct http_exchange *x, int status, const char *fmt, ...)
{
    static const struct http_header json = {"Content-Type", "application/json"};
    struct buf *body = &x->conn->server->error_body;
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    error_body(body, status, text);
    http_respond(x, status, &json, 1, body->data, body->len);
}

void response_refuse(struct conn *c, int status, const char *why)
{
    struct http_server *s = c->server;
    struct buf *body = &s->error_body;
    struct iovec iov[2];

    error_body(body, status, why);
    put_status(s, &s->scratch, status, NULL);
    response_put(&s->scratch,
                 "Content-Type: application/json\r\nConnection: close\r\nContent-Length: ");
    response_put_number(&s->scratch, body->len);
    put(&s->scratch, "\r\n\r\n", 4);
    iov[0] = (struct iovec){.iov_base = s->scratch.data, .iov_len = s->scratch.len};
    iov[1] = (struct iovec){.iov_base = body->data, .iov_len = body->len};
    c->state = CONN_CLOSING;
    c->linger_left = 16u * 1024u * 1024u;
    conn_send(c, iov, 2, true);
}

void response_refuse_tls(struct conn *c)
{
    struct iovec iov = {.iov_base = (char[]){HTTP_LAYER_ALERT},
                        .iov_len = sizeof(HTTP_LAYER_ALERT) - 1};

    c->state = CONN_CLOSING;
    c->linger_left = HTTP_MAX_HEAD_BYTES;
    conn_send(c, &iov, 1, true);
}

void http_response_begin(struct http_exchange *x, int status, const struct http_header *headers,
                         size_t n, int64_t length)
{
    struct buf *head = make_head(x, status, headers, n, length);
    struct iovec iov = {.iov_base = head->data, .iov_len = head->len};

    conn_send(x->conn, &iov, 1, false);
    server_mark_dirty(x->conn);
}

/* Frames pieces of len bytes together into out; how many it has then. */
static int frame(const struct http_exchange *x, const struct iovec *iov, int n, size_t len,
                 char size[24], struct iovec *out)
{
    int count = 0;

    if (x->chunked)
        out[count++] = (struct iovec){.iov_base = size,
                                      .iov_len = (size_t)snprintf(size, 24, "%zx\r\n", len)};
    for (int i = 0; i < n; i++)
        out[count++] = iov[i];
    if (x->chunked)
        out[count++] = (struct iovec){.iov_base = (void *)"\r\n", .iov_len = 2};
    return count;
}

int response_writev(struct http_exchange *x, const struct iovec *iov, int n)
{
    struct conn *c = x->conn;
    size_t high = c->server->config.write_high_bytes, len = 0;
    struct iovec framed[MAX_PIECES + 2];
    char size[24];

    assert(x->begun && !x->ended && n <= MAX_PIECES);
    for (int i = 0; i < n; i++)
        len += iov[i].iov_len;
    if (len == 0 || x->aborted || x->no_body)
        return 0;
    if (x->counted && len > x->left) { /* nothing after it would make sense to the peer */
        log_error("http: a response is longer than its Content-Length");
        http_exchange_abort(x);
        return 0;
    }
    x->left -= x->counted ? len : 0;
    n = frame(x, iov, n, len, size, framed);
    conn_send(c, framed, n, len >= DIRECT_BYTES);
    if (c->out.len > high)
        conn_flush(c);
    server_mark_dirty(c);
    x->want_drain |= c->out.len > high;
    x->drain_at = high / 2;
    return c->out.len > high;
}

int http_response_write(struct http_exchange *x, const void *data, size_t len)
{
    struct iovec iov = {.iov_base = (void *)data, .iov_len = len};

    return response_writev(x, &iov, 1);
}

void http_response_on_drain(struct http_exchange *x,
                            void (*cb)(struct http_exchange *x, void *data))
{
    x->on_drain = cb;
}

void http_response_end(struct http_exchange *x)
{
    struct iovec iov = {.iov_base = (void *)"0\r\n\r\n", .iov_len = 5};

    assert(x->begun && !x->ended);
    if (x->chunked && !x->no_body && !x->aborted)
        conn_send(x->conn, &iov, 1, false);
    if (x->counted && x->left > 0 && !x->no_body)
        http_exchange_abort(x);
    set_ended(x);
}

/* -- for the relay ----------------------------------------------------------------------------- */

void response_begin_raw(struct http_exchange *x, const char *head, size_t n, bool close,
                        bool no_body)
{
    struct iovec iov = {.iov_base = (void *)head, .iov_len = n};

    assert(!x->begun);
    x->begun = x->raw = true;
    x->no_body = no_body;
    x->close |= close;
    conn_send(x->conn, &iov, 1, false);
    server_mark_dirty(x->conn);
}

int response_pass(struct http_exchange *x, struct pass *p)
{
    struct conn *c = x->conn;

    assert(x->begun && !x->ended && x->raw);
    if (x->aborted || x->no_body)
        pass_drop(p);
    else
        conn_pass(c, p);
    server_mark_dirty(c);
    x->want_drain |= c->out.len > 0;
    x->drain_at = 0;
    return c->out.len > 0;
}

void response_interim(struct http_exchange *x, const char *head, size_t n)
{
    struct iovec iov = {.iov_base = (void *)head, .iov_len = n};

    assert(!x->begun);
    conn_send(x->conn, &iov, 1, true);
}

void response_tunnel(struct http_exchange *x, const char *head, size_t n,
                     void (*on_data)(struct http_exchange *, const char *, size_t),
                     void (*on_end)(struct http_exchange *))
{
    response_begin_raw(x, head, n, true, false);
    x->mode = BODY_TUNNEL;
    x->paused = x->end_reported = false;
    x->on_data = on_data;
    x->on_end = on_end;
}

void response_shut(struct http_exchange *x)
{
    x->shut_requested = true;
    server_mark_dirty(x->conn);
}
