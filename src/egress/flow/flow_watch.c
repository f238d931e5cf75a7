/* The events that a flow waits for before its bytes are carried by a tunnel, a relay or HTTP/2: its
 * client, its upstream beside it, and one timer. flow_watch begins a watch in place of the one
 * before; flow_unwatch ends it, and no callback comes after. An event runs as a turn of the
 * sandbox's owner (turns.h): one that may not run now is reported again by libuv, whose polls are
 * level-triggered. */
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/tls/turns.h"

#include <errno.h>
#include <uv.h>

/* Apart from the flow, because libuv needs them a little longer than the flow may live. */
struct flow_io {
    uv_poll_t client, upstream;
    uv_timer_t timer;
    struct flow *flow; /* NULL once closing */
    void (*on_client)(struct flow *f, int events);
    bool (*on_upstream)(struct flow *f);
    void (*late)(struct flow *f);
    bool polls_client, polls_upstream;
    uint32_t client_round, upstream_round; /* turns.h */
    unsigned handles;
};

static void on_io_closed(uv_handle_t *h)
{
    struct flow_io *io = h->data;

    if (--io->handles == 0)
        free(io);
}

static void close_handle(uv_handle_t *h)
{
    uv_close(h, on_io_closed);
}

void flow_unwatch(struct flow *f)
{
    struct flow_io *io = TAKE_PTR(f->io);

    if (!io)
        return;
    io->flow = NULL;
    if (io->polls_client)
        close_handle((uv_handle_t *)&io->client);
    if (io->polls_upstream)
        close_handle((uv_handle_t *)&io->upstream);
    close_handle((uv_handle_t *)&io->timer);
}

static void on_timer(uv_timer_t *t)
{
    struct flow_io *io = t->data;

    io->late(io->flow);
}

/* False: it has ended, or its rules have brought it on to another watch. */
static bool may_go_on(const struct flow_io *io)
{
    struct flow *f = io->flow;

    return flow_settle(f) == FLOW_SETTLED && io->flow == f;
}

/* Errors, of which libuv does not tell again, are not left for another turn. */
static void on_client(uv_poll_t *p, int status, int events)
{
    struct flow_io *io = p->data;
    struct turns *turns = io->flow->egress->turns;
    bool entered = turns_enter(turns, registry_owner(io->flow->sandbox), &io->client_round);

    if ((entered || status < 0) && may_go_on(io))
        io->on_client(io->flow, status < 0 ? UV_READABLE | UV_DISCONNECT : events);
    if (entered)
        turns_exit(turns);
}

int flow_watch(struct flow *f, int events, void (*cb)(struct flow *f, int events),
               uint64_t timeout_ms, void (*late)(struct flow *f))
{
    struct flow_io *io;

    flow_unwatch(f);
    io = calloc(1, sizeof(*io));
    if (!io)
        return -ENOMEM;
    uv_timer_init(f->egress->loop, &io->timer);
    io->timer.data = io->client.data = io->upstream.data = io;
    io->handles = 1;
    io->flow = f;
    io->on_client = cb;
    io->late = late;
    f->io = io;
    if (timeout_ms)
        uv_timer_start(&io->timer, on_timer, timeout_ms, 0);
    if (!cb)
        return 0;
    if (uv_poll_init(f->egress->loop, &io->client, f->fd) < 0) {
        flow_unwatch(f);
        return -ENOMEM;
    }
    io->polls_client = true;
    io->handles++;
    uv_poll_start(&io->client, events, on_client);
    return 0;
}

static void on_upstream(uv_poll_t *p, int status, int events)
{
    struct flow_io *io = p->data;
    struct turns *turns = io->flow->egress->turns;
    bool entered = turns_enter(turns, registry_owner(io->flow->sandbox), &io->upstream_round);

    if ((entered || status < 0) && may_go_on(io) && !io->on_upstream(io->flow))
        uv_poll_stop(p);
    if (entered)
        turns_exit(turns);
}

void flow_watch_upstream(struct flow *f, bool (*cb)(struct flow *f))
{
    struct flow_io *io = f->io;

    if (uv_poll_init(f->egress->loop, &io->upstream, f->up_fd) < 0)
        return;
    io->on_upstream = cb;
    io->polls_upstream = true;
    io->handles++;
    uv_poll_start(&io->upstream, UV_READABLE | UV_DISCONNECT, on_upstream);
}

void flow_watch_again(struct flow *f, uint64_t timeout_ms)
{
    if (f->io)
        uv_timer_start(&f->io->timer, on_timer, timeout_ms, 0);
}
