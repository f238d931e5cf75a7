/* How a relay ends, and the one timer that ends one that does not get on. Each end detaches the
 * exchange first, so that none of its callbacks finds the relay again: it is cut or answered
 * with an error (relay_fail), or done (relay_finish), and then the upstream's socket may be used
 * again where both sides are where a new request would begin. */

#include "http/relay_end.h"

#include "http/relay_internal.h"

#define HALF_CLOSED_MS 300000 /* a tunnel of which one direction ended, without traffic */

/* The exchange goes on without us. */
struct http_exchange *relay_detach(struct relay *r)
{
    struct http_exchange *x = TAKE_PTR(r->x);

    if (r->o.filter)
        r->o.filter->free(r->o.filter_arg);
    r->o.filter = NULL;
    x->inner = NULL;
    x->inner_close = NULL;
    x->inner_drain = NULL;
    return x;
}

/* The upstream cannot be relayed any further. */
void relay_fail(struct relay *r, enum err_code code, const char *text, int errnum)
{
    struct http_relay_options o = r->o;
    struct http_exchange *x = relay_detach(r);
    bool tunnel = r->tunnel;
    struct err e;

    wire_close(&r->wire, false);
    if (errnum != 0)
        err_set_sys(&e, code, errnum, "%s", text);
    else
        err_set(&e, code, "%s", text);
    if (x->begun) {
        if (o.on_break && !tunnel)
            o.on_break(x, &e, o.arg);
        exchange_break(x);
        return;
    }
    x->paused = true; /* the rest of the request is read or dropped with the answer */
    o.on_fail(x, &e, o.arg);
}

/* As before its first relay: nothing more is read from the client meanwhile. */
bool http_relay_may_repeat(struct http_exchange *x)
{
    if (x->head.framing != HTTP_BODY_NONE || x->begun || x->aborted || x->inner)
        return false;
    x->mode = BODY_UNDECIDED;
    x->paused = x->end_reported = false;
    return true;
}

void relay_finish(struct relay *r)
{
    bool reusable = r->o.on_reusable && r->head.keep_alive && r->request_sent && !r->overrun &&
                    r->wire.out.len == 0 && !r->wire.write_broken && !r->wire.ended;
    struct http_relay_options o = r->o;
    struct http_exchange *x = relay_detach(r);
    int fd = wire_close(&r->wire, reusable);

    http_response_end(x);
    if (fd >= 0)
        o.on_reusable(fd, o.arg);
}

void relay_finish_unannounced(struct relay *r)
{
    static const char why[] = "the server has gone without announcing the end of its answer";
    struct err e;

    if (!r->x->conn->layer) { /* a plain socket's end says that all is there */
        relay_fail(r, ERR_UNAVAILABLE, why, 0);
        return;
    }
    err_set(&e, ERR_UNAVAILABLE, "%s", why);
    if (r->o.on_break)
        r->o.on_break(r->x, &e, r->o.arg);
    r->x->conn->unannounced = true;
    relay_finish(r);
}

/* An upstream that is to answer soon is to take its request soon, too. */
static uint64_t full_timeout_ms(const struct relay *r)
{
    uint64_t ms = r->x->conn->server->config.write_timeout_ms;

    if (r->o.head_timeout_ms && !r->has_head)
        ms = ms ? MIN(ms, r->o.head_timeout_ms) : r->o.head_timeout_ms;
    return ms;
}

/* There is one timer, and one thing at a time that it waits for. */
void relay_arm(struct relay *r)
{
    uint64_t ms = 0;

    if (r->wire.connecting)
        ms = r->o.connect_timeout_ms;
    else if (r->full)
        ms = full_timeout_ms(r);
    else if (r->tunnel)
        ms = r->up_ended || r->client_ended ? HALF_CLOSED_MS : 0;
    else if (!r->has_head && r->request_sent) /* a slow client's time is not the upstream's */
        ms = r->o.head_timeout_ms;
    wire_timeout(&r->wire, ms);
}

void relay_timed_out(struct wire *w)
{
    struct relay *r = CONTAINER_OF(w, struct relay, wire);

    size_t unsent = wire_unsent(w->fd, &w->out);

    if (r->full && unsent < r->full_bytes) { /* slow, but not stuck */
        r->full_bytes = unsent;
        relay_arm(r);
    } else if (w->connecting) {
        relay_fail(r, ERR_TIMEOUT, "no connection in time", 0);
    } else {
        relay_fail(r, ERR_TIMEOUT,
                   r->full ? "the request was not taken in time" : "no answer in time", 0);
    }
}
