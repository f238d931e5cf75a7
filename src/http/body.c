/* A request's body, on its way to the handler. The handler chooses a mode once, from on_request
 * or later: collect (whole, within its maximum and the server's total), stream (pieces without
 * framing) or raw (with framing, for relays, which may also take bytes by splice: pass.h); what
 * a response has made useless is discarded. conn.c feeds bytes while body_wants_input, and
 * reports the end once (body_report_end). Until a mode is chosen, or while it is paused, nothing
 * is read, so that the peer is held back by TCP. A body over its limit is answered with 413 or
 * 503 and discarded up to HTTP_DISCARD_BYTES; after that the connection closes. Collected bytes
 * are wiped when they are released. */
#include "http/body.h"

#include "http/server_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

bool body_done(const struct http_exchange *x)
{
    return x->mode == BODY_TUNNEL ? x->end_reported : x->body.done;
}

bool body_wants_input(const struct http_exchange *x)
{
    if (x->aborted || body_done(x))
        return false;
    if (x->mode == BODY_DISCARD)
        return !x->close && x->discarded <= HTTP_DISCARD_BYTES;
    return x->mode != BODY_UNDECIDED && !x->paused;
}

/* The collected body would pass its limit. */
static void too_large(struct http_exchange *x)
{
    x->mode = BODY_DISCARD;
    if (x->on_too_large)
        x->on_too_large(x);
    else
        http_respond_error(x, 413, "the request's body is larger than %zu bytes", x->collect_max);
}

/* Many bodies within their limits are too much together: a client without a key may send them. */
static void overloaded(struct http_exchange *x)
{
    x->mode = BODY_DISCARD;
    http_respond_error(x, 503, "the server holds as many requests' bodies as it may; try again");
}

static void collect_piece(struct http_exchange *x, const struct parse_piece *p)
{
    struct http_server *s = x->conn->server;

    if (p->len == 0)
        return;
    if (p->len > s->config.collect_total_bytes - MIN(s->collected, s->config.collect_total_bytes))
        overloaded(x);
    else if (buf_append(&x->collect, p->data, p->len) < 0)
        too_large(x);
    else
        s->collected += p->len;
    explicit_bzero((char *)(uintptr_t)p->data,
                   p->len); /* of the connection's input: it may be secret */
}

/* As it came, but for trailers that are not to go on. */
static void take_raw(struct http_exchange *x, const char *raw, const struct parse_piece *p)
{
    size_t behind = p->trailers + p->trailers_len;

    if (!x->drop_trailers || p->trailers_len == 0) {
        x->on_data(x, raw, p->used);
        return;
    }
    if (p->trailers > 0)
        x->on_data(x, raw, p->trailers);
    if (behind < p->used)
        x->on_data(x, raw + behind, p->used - behind);
}

static void take_piece(struct http_exchange *x, const char *raw, const struct parse_piece *p)
{
    switch (x->mode) {
    case BODY_COLLECT: collect_piece(x, p); break;
    case BODY_STREAM:
        if (p->len > 0)
            x->on_data(x, p->data, p->len);
        break;
    case BODY_RAW: take_raw(x, raw, p); break;
    default: x->discarded += p->used; break;
    }
}

ssize_t body_feed(struct http_exchange *x, const char *data, size_t n)
{
    size_t used = 0;

    if (x->mode == BODY_TUNNEL) {
        x->on_data(x, data, n);
        return (ssize_t)n;
    }
    while (used < n && body_wants_input(x)) {
        struct parse_piece piece;
        int r = parse_body_next(&x->body, data + used, n - used, &piece);

        if (r < 0)
            return r;
        used += piece.used;
        take_piece(x, piece.data, &piece);
    }
    return (ssize_t)used;
}

uint64_t body_may_pass(const struct http_exchange *x)
{
    uint64_t plain = x->mode == BODY_RAW && x->on_passed ? parse_body_plain(&x->body) : 0;

    return plain < PASS_MIN_BYTES ? 0 : plain;
}

void body_pass(struct http_exchange *x, struct pass *p)
{
    parse_body_skip(&x->body, p->held);
    x->on_passed(x, p);
    assert(p->held == 0);
}

void body_report_end(struct http_exchange *x)
{
    x->end_reported = true;
    if (x->mode == BODY_COLLECT) {
        if (buf_reserve(&x->collect, 0) < 0) {
            x->aborted = true;
            return;
        }
        x->collect.data[x->collect.len] = '\0';
        x->on_collect(x, x->collect.data, x->collect.len);
    } else if (x->mode != BODY_DISCARD && x->on_end) {
        x->on_end(x);
    }
}

void http_body_collect(struct http_exchange *x, size_t max,
                       void (*done)(struct http_exchange *x, char *body, size_t len))
{
    assert(x->mode == BODY_UNDECIDED || x->mode == BODY_DISCARD);
    if (x->ended || x->aborted)
        return;
    x->collect_max = max;
    x->on_collect = done;
    x->mode = BODY_COLLECT;
    buf_init(&x->collect, max);
    if (x->head.framing == HTTP_BODY_LENGTH && x->head.content_length > max)
        too_large(x);
    server_mark_dirty(x->conn);
}

void http_body_release(struct http_exchange *x)
{
    x->conn->server->collected -= x->collect.len;
    if (x->collect.base)
        explicit_bzero(x->collect.base, x->collect.cap);
    buf_free(&x->collect);
}

static void stream(struct http_exchange *x, enum body_mode mode,
                   void (*on_data)(struct http_exchange *, const char *, size_t),
                   void (*on_end)(struct http_exchange *))
{
    assert(x->mode == BODY_UNDECIDED || x->mode == BODY_DISCARD);
    if (x->ended || x->aborted)
        return;
    x->mode = mode;
    x->on_data = on_data;
    x->on_end = on_end;
    server_mark_dirty(x->conn);
}

void http_body_stream(struct http_exchange *x,
                      void (*on_data)(struct http_exchange *x, const char *data, size_t len),
                      void (*on_end)(struct http_exchange *x))
{
    stream(x, BODY_STREAM, on_data, on_end);
}

void body_stream_raw(struct http_exchange *x,
                     void (*on_data)(struct http_exchange *, const char *, size_t),
                     void (*on_passed)(struct http_exchange *, struct pass *),
                     void (*on_end)(struct http_exchange *))
{
    x->on_passed = on_passed;
    stream(x, BODY_RAW, on_data, on_end);
}

void http_body_pause(struct http_exchange *x)
{
    x->paused = true;
}

void http_body_resume(struct http_exchange *x)
{
    x->paused = false;
    server_mark_dirty(x->conn);
}
