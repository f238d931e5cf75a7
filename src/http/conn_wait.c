/* The waits of a connection: which events its socket is polled for, and for how long. conn_pump
 * (conn.c) calls conn_wait_settle as its last step, when no other step can go on; from the
 * connection's state, body and output it derives the events and one time limit for reading and
 * one for writing (server.h names them). A limit begins anew only when what it limits has moved,
 * so that a trickle of bytes does not extend the wait for a head. conn_timed_out answers 408
 * where a request is incomplete, and else ends the connection. */
#include "http/conn_wait.h"

#include "http/body.h"
#include "http/held.h"
#include "http/response.h"
#include "http/server_internal.h"
#include "http/wire.h"

#include <poll.h>

void conn_wait_events(struct conn *c, int events)
{
    if (c->events == events)
        return;
    c->events = events;
    if (events == 0)
        uv_poll_stop(&c->poll);
    else
        uv_poll_start(&c->poll, events, conn_on_event);
}

bool conn_wait_wants_read(const struct conn *c)
{
    if (c->eof)
        return false;
    if (c->state == CONN_EXCHANGE)
        return body_wants_input(c->exchange);
    return c->state <= CONN_HEAD || c->state == CONN_LINGER;
}

static bool wants_write(const struct conn *c)
{
    if (c->out.len > 0 && !c->write_wants_read)
        return true;
    return c->shut_wants_write || (c->read_wants_write && conn_wait_wants_read(c));
}

/* A peer that goes away while its request is served is noticed without reading. Readability that
 * is not wanted is left armed until it happens once: most exchanges are over before that, and
 * changing what is polled costs two system calls. */
static void settle_events(struct conn *c)
{
    int events = wants_write(c) ? UV_WRITABLE : 0;

    if ((conn_wait_wants_read(c) && !c->read_wants_write) ||
        (c->write_wants_read && c->out.len > 0))
        events |= UV_READABLE | UV_DISCONNECT;
    else if (c->state == CONN_EXCHANGE && !c->eof && !c->half)
        events |= UV_DISCONNECT | (c->events & UV_READABLE);
    conn_wait_events(c, events);
}

/* A body that is wanted has to come. An answer that is not read just now may wait, but not for ever
 * if the peer may be gone already. */
static bool waits_for_body(const struct conn *c)
{
    const struct http_exchange *x = c->exchange;

    if (c->state != CONN_EXCHANGE)
        return false;
    if (conn_wait_wants_read(c))
        return x->mode != BODY_TUNNEL;
    return c->half && !c->eof && !body_done(x) && !x->ended;
}

/* All that the peer had to say was read; whether it is still there shows when something is sent. */
static bool waits_for_answer(const struct conn *c)
{
    const struct http_exchange *x = c->exchange;

    return c->state == CONN_EXCHANGE && (c->half || c->eof) && x->mode != BODY_TUNNEL &&
           body_done(x) && !x->ended && c->out.len == 0;
}

/* Its peer's kernel is not known to have all of an answer that broke off. */
static bool waits_for_taker(const struct conn *c)
{
    return c->state == CONN_EXCHANGE && c->exchange->breaks;
}

static bool has_moved(const struct conn *c, enum wait_kind kind)
{
    if (kind == WAIT_BODY)
        return c->got_input;
    return (kind == WAIT_HALF || kind == WAIT_HALF_STREAM) && c->sent_some;
}

static void settle_read_wait(struct conn *c)
{
    enum wait_kind kind;

    if (c->state == CONN_NEW)
        kind = WAIT_IDLE;
    else if (c->state == CONN_BEGINNING)
        kind = WAIT_BEGIN;
    else if (c->state == CONN_LINGER)
        kind = WAIT_LINGER;
    else if (c->state == CONN_HEAD)
        kind = c->in.len > 0 ? WAIT_HEAD : WAIT_IDLE;
    else if (c->state == CONN_CLOSING) /* for the peer, which takes no refusal: it is short */
        kind = WAIT_HEAD;
    else if (waits_for_taker(c))
        kind = c->out.len > 0 ? WAIT_KINDS : WAIT_TAKEN; /* an event tells of what is queued here */
    else if (waits_for_body(c))
        kind = WAIT_BODY;
    else if (waits_for_answer(c))
        kind = c->exchange->streams ? WAIT_HALF_STREAM : WAIT_HALF;
    else
        kind = WAIT_KINDS;
    if (kind == WAIT_KINDS)
        server_wait_stop(&c->read_wait);
    else if (kind != c->read_kind || !c->read_wait.next || has_moved(c, kind))
        server_wait(c->server, &c->read_wait, kind);
    c->read_kind = kind;
    c->got_input = c->sent_some = false;
}

static void wait_for_taker(struct conn *c)
{
    c->unsent = wire_unsent(c->fd, &c->out);
    server_wait(c->server, &c->write_wait, WAIT_WRITE);
}

void conn_wait_settle(struct conn *c)
{
    if (c->state == CONN_HEAD && c->in.len == 0 && c->in.base)
        buf_free(&c->in);
    if (c->out.len == 0 && c->out.base && c->state == CONN_HEAD) {
        buf_free(&c->out);
        held_count(c);
    }
    settle_events(c);
    settle_read_wait(c);
    if (c->out.len == 0 && !c->shut_wants_write && !waits_for_taker(c))
        server_wait_stop(&c->write_wait);
    else if (!c->write_wait.next)
        wait_for_taker(c);
}

/* A peer that has gone takes nothing, and its socket is not polled for it. */
static bool has_gone(const struct conn *c)
{
    struct pollfd p = {.fd = c->fd};

    return poll(&p, 1, 0) > 0; /* POLLERR or POLLHUP: nothing else was asked for */
}

void conn_timed_out(struct conn *c, struct wait *w)
{
    if (w == &c->write_wait && wire_unsent(c->fd, &c->out) < c->unsent) {
        wait_for_taker(c); /* slow, but not stuck */
        return;
    }
    if (w == &c->write_wait) {
        c->broken = c->cut = true;
    } else if (waits_for_taker(c) && c->read_kind == WAIT_TAKEN) {
        c->broken = has_gone(c);
    } else if (w == &c->own_wait) {
        c->timed_out = true;
    } else if (c->state == CONN_HEAD && c->read_kind == WAIT_HEAD) {
        response_refuse(c, 408, "the request's head did not come in time");
    } else if (c->state == CONN_EXCHANGE && c->read_kind == WAIT_BODY) {
        c->timed_out = true;
    } else {
        c->broken = true;
    }
    conn_pump(c);
}
