/* A request and its answer over a socket, on a loop.
 *
 * struct http_client is the call: begun by http_client_start, ended once by finish, which calls
 * done; its memory goes when the wire's handles are closed. The head comes first (take_head), then
 * the body, collected or handed on (take_body). A held call can be paused, written to and ended
 * between its callbacks. Called by core's calls to agents and by the toolbox. */
#include "http/client.h"

#include "base/buf.h"
#include "http/response.h"
#include "http/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define READ_BYTES      16384u
#define MAX_INTERIM     8              /* 1xx responses before the real one */
#define BODY_HIGH_BYTES (256u * 1024u) /* of a body that streams, waiting for the server */

struct http_client {
    struct wire wire;
    struct buf in;   /* the head in the making */
    struct buf body; /* decoded */
    size_t scanned;
    char *storage;
    size_t storage_bytes;
    char *method;
    bool has_head, finished;
    bool body_open; /* of the request: more of it is to come */
    unsigned interim;
    struct parse_body parse;
    struct http_head head;
    bool (*on_data)(void *, const char *, size_t);
    void (*on_head)(void *, const struct http_head *);
    void (*on_drain)(void *);
    void (*done)(void *, const struct http_head *, const char *, size_t, const struct err *, int *);
    void *arg;
};

/* Request and answer may hold secrets: a token server's do. */
static void wipe(struct buf *b)
{
    if (b->base)
        explicit_bzero(b->base, b->cap);
    buf_free(b);
}

static void on_closed(struct wire *w)
{
    struct http_client *c = CONTAINER_OF(w, struct http_client, wire);

    wipe(&c->in);
    wipe(&c->body);
    if (c->storage)
        explicit_bzero(c->storage, c->storage_bytes);
    free(c->storage);
    free(c->method);
    free(c);
}

/* Ends the call. The connection is offered when it is at the end of a message and stays open. */
static void finish(struct http_client *c, const struct err *why, bool reusable)
{
    int fd;

    if (c->finished)
        return;
    c->finished = true;
    fd = wire_close(&c->wire, reusable && !why && !c->wire.layer);
    if (buf_reserve(&c->body, 0) == 0)
        c->body.data[c->body.len] = '\0';
    c->done(c->arg, why ? NULL : &c->head, why ? NULL : c->body.data, why ? 0 : c->body.len, why,
            &fd);
    if (fd >= 0)
        close(fd);
}

static void fail(struct http_client *c, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    finish(c, &e, false);
}

/* Tries to read a head from what has come. False when more is needed, or the call has ended. */
static bool take_head(struct http_client *c)
{
    ssize_t n = gate_head_end(c->in.data, c->in.len, &c->scanned);
    const char *why = "";

    if (n < 0 || (n == 0 && c->in.len > HTTP_MAX_HEAD_BYTES)) {
        fail(c, ERR_INTERNAL, "the answer is not HTTP");
        return false;
    }
    if (n == 0)
        return false;
    free(c->storage);
    c->storage_bytes = gate_storage_bytes((size_t)n);
    c->storage = malloc(c->storage_bytes);
    if (!c->storage) {
        fail(c, ERR_INTERNAL, "out of memory");
        return false;
    }
    if (parse_response(c->in.data, (size_t)n, c->method, c->storage, &c->head, &c->parse, &why) !=
        0) {
        fail(c, ERR_INTERNAL, why);
        return false;
    }
    buf_consume(&c->in, (size_t)n);
    c->scanned = 0;
    c->has_head = c->head.status >= 200;
    if (!c->has_head && (++c->interim > MAX_INTERIM || c->head.status == 101)) {
        fail(c, ERR_INTERNAL, "an interim answer that was not asked for");
        return false;
    }
    return true;
}

/* A buffer took no more: its limit, or memory is out. */
static void fail_append(struct http_client *c, int rc, enum err_code code, const char *full)
{
    if (rc == -ENOMEM)
        fail(c, ERR_EXHAUSTED, "memory is out");
    else
        fail(c, code, full);
}

static void take_body(struct http_client *c)
{
    while (c->in.len > 0 && !c->parse.done && !c->finished) {
        struct parse_piece piece;
        int rc;

        if (parse_body_next(&c->parse, c->in.data, c->in.len, &piece) < 0) {
            fail(c, ERR_INTERNAL, "malformed chunked answer");
            return;
        }
        if (c->on_data && c->head.status / 100 == 2) {
            if (piece.len > 0 && !c->on_data(c->arg, piece.data, piece.len)) {
                fail(c, ERR_INTERNAL, "an answer that is not understood");
                return;
            }
        } else if (piece.len > 0 && (rc = buf_append(&c->body, piece.data, piece.len)) < 0) {
            fail_append(c, rc, ERR_TOO_LARGE, "the answer is larger than is allowed here");
            return;
        }
        buf_consume(&c->in, piece.used);
    }
    if (c->parse.done && !c->finished)
        finish(c, NULL,
               c->head.keep_alive && !c->body_open && c->in.len == 0 && c->wire.out.len == 0);
}

static void on_readable(struct wire *w)
{
    struct http_client *c = CONTAINER_OF(w, struct http_client, wire);
    char bytes[READ_BYTES];
    ssize_t n = wire_read(w, bytes, sizeof(bytes));
    int rc;

    if (n == -EAGAIN)
        return;
    /* The answers read here show themselves whether they are whole (JSON), or only their status
     * counts, so a server that does not announce its end (-ENODATA) has ended. */
    if ((n == 0 || n == -ENODATA) && c->has_head && c->parse.framing == HTTP_BODY_UNTIL_CLOSE) {
        finish(c, NULL, false);
        return;
    }
    if (n <= 0) {
        fail(c, ERR_UNAVAILABLE, "the connection ended before the answer was whole");
        return;
    }
    rc = buf_append(&c->in, bytes, (size_t)n);
    explicit_bzero(bytes, (size_t)n);
    if (rc < 0) {
        fail_append(c, rc, ERR_INTERNAL, "the answer's head is too large");
        return;
    }
    if (!c->has_head) {
        while (!c->has_head)
            if (!take_head(c))
                return;
        if (c->on_head)
            c->on_head(c->arg, &c->head);
    }
    if (!c->finished)
        take_body(c);
}

static void on_connected(struct wire *w)
{
    wire_want_read(w, true);
}

static void on_drained(struct wire *w)
{
    struct http_client *c = CONTAINER_OF(w, struct http_client, wire);

    if (c->on_drain && !c->finished)
        c->on_drain(c->arg);
}

static void on_timeout(struct wire *w)
{
    fail(CONTAINER_OF(w, struct http_client, wire), ERR_TIMEOUT, "no whole answer in time");
}

static void on_error(struct wire *w, int err)
{
    struct err e;

    err_set_sys(&e, ERR_UNAVAILABLE, err, "cannot connect");
    finish(CONTAINER_OF(w, struct http_client, wire), &e, false);
}

static const struct wire_ops ops = {on_connected, on_readable, on_drained,
                                    on_timeout,   on_error,    on_closed};

/* At least what put_request writes. */
static size_t request_bytes(const struct http_client_request *r)
{
    size_t n = strlen(r->method) + strlen(r->target) + strlen(r->host) + r->body_len + 256;

    for (size_t i = 0; i < r->header_count; i++)
        n += strlen(r->headers[i].name) + strlen(r->headers[i].value) + strlen(": \r\n");
    return n;
}

/* There is room in b for all of it. */
static void put_request(struct buf *out, const struct http_client_request *r)
{
    response_put(out, r->method);
    response_put(out, " ");
    response_put(out, r->target);
    response_put(out, " HTTP/1.1\r\n");
    response_put_header(out, "Host", r->host);
    for (size_t i = 0; i < r->header_count; i++)
        response_put_header(out, r->headers[i].name, r->headers[i].value);
    if (r->body_streams) {
        response_put(out, "Transfer-Encoding: chunked\r\n");
    } else if (r->body_len > 0 || strcmp(r->method, "GET") != 0) {
        response_put(out, "Content-Length: ");
        response_put_number(out, r->body_len);
        response_put(out, "\r\n");
    }
    response_put(out, "\r\n");
    if (buf_append(out, r->body, r->body_len) < 0)
        abort(); /* a broken invariant: request_bytes says less than is written */
}

static struct http_client *client_new(const struct http_client_request *r)
{
    struct http_client *c = calloc(1, sizeof(*c));

    if (c)
        c->method = strdup(r->method);
    if (!c || !c->method) {
        free(c);
        return NULL;
    }
    c->on_data = r->on_data;
    c->on_head = r->on_head;
    c->on_drain = r->on_drain;
    c->body_open = r->body_streams;
    c->done = r->done;
    c->arg = r->arg;
    buf_init(&c->in, HTTP_MAX_HEAD_BYTES + READ_BYTES);
    buf_init(&c->body, r->max_response_bytes);
    return c;
}

int http_client_start(uv_loop_t *loop, const struct http_client_request *r,
                      struct http_client **out_client)
{
    struct buf out CLEANUP_BUF;
    struct http_client *c = NULL;

    buf_init(&out, request_bytes(r));
    if (buf_reserve(&out, request_bytes(r)) < 0 || !(c = client_new(r))) {
        if (r->layer)
            r->layer_ops->close(r->layer);
        close(r->fd);
        return -ENOMEM;
    }
    *out_client = c;
    wire_open(&c->wire, loop, r->fd, r->connecting, &ops);
    c->wire.secret = true; /* as above */
    if (r->layer)
        wire_set_layer(&c->wire, r->layer_ops, r->layer);
    wire_timeout(&c->wire, r->timeout_ms);
    put_request(&out, r);
    wire_give(&c->wire, &out);
    if (out.base) /* it was sent; bodies may hold secrets */
        explicit_bzero(out.base, out.cap);
    if (!r->connecting)
        wire_want_read(&c->wire, true);
    return 0;
}

int http_client_send(uv_loop_t *loop, const struct http_client_request *r)
{
    struct http_client *c;

    return http_client_start(loop, r, &c);
}

/* -- a call that is held ----------------------------------------------------------------------- */

int http_client_write(struct http_client *c, const void *data, size_t len)
{
    char head[24];
    int n = snprintf(head, sizeof(head), "%zx\r\n", len);

    if (len > 0 && c->body_open) {
        wire_write(&c->wire, head, (size_t)n);
        wire_write(&c->wire, data, len);
        wire_write(&c->wire, "\r\n", 2);
    }
    return c->wire.out.len > BODY_HIGH_BYTES;
}

void http_client_end_body(struct http_client *c)
{
    if (c->body_open)
        wire_write(&c->wire, "0\r\n\r\n", 5);
    c->body_open = false;
}

void http_client_pause(struct http_client *c)
{
    wire_want_read(&c->wire, false);
}

void http_client_resume(struct http_client *c)
{
    if (!c->wire.connecting)
        wire_want_read(&c->wire, true);
}

void http_client_timeout(struct http_client *c, uint64_t ms)
{
    wire_timeout(&c->wire, ms);
}

void http_client_cancel(struct http_client *c)
{
    fail(c, ERR_CANCELED, "the call was ended");
}
