/* A connection moves in steps, each of which does one thing and says whether it did: start an
 * exchange, read its head, hand on its body, finish its response, close, linger. conn_pump runs
 * steps until none can, whenever the socket is ready, a response was written or a body was let
 * go on; so no step calls another, and a handler may end an exchange inside its own callback.
 * Input waits in the server's shared buffer for the length of one pump; its rest becomes the
 * connection's own. Output that the socket does not take is queued within a maximum. The file that
 * owns the socket, and the only one that reads from it and writes to it, through layer.h. */
#include "http/conn.h"

#include "http/body.h"
#include "http/conn_input.h"
#include "http/conn_layer.h"
#include "http/conn_wait.h"
#include "http/held.h"
#include "http/response.h"
#include "http/server_internal.h"
#include "http/wire.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MAX_ROUNDS   32 /* of work for one connection before others get their turn */
#define LINGER_BYTES (16u * 1024u * 1024u)

#define OUT_MAX (SIZE_MAX / 4) /* bounded by what handlers write, who heed "full", and by held.c */

/* -- the socket -------------------------------------------------------------------------------- */

int conn_new(struct http_server *s, int fd, uint64_t tag, const struct http_layer_ops *ops,
             void *layer)
{
    struct conn *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return -ENOMEM;
    r = uv_poll_init(s->loop, &c->poll, fd);
    if (r < 0) {
        free(c);
        return r;
    }
    c->server = s;
    c->fd = fd;
    c->tag = tag;
    c->poll.data = c;
    buf_init(&c->in, s->config.max_head_bytes + 2 * s->read_bytes);
    buf_init(&c->out, OUT_MAX);
    c->next = s->conns;
    if (s->conns)
        s->conns->prev = c;
    s->conns = c;
    s->conn_count++;
    s->handles++;
    c->layer_ops = ops;
    c->layer = layer;
    c->adopted_layer = layer != NULL;
    c->state = s->config.layer.ops && !layer ? CONN_NEW : CONN_HEAD;
    conn_wait_events(c, UV_READABLE | UV_DISCONNECT);
    c->read_kind = WAIT_IDLE;
    server_wait(s, &c->read_wait, WAIT_IDLE);
    return 0;
}

static void conn_end(struct conn *c)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    int fd = c->fd;

    assert(!c->exchange);
    if (c->state == CONN_HEAD && c->layer && !c->cut)
        (void)layer_shut(c); /* idle: its end is no loss, and is said */
    layer_close(c);
    c->state = CONN_DEAD;
    server_wait_stop(&c->read_wait);
    server_wait_stop(&c->write_wait);
    if (c->cut)
        (void)!setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    conn_input_wipe(c->in.base, c->in.cap);
    buf_free(&c->in);
    buf_free(&c->out);
    held_count(c);
    if (c->tag && c->server->config.on_tagged_end)
        c->server->config.on_tagged_end(c->server->ctx, c->tag, fd);
    server_conn_gone(c); /* stops polling; only then may the descriptor's number be used again */
    close(fd);
}

/* -- output ------------------------------------------------------------------------------------ */

static ssize_t send_some(struct conn *c, const struct iovec *iov, int n)
{
    ssize_t sent = layer_write(c, iov, n);

    if (sent < 0 && sent != -EAGAIN)
        c->broken = true;
    c->sent_some |= sent > 0;
    return sent < 0 ? 0 : sent;
}

void conn_flush(struct conn *c)
{
    struct iovec iov = {.iov_base = c->out.data, .iov_len = c->out.len};
    ssize_t sent;

    if (c->out.len == 0 || c->broken)
        return;
    sent = send_some(c, &iov, 1);
    if (sent > 0) {
        buf_consume(&c->out, (size_t)sent);
        server_wait_stop(&c->write_wait); /* progress: the wait starts anew if bytes are left */
    }
}

/* The rest of iov after `sent` bytes goes to the queue. */
static void queue_rest(struct conn *c, const struct iovec *iov, int n, size_t sent)
{
    for (int i = 0; i < n; i++) {
        size_t skip = MIN(sent, iov[i].iov_len);

        sent -= skip;
        if (skip == iov[i].iov_len)
            continue;
        if (buf_append(&c->out, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip) < 0) {
            c->broken = true;
            return;
        }
    }
    held_free_memory(c);
}

void conn_send(struct conn *c, const struct iovec *iov, int n, bool now)
{
    ssize_t sent = 0;

    if (c->broken)
        return;
    if (now && c->out.len > 0)
        conn_flush(c);
    if (now && c->out.len == 0 && !c->broken)
        sent = send_some(c, iov, n);
    if (!c->broken)
        queue_rest(c, iov, n, (size_t)sent);
}

bool conn_may_pass(struct conn *c)
{
    if (c->layer || c->broken)
        return false;
    if (c->out.len > 0) {
        conn_flush(c);
        server_mark_dirty(c);
    }
    return c->out.len == 0 && !c->broken;
}

void conn_pass(struct conn *c, struct pass *p)
{
    ssize_t sent = pass_drain(p, c->fd);

    c->sent_some |= sent > 0;
    if (sent < 0 || pass_take(p, &c->out) < 0) {
        pass_drop(p);
        c->broken = true;
    }
}

/* -- input ------------------------------------------------------------------------------------- */

/* As layer_read, into the pipe; -EOPNOTSUPP where that is not done. */
static ssize_t read_to_pass(struct conn *c)
{
    uint64_t n = c->exchange && !c->layer && c->in.len == 0 ? body_may_pass(c->exchange) : 0;

    n = MIN(n, (uint64_t)c->server->piece);
    return n > 0 ? pass_fill(&c->server->pass, c->fd, n) : -EOPNOTSUPP;
}

static void read_some(struct conn *c)
{
    struct http_server *s = c->server;
    ssize_t n = read_to_pass(c);

    c->passing = n > 0;
    if (n == -EOPNOTSUPP)
        n = layer_read(c, s->read_buf, s->read_bytes);
    if (n == 0)
        c->eof = true;
    if (n < 0 && n != -EAGAIN)
        c->broken = true;
    if (n <= 0)
        return;
    c->got_input = true;
    if (c->passing)
        return;
    if (c->in.len > 0) {
        if (buf_append(&c->in, s->read_buf, (size_t)n) < 0)
            c->broken = true;
    } else {
        c->view = s->read_buf;
        c->view_len = (size_t)n;
    }
}

/* -- steps: each does one thing and says whether it did ---------------------------------------- */

static bool start_exchange(struct conn *c, const char *data, size_t n)
{
    struct http_exchange *x = exchange_new(c, gate_storage_bytes(n));
    const char *why = "";
    int status;

    if (!x) {
        c->broken = true;
        return false;
    }
    c->exchange = x;
    status = (c->server->config.proxy ? parse_proxy_request : parse_request)(
        data, n, x->storage, &x->head, &x->body, &why);
    conn_input_wipe(data, n);
    conn_input_used(c, n);
    c->scanned = 0;
    if (status != 0) {
        exchange_free(x);
        response_refuse(c, status, why);
        return true;
    }
    x->expects_continue = x->head.minor == 1 && x->head.framing != HTTP_BODY_NONE &&
                          http_head_get(&x->head, "expect") != NULL;
    c->state = CONN_EXCHANGE;
    server_wait(c->server, &c->own_wait, WAIT_OWNER);
    c->server->handler(x, c->server->ctx);
    return true;
}

static bool step_head(struct conn *c)
{
    size_t len = conn_input_len(c);
    ssize_t n;

    if (c->broken || c->server->stopping) {
        c->broken = true;
        return false;
    }
    if (len > 0 && !c->layer && (unsigned char)conn_input_data(c)[0] == HTTP_LAYER_FIRST_BYTE) {
        response_refuse_tls(c);
        return true;
    }
    n = len > 0 ? gate_head_end(conn_input_data(c), len, &c->scanned) : 0;
    if (n < 0) {
        response_refuse(c, 400, "a line in the head does not end with CR LF");
        return true;
    }
    if ((n > 0 ? (size_t)n : len) > c->server->config.max_head_bytes) {
        response_refuse(c, 431, "the request's head is too large");
        return true;
    }
    if (n > 0)
        return start_exchange(c, conn_input_data(c), (size_t)n);
    if (c->eof)
        c->broken = true;
    return false;
}

static bool step_body(struct conn *c, struct http_exchange *x)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec iov = {.iov_base = (char *)go_on, .iov_len = sizeof(go_on) - 1};
    ssize_t used;

    if (!body_wants_input(x))
        return false;
    if (c->passing) {
        c->passing = x->expects_continue = false;
        body_pass(x, &c->server->pass);
        return true;
    }
    if (conn_input_len(c) == 0) {
        if (c->eof && x->mode == BODY_TUNNEL) {
            body_report_end(x);
            return true;
        }
        if (c->eof)
            c->broken = true;
        if (x->expects_continue && !x->begun)
            conn_send(c, &iov, 1, true);
        x->expects_continue = false;
        return c->broken;
    }
    x->expects_continue = false;
    used = body_feed(x, conn_input_data(c), conn_input_len(c));
    if (used >= 0) {
        conn_input_used(c, (size_t)used);
    } else if (!x->begun) {
        exchange_announce_close(x);
        exchange_free(x);
        response_refuse(c, 400, "malformed chunked body");
    } else {
        x->aborted = true;
    }
    return true;
}

/* The response is out: the connection's next life. */
static bool finish(struct conn *c, struct http_exchange *x)
{
    bool complete = body_done(x), half = c->half || c->eof;

    if (!complete && !x->close && x->discarded <= HTTP_DISCARD_BYTES && !half)
        return false; /* the rest of the body is read and forgotten first */
    if (complete && !x->close && !c->server->stopping) {
        exchange_free(x);
        c->state = CONN_HEAD;
        return true;
    }
    exchange_free(x);
    c->state = CONN_CLOSING;
    c->linger_left = (complete && !c->adopted_layer) || half ? 0 : LINGER_BYTES;
    return true;
}

static bool step_exchange(struct conn *c)
{
    struct http_exchange *x = c->exchange;

    if (x->aborted || c->broken || c->timed_out) {
        exchange_lost(c);
        return true;
    }
    conn_flush(c);
    if (x->breaks)
        return exchange_step_break(x);
    if (x->shut_requested && c->out.len == 0 && !c->shut)
        c->shut = layer_shut(c);
    if (step_body(c, x))
        return true;
    if (body_done(x) && !x->end_reported && x->mode != BODY_UNDECIDED && !x->paused) {
        body_report_end(x);
        return true;
    }
    if (x->want_drain && !x->ended && c->out.len <= x->drain_at) {
        x->want_drain = false;
        if (x->inner_drain)
            x->inner_drain(x);
        else if (x->on_drain)
            x->on_drain(x, x->data);
        return true;
    }
    if (!x->ended || c->out.len > 0)
        return c->broken;
    exchange_announce_close(x);
    return finish(c, x);
}

static bool step_closing(struct conn *c)
{
    conn_flush(c);
    if (c->out.len > 0 || c->broken)
        return false;
    if ((c->layer || c->linger_left > 0) && !layer_shut(c))
        return false;
    if (c->linger_left == 0) {
        c->broken = true;
        return false;
    }
    c->state = CONN_LINGER;
    return true;
}

static bool step_linger(struct conn *c)
{
    size_t n = conn_input_len(c);

    if (c->eof || n >= c->linger_left)
        c->broken = true;
    else
        c->linger_left -= n;
    conn_input_used(c, n);
    return false;
}

static bool step(struct conn *c)
{
    switch (c->state) {
    case CONN_BEGINNING: return layer_step(c);
    case CONN_HEAD: return step_head(c);
    case CONN_EXCHANGE: return step_exchange(c);
    case CONN_CLOSING: return step_closing(c);
    case CONN_LINGER: return step_linger(c);
    default: return false;
    }
}

/* -- the pump ---------------------------------------------------------------------------------- */

/* Requests that were sent together are a connection's own, and each takes a step or two. */
static bool may_go_on(const struct conn *c, int round)
{
    return round < MAX_ROUNDS && (round == 0 || !server_is_over(c->server, c->tag));
}

void conn_pump(struct conn *c)
{
    bool more = true;

    if (c->pumping || c->state == CONN_DEAD)
        return;
    c->pumping = true;
    for (int round = 0; more && may_go_on(c, round); round++)
        more = step(c);
    conn_input_keep(c);
    if (c->broken && c->exchange)
        exchange_lost(c);
    c->pumping = false;
    if (c->broken) {
        conn_end(c);
        return;
    }
    conn_wait_settle(c);
    if (more)
        server_mark_dirty(c);
}

/* -- events ------------------------------------------------------------------------------------ */

/* Bytes that were sent before are still to be read, and the answer to a whole request is still
 * wanted by a peer that only closed its half: conn_wait.c says how long it may take. No exchange is
 * served where the kernel knows that both halves are gone (unix sockets, resets), and in the middle
 * of a stream, which is how clients leave one: what it holds, such as a watch, has to be free for
 * the next at once. Of an adopted layer the end of the stream is read: without the layer's own end
 * the peer is lost. */
static void on_half(struct conn *c)
{
    const struct http_exchange *x = c->exchange;
    struct pollfd p = {.fd = c->fd};

    c->half = true;
    if (c->adopted_layer && c->in.len == 0)
        read_some(c);
    if (!x || !body_done(x) || x->ended || x->mode == BODY_TUNNEL)
        return;
    if (x->streams || poll(&p, 1, 0) > 0) /* POLLERR or POLLHUP: nothing else was asked for */
        c->broken = true;
}

static void on_event(struct conn *c, int status, int events)
{
    if (status < 0) {
        c->events = 0; /* libuv stopped it */
        c->broken = true;
    } else if (c->state == CONN_BEGINNING || (c->state == CONN_NEW && !layer_is_plain(c))) {
        /* all is said, or the pump goes on with it */
    } else if (conn_wait_wants_read(c) &&
               (events & (UV_READABLE | UV_DISCONNECT) || c->read_wants_write)) {
        read_some(c);
    } else {
        if (events & UV_READABLE)
            conn_wait_events(c, c->events & ~UV_READABLE);
        if (events & UV_DISCONNECT)
            on_half(c);
    }
    conn_pump(c);
}

/* Errors, of which libuv does not tell again, are not left for another turn. The connection may be
 * gone after it, and its memory and server are still there. */
void conn_on_event(uv_poll_t *poll, int status, int events)
{
    struct conn *c = poll->data;
    bool entered = server_enter(c->server, c->tag, false, &c->round);

    if (entered || status < 0)
        on_event(c, status, events);
    if (entered)
        server_leave(c->server, c->tag);
}

void conn_stop(struct conn *c, bool now)
{
    if (c->exchange && now) {
        c->exchange->aborted = true;
    } else if (c->exchange) {
        if (!c->exchange->begun)
            c->exchange->close = true;
        return;
    } else if (c->state <= CONN_HEAD || now) {
        c->broken = true;
    }
    server_mark_dirty(c);
}
