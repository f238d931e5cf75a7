/* A relay whose bytes go through a filter: the request's are given to it as they come and written
 * as it gives them, and the answer's are read a piece at a time, given to it, and handed on as if
 * they had been read so. The upstream is read only while the client takes what comes and the filter
 * has time for it (its `most`); the rest in the filter is asked for before more is read, and the
 * upstream's end is acted on when nothing is left. */

#include "http/relay_filter.h"

#include "base/log.h"
#include "http/relay_end.h"
#include "http/relay_internal.h"

#include <errno.h>
#include <string.h>

/* The most that a call gives: all that it keeps back, which may pass at once, and one read. */
#define FILTERED_MAX ((size_t)2 * 1024 * 1024)

static void cut(struct relay *r, int rc)
{
    log_debug("relay: cut by its filter: %s", strerror(-rc));
    if (rc == -ENOBUFS)
        relay_fail(r, ERR_EXHAUSTED, HTTP_RELAY_HELD_REASON, 0);
    else
        relay_fail(r, ERR_UNAVAILABLE, "the connection ended before the answer was whole", 0);
}

/* -- the request ------------------------------------------------------------------------------- */

bool relay_write(struct relay *r, const char *data, size_t n)
{
    struct buf b;
    int rc;

    if (!r->o.filter) {
        wire_write(&r->wire, data, n);
        return true;
    }
    buf_init(&b, FILTERED_MAX);
    rc = r->o.filter->outward(r->o.filter_arg, data, n, &b);
    if (rc == 0 && b.len > 0)
        wire_give(&r->wire, &b); /* the client is not read while anything waits there */
    if (b.base)
        explicit_bzero(b.base, b.cap);
    buf_free(&b);
    if (rc < 0)
        cut(r, rc);
    return rc == 0;
}

/* -- the answer -------------------------------------------------------------------------------- */

/* Hands on what is in r->filtered as far as the client takes it, in pieces no longer than a read:
 * the relay's own buffers are made for that. False as relay_deliver's. */
static bool hand_on(struct relay *r)
{
    while (r->filtered.len > 0 && !r->behind) {
        size_t n = MIN(r->filtered.len, r->server->read_bytes);

        if (!relay_deliver(r, r->filtered.data, n)) {
            buf_clear(&r->filtered);
            return false;
        }
        buf_consume(&r->filtered, n);
    }
    return true;
}

/* The filter's next piece. False: there is none, or not now, or the relay has ended. */
static bool take_more(struct relay *r)
{
    const struct http_relay_filter *f = r->o.filter;
    int rc;

    r->filter_waits = f->most(r->o.filter_arg) == 0;
    if (r->filter_waits)
        return false;
    rc = f->inward_more(r->o.filter_arg, &r->filtered);
    if (rc < 0)
        cut(r, rc);
    return rc == 0 && r->filtered.len > 0;
}

/* False: the relay has ended. */
static bool pour(struct relay *r)
{
    do {
        if (!hand_on(r))
            return false;
    } while (!r->behind && take_more(r));
    if (!r->x)
        return false;
    if (r->filtered.len == 0)
        buf_free(&r->filtered);
    if (r->up_over && !r->behind && !r->filter_waits) {
        r->up_over = false;
        relay_upstream_ended(r, r->over_result);
    }
    return r->x != NULL;
}

void relay_filter_pour(struct relay *r)
{
    if (pour(r))
        relay_read_on(r);
}

void relay_filter_read(struct relay *r)
{
    const struct http_relay_filter *f = r->o.filter;
    struct http_server *s = r->server;
    size_t most = f->most(r->o.filter_arg);
    ssize_t n;
    int rc;

    r->filter_waits = most == 0;
    if (r->filter_waits) {
        relay_read_on(r);
        return;
    }
    n = wire_read(&r->wire, s->read_buf, MIN(most, s->read_bytes));
    if (n == -EAGAIN) {
        relay_read_on(r);
        return;
    }
    r->up_over = n <= 0;
    r->over_result = n;
    rc = n > 0 ? f->inward(r->o.filter_arg, s->read_buf, (size_t)n, &r->filtered)
               : f->inward_end(r->o.filter_arg, &r->filtered);
    if (n > 0) /* the server may send back what the filter has told it */
        explicit_bzero(s->read_buf, (size_t)n);
    if (rc < 0)
        cut(r, rc);
    else
        relay_filter_pour(r);
}

/* The filter has time, or something to give: what it has comes first, then one read. Until that has
 * been tried the socket is polled as before: a stream whose every read waits for its turn is never
 * polled, which would cost two system calls for each of them. */
static void wake(void *arg)
{
    struct relay *r = arg;

    r->filter_waits = false;
    if (r->behind || r->up_ended || !pour(r))
        return;
    if (relay_may_read(r))
        relay_filter_read(r);
    else
        relay_read_on(r);
}

void relay_filter_start(struct relay *r)
{
    r->wire.secret = true;
    buf_init(&r->filtered, FILTERED_MAX);
    r->o.filter->start(r->o.filter_arg, wake, r);
}
