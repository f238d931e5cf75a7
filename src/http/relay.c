/* Two halves run side by side over one exchange: its request's body goes up as it comes, and
 * the answer comes down: interim heads, one head, its contents, or a tunnel after 101. Each
 * half stops reading while the other side does not take what it has (the exchange's body is
 * paused, or the wire is not read), so that memory is bounded by their buffers. A single timer
 * waits for the next event that is due: the connect, the answer's head, or progress of the side
 * that is full. An end of either side ends the relay once: the answer is finished, cut, or replaced
 * by an error where no byte of it is out. */

#include "http/relay.h"

#include "http/body.h"
#include "http/relay_end.h"
#include "http/relay_filter.h"
#include "http/relay_head.h"
#include "http/relay_internal.h"
#include "http/relay_tunnel.h"
#include "http/response.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define WINDOW_BYTES (256u * 1024u) /* of the request's body, waiting for the upstream */
#define MAX_INTERIM  16             /* 1xx responses before the real one */

/* -- ends -------------------------------------------------------------------------------------- */

static void on_closed(struct wire *w)
{
    struct relay *r = CONTAINER_OF(w, struct relay, wire);

    buf_free(&r->in);
    buf_free(&r->filtered);
    free(r->storage);
    free(r);
}

static void on_exchange_close(struct http_exchange *x)
{
    struct relay *r = x->inner;

    relay_detach(r);
    wire_close(&r->wire, false);
}

/* -- the request's body ------------------------------------------------------------------------ */

void relay_window_full(struct relay *r)
{
    http_body_pause(r->x);
    r->full = true;
    r->full_bytes = wire_unsent(r->wire.fd, &r->wire.out);
    relay_arm(r);
}

/* False: they may not, and the exchange is gone, and r with it. */
static bool may_move(struct relay *r, size_t request_bytes, size_t answer_bytes)
{
    if (!r->o.on_move || r->o.on_move(r->o.arg, request_bytes, answer_bytes))
        return true;
    http_exchange_abort(r->x);
    return false;
}

void relay_request_data(struct http_exchange *x, const char *data, size_t len)
{
    struct relay *r = x->inner;

    if (!r || !may_move(r, len, 0))
        return;
    if (!relay_write(r, data, len))
        return;
    /* a filter's bytes there are not to grow: growing leaves copies of a secret behind */
    if (r->wire.out.len >= WINDOW_BYTES || (r->o.filter && r->wire.out.len > 0))
        relay_window_full(r);
}

/* Bytes that could not pass are queued, and no more are read before they are sent. */
static void on_request_passed(struct http_exchange *x, struct pass *p)
{
    struct relay *r = x->inner;

    if (!r || !may_move(r, p->held, 0)) {
        pass_drop(p);
        return;
    }
    wire_pass(&r->wire, p);
    if (r->wire.out.len > 0)
        relay_window_full(r);
}

static void on_request_end(struct http_exchange *x)
{
    struct relay *r = x->inner;

    if (!r)
        return;
    r->request_sent = true;
    if (!r->has_head && !r->full && !r->wire.connecting)
        relay_arm(r);
}

/* -- back-pressure ----------------------------------------------------------------------------- */

static void on_drained(struct wire *w)
{
    struct relay *r = CONTAINER_OF(w, struct relay, wire);

    if (r->tunnel && r->up_ended && r->client_ended) {
        relay_tunnel_end(r);
        return;
    }
    r->full = false;
    relay_arm(r);
    http_body_resume(r->x);
}

bool relay_may_read(const struct relay *r)
{
    return !r->wire.connecting && !r->behind && !r->up_ended && !r->filter_waits && !r->up_over;
}

void relay_read_on(struct relay *r)
{
    wire_want_read(&r->wire, relay_may_read(r));
}

void relay_set_behind(struct relay *r, bool behind)
{
    r->behind = behind;
    if (r->o.filter)
        r->o.filter->wait(r->o.filter_arg, behind);
    relay_read_on(r);
}

/* -- the response ------------------------------------------------------------------------------ */

static void on_client_drained(struct http_exchange *x)
{
    struct relay *r = x->inner;

    if (!r || r->up_ended)
        return;
    relay_set_behind(r, false);
    if (r->o.filter)
        relay_filter_pour(r);
}

/* Passes contents on; how far they go is followed on the way. False when the relay has ended. */
static bool response_data(struct relay *r, const char *data, size_t n)
{
    size_t used = 0;
    int full = 0;

    while (used < n && !r->parse.done) {
        struct parse_piece piece;

        if (parse_body_next(&r->parse, data + used, n - used, &piece) < 0) {
            relay_fail(r, ERR_INTERNAL, "malformed chunked response", 0);
            return false;
        }
        if (r->decode)
            full |= http_response_write(r->x, piece.data, piece.len);
        used += piece.used;
    }
    if (!r->decode && used > 0)
        full = http_response_write(r->x, data, used);
    r->overrun |= used < n;
    if (r->parse.done) {
        relay_finish(r);
        return false;
    }
    if (full)
        relay_set_behind(r, true);
    return true;
}

static void start_response(struct relay *r)
{
    struct http_exchange *x = r->x;
    struct buf *b = relay_response_head(r);
    bool close = response_must_close(x) || r->parse.framing == HTTP_BODY_UNTIL_CLOSE;

    r->decode = r->parse.framing == HTTP_BODY_CHUNKED && x->head.minor == 0;
    close |= r->decode;
    if (r->parse.framing == HTTP_BODY_CHUNKED && !r->decode)
        response_put(b, "Transfer-Encoding: chunked\r\n");
    if (close)
        response_put(b, "Connection: close\r\n");
    else if (x->head.minor == 0)
        response_put(b, "Connection: keep-alive\r\n");
    response_put(b, "\r\n");
    relay_arm(r);
    x->streams = r->parse.framing == HTTP_BODY_CHUNKED || r->parse.framing == HTTP_BODY_UNTIL_CLOSE;
    response_begin_raw(x, b->data, b->len, close, r->parse.framing == HTTP_BODY_NONE);
}

/* An interim response. False when the relay has ended or became a tunnel. */
static bool interim(struct relay *r)
{
    struct buf *b;

    if (r->head.status == 101 && r->upgrade_requested &&
        (!r->o.may_switch || r->o.may_switch(&r->x->head, &r->head))) {
        relay_tunnel_start(r);
        return false;
    }
    if (r->head.status == 101 || ++r->interim > MAX_INTERIM) {
        relay_fail(r, ERR_INTERNAL, "an interim response that was not asked for", 0);
        return false;
    }
    if (r->head.status == 100 || r->x->head.minor == 0)
        return true; /* the client got its 100 from here */
    b = relay_response_head(r);
    response_put(b, "\r\n");
    response_interim(r->x, b->data, b->len);
    return true;
}

/* Tries to read a head. False when more is needed, or the relay is past heads. */
static bool take_head(struct relay *r)
{
    ssize_t n = gate_head_end(r->in.data, r->in.len, &r->scanned);
    const char *why = "";

    if (n < 0 || (n == 0 && r->in.len > HTTP_MAX_HEAD_BYTES)) {
        relay_fail(r, ERR_INTERNAL, "the answer is not HTTP", 0);
        return false;
    }
    if (n == 0)
        return false;
    free(r->storage);
    r->storage = malloc(gate_storage_bytes((size_t)n));
    if (!r->storage) {
        relay_fail(r, ERR_INTERNAL, "out of memory", 0);
        return false;
    }
    if (parse_response(r->in.data, (size_t)n, r->x->head.method, r->storage, &r->head, &r->parse,
                       &why) != 0) {
        relay_fail(r, ERR_INTERNAL, why, 0);
        return false;
    }
    buf_consume(&r->in, (size_t)n);
    r->scanned = 0;
    if (r->head.status < 200)
        return interim(r);
    r->has_head = true;
    start_response(r);
    return true;
}

static void on_head_bytes(struct relay *r, const char *data, size_t n)
{
    struct buf rest;

    int rc = buf_append(&r->in, data, n);

    if (rc < 0) {
        relay_fail(r, ERR_INTERNAL,
                   rc == -ENOMEM ? "out of memory" : "the answer's head is too large", 0);
        return;
    }
    while (!r->has_head)
        if (!take_head(r))
            return;
    if (r->parse.done) {
        r->overrun = r->in.len > 0;
        relay_finish(r);
        return;
    }
    rest = r->in;
    buf_init(&r->in, 0);
    response_data(r, rest.data, rest.len);
    buf_free(&rest);
}

void relay_upstream_ended(struct relay *r, ssize_t n)
{
    bool until_close = r->has_head && r->parse.framing == HTTP_BODY_UNTIL_CLOSE;

    if (r->tunnel && (n == 0 || n == -ENODATA))
        relay_tunnel_up_ended(r);
    else if (n == 0 && until_close)
        relay_finish(r);
    else if (n == -ENODATA && until_close && !r->tunnel)
        relay_finish_unannounced(r);
    else
        relay_fail(r, ERR_UNAVAILABLE, "the connection ended before the answer was whole",
                   n < 0 ? (int)n : 0);
}

/* Contents of a known length go by unseen, as far as the client takes them. Results as those of
 * wire_read; -EOPNOTSUPP: they have to be read. */
static ssize_t response_passes(struct relay *r)
{
    uint64_t plain = r->has_head && !r->tunnel ? parse_body_plain(&r->parse) : 0;
    struct pass *p = &r->x->conn->server->pass;
    ssize_t n;

    if (r->wire.layer || plain < PASS_MIN_BYTES || !conn_may_pass(r->x->conn))
        return -EOPNOTSUPP;
    n = pass_fill(p, r->wire.fd, MIN(plain, (uint64_t)r->server->piece));
    if (n <= 0)
        return n;
    if (!may_move(r, 0, (size_t)n)) {
        pass_drop(p);
        return n;
    }
    parse_body_skip(&r->parse, (uint64_t)n);
    if (response_pass(r->x, p))
        relay_set_behind(r, true);
    return n;
}

bool relay_deliver(struct relay *r, const char *data, size_t n)
{
    if (!may_move(r, 0, n))
        return false;
    if (r->tunnel)
        relay_tunnel_data(r, data, n);
    else if (r->has_head)
        response_data(r, data, n);
    else
        on_head_bytes(r, data, n);
    return r->x != NULL;
}

static void on_readable(struct wire *w)
{
    struct relay *r = CONTAINER_OF(w, struct relay, wire);
    struct http_server *s = r->x->conn->server;
    ssize_t n;

    if (r->o.filter) {
        relay_filter_read(r);
        return;
    }
    n = response_passes(r);
    if (n > 0)
        return;
    if (n == -EOPNOTSUPP)
        n = wire_read(w, s->read_buf, s->read_bytes);
    if (n == -EAGAIN)
        return;
    if (n <= 0)
        relay_upstream_ended(r, n);
    else
        (void)relay_deliver(r, s->read_buf, (size_t)n);
}

/* -- start ------------------------------------------------------------------------------------- */

static void on_connected(struct wire *w)
{
    struct relay *r = CONTAINER_OF(w, struct relay, wire);

    relay_arm(r);
    wire_want_read(w, true);
    http_body_resume(r->x);
}

static void on_error(struct wire *w, int err)
{
    relay_fail(CONTAINER_OF(w, struct relay, wire), ERR_UNAVAILABLE, "cannot connect", err);
}

static bool enter(struct wire *w)
{
    struct relay *r = CONTAINER_OF(w, struct relay, wire);

    return server_enter(r->server, r->tag, false, &r->round);
}

static void leave(struct wire *w)
{
    const struct relay *r = CONTAINER_OF(w, struct relay, wire);

    server_leave(r->server, r->tag);
}

static const struct wire_ops ops = {on_connected, on_readable, on_drained, relay_timed_out,
                                    on_error,     on_closed,   enter,      leave};

void http_relay_break(struct http_exchange *x, const char *why)
{
    struct relay *r = x->inner;

    if (r)
        relay_fail(r, ERR_UNAVAILABLE, why, 0);
}

static void drop_options(const struct http_relay_options *o)
{
    if (o->filter)
        o->filter->free(o->filter_arg);
    if (o->layer)
        o->layer_ops->close(o->layer);
    close(o->fd);
}

void http_relay_start(struct http_exchange *x, const struct http_relay_options *o)
{
    struct relay *r = calloc(1, sizeof(*r));
    struct buf *b = &x->conn->server->scratch;

    assert(!o->connecting || !(o->filter || o->layer));
    if (!r) {
        drop_options(o);
        http_exchange_abort(x);
        return;
    }
    r->x = x;
    r->server = x->conn->server;
    r->tag = x->conn->tag;
    r->o = *o;
    x->inner = r;
    x->inner_close = on_exchange_close;
    x->inner_drain = on_client_drained;
    buf_init(&r->in, HTTP_MAX_HEAD_BYTES + x->conn->server->read_bytes);
    wire_open(&r->wire, x->conn->server->loop, o->fd, o->connecting, &ops);
    if (o->layer)
        wire_set_layer(&r->wire, o->layer_ops, o->layer);
    if (o->filter)
        relay_filter_start(r);
    buf_clear(b);
    relay_request_head(r, b);
    x->drop_trailers = o->drop_trailers;
    body_stream_raw(x, relay_request_data, o->layer || o->filter ? NULL : on_request_passed,
                    on_request_end);
    if (!relay_write(r, b->data, b->len))
        return;
    if (x->head.framing == HTTP_BODY_NONE)
        r->request_sent = true;
    if (o->filter && r->wire.out.len > 0)
        relay_window_full(r);
    if (o->connecting) {
        http_body_pause(x);
    } else {
        wire_want_read(&r->wire, true);
    }
    relay_arm(r);
}
