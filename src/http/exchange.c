/* A request and its response, from its head to its end. conn.c makes it when a head begins, and
 * owns it; a handler uses it between its on_request and its on_close, which is called once,
 * whatever ends the exchange: the end of the response, an abort, a lost connection. An exchange
 * that a handler wants to end at once is only marked (`aborted`), and freed by the connection's
 * next step, since the handler may be inside one of its callbacks. Freed exchanges are kept for
 * reuse, up to MAX_FREE a server. */
#include "http/exchange.h"

#include "http/response.h"
#include "http/server_internal.h"
#include "http/wire.h"

#include <assert.h>
#include <string.h>

#define MAX_FREE         16 /* exchanges kept for reuse */
#define MAX_KEPT_STORAGE 8192u

void http_exchange_set_host(struct http_exchange *x, const char *host)
{
    x->head.host = host;
}

const struct http_head *http_exchange_head(const struct http_exchange *x)
{
    return &x->head;
}

uv_loop_t *http_exchange_loop(const struct http_exchange *x)
{
    return x->conn->server->loop;
}

uint64_t http_exchange_tag(const struct http_exchange *x)
{
    return x->conn->tag;
}

struct arena *http_exchange_arena(struct http_exchange *x)
{
    return &x->arena;
}

void http_exchange_set(struct http_exchange *x, void *data,
                       void (*on_close)(struct http_exchange *x, void *data))
{
    x->data = data;
    x->on_close = on_close;
}

void *http_exchange_get(const struct http_exchange *x)
{
    return x->data;
}

void http_exchange_own(struct http_exchange *x, void *owner, void (*release)(void *owner))
{
    assert(!x->owner_release);
    x->owner = owner;
    x->owner_release = release;
    server_wait_stop(&x->conn->own_wait);
}

bool http_exchange_is_owned(const struct http_exchange *x)
{
    return x->owner_release != NULL;
}

bool http_response_begun(const struct http_exchange *x)
{
    return x->begun;
}

size_t http_response_queued(const struct http_exchange *x)
{
    return x->conn->out.len;
}

void http_exchange_abort(struct http_exchange *x)
{
    x->aborted = true;
    server_mark_dirty(x->conn);
}

void exchange_break(struct http_exchange *x)
{
    x->breaks = x->paused = true;
    x->want_drain = false;
    server_mark_dirty(x->conn);
}

/* A reset takes all with it that the peer's kernel does not have: not only what is queued here, but
 * also what waits in this socket for a peer that reads slowly. Nothing tells when the last of that
 * is taken, so conn_wait.c has it asked again. */
bool exchange_step_break(struct http_exchange *x)
{
    const struct conn *c = x->conn;

    if (c->out.len > 0 || wire_unsent(c->fd, &c->out) > 0)
        return c->broken;
    x->aborted = true;
    return true;
}

/* -- life -------------------------------------------------------------------------------------- */

struct http_exchange *exchange_new(struct conn *c, size_t storage)
{
    struct http_server *s = c->server;
    struct http_exchange *x = s->free_exchanges;
    char *kept;
    size_t kept_bytes;

    if (x) {
        s->free_exchanges = x->next_free;
        s->free_count--;
    } else {
        x = calloc(1, sizeof(*x));
        if (!x)
            return NULL;
    }
    kept = x->storage;
    kept_bytes = x->storage_bytes;
    memset(x, 0, offsetof(struct http_exchange, body));
    if (kept_bytes < storage) {
        free(kept);
        kept_bytes = MAX(storage, 2048u);
        kept = malloc(kept_bytes);
        if (!kept) {
            free(x);
            return NULL;
        }
    }
    x->storage = kept;
    x->storage_bytes = kept_bytes;
    x->conn = c;
    arena_init(&x->arena, s->config.arena_max_bytes);
    return x;
}

void exchange_free(struct http_exchange *x)
{
    struct http_server *s = x->conn->server;

    x->conn->exchange = NULL;
    server_wait_stop(&x->conn->own_wait);
    if (x->owner_release)
        x->owner_release(x->owner);
    http_body_release(x);
    arena_free(&x->arena);
    explicit_bzero(x->storage, x->storage_bytes); /* keys in its head */
    x->conn = NULL;
    if (s->free_count >= MAX_FREE || x->storage_bytes > MAX_KEPT_STORAGE) {
        free(x->storage);
        free(x);
        return;
    }
    x->next_free = s->free_exchanges;
    s->free_exchanges = x;
    s->free_count++;
}

void exchange_announce_close(struct http_exchange *x)
{
    if (x->close_announced)
        return;
    x->close_announced = true;
    if (x->inner_close)
        x->inner_close(x);
    if (x->on_close)
        x->on_close(x, x->data);
}

/* The exchange cannot be finished. */
void exchange_lost(struct conn *c)
{
    struct http_exchange *x = c->exchange;
    bool late = c->timed_out && !x->begun && !c->broken && !x->aborted;

    exchange_announce_close(x);
    if (x->begun && !(x->ended && c->out.len == 0))
        c->cut = true;
    exchange_free(x);
    c->state = CONN_CLOSING;
    if (late)
        response_refuse(c, 408, "the request's body did not come in time");
    else
        c->broken = true;
}
