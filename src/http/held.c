/* Answers that are made whole (http_respond) are queued whatever their length, and a client may
 * take none of it for a long time. Handlers that write in pieces stop at write_high_bytes; what a
 * queue has beyond that is counted here, and bounded for all connections together. The connections
 * whose clients take nothing stand in the list of WAIT_WRITE in the order of their last byte: the
 * first of them gives way, so that a client which reads keeps its answer, whatever others hold.
 * Memory is counted, not bytes that are left: a client that takes nearly all of an answer holds all
 * of it still. */
#include "http/held.h"

#include "base/log.h"
#include "http/server_internal.h"

/* A queue that is filled up to write_high_bytes has at most twice that (buf_reserve). */
#define OF_PIECES 2u
#define SAY_MS    10000

void held_count(struct conn *c)
{
    struct http_server *s = c->server;
    size_t now = c->out.cap > OF_PIECES * s->config.write_high_bytes ? c->out.cap : 0;

    s->held = s->held - c->held + now;
    c->held = now;
}

/* Other than `but`; NULL: there is none. */
static struct conn *stuck_longest(const struct http_server *s, const struct conn *but)
{
    const struct wait *list = &s->waits[WAIT_WRITE];

    for (struct wait *w = list->next; w != list; w = w->next) {
        struct conn *c = CONTAINER_OF(w, struct conn, write_wait);

        if (c->held > 0 && c != but)
            return c;
    }
    return NULL;
}

/* Once in a while: a flood of a server must not flood its log. */
static void say(struct http_server *s)
{
    uint64_t now = uv_now(s->loop);

    if (s->held_said_ms != 0 && now - s->held_said_ms < SAY_MS)
        return;
    s->held_said_ms = now;
    log_warn("answers of more than %zu bytes together are not taken by their clients: connections "
             "that have taken nothing for longest are reset",
             s->config.held_total_bytes);
}

static void reset(struct conn *c)
{
    c->broken = c->cut = true;
    buf_free(&c->out);
    held_count(c);
    server_mark_dirty(c);
}

void held_free_memory(struct conn *c)
{
    struct http_server *s = c->server;

    held_count(c);
    while (s->held > s->config.held_total_bytes && c->held > 0) {
        struct conn *stuck = stuck_longest(s, c);

        say(s);
        reset(stuck ? stuck : c);
    }
}
