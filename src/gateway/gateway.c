/* A sandbox's request passes these states: asked (pending.c holds the exchange by a ticket
 * while the control loop resolves it, with a deadline), answered (refused, or with a socket; an
 * idle connection to the same sandbox and port is taken instead where one is left), relayed
 * (http/relay.c has it to its end), and perhaps its connection kept idle for the next. An
 * answer to a ticket that is gone closes what it brought. A pause of the sandbox cuts what is
 * relayed, a moment later; the sweep ends tickets and idle connections whose time is over, and
 * rests when there are none. */

#include "gateway/gateway.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/loopback.h"
#include "gateway/answer.h"
#include "gateway/idle_connections.h"
#include "gateway/pending.h"
#include "http/relay.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define SWEEP_MS 500
#define MEMORY_IS_OUT \
    "the server's memory is out, and some sandbox was paused: relayed connections end"

struct gateway {
    struct gateway_config config;
    struct pending *pending;
    struct idle_connections idle;
    uv_timer_t sweep;
    struct relay_context *relays; /* under way */
    uv_timer_t drain;             /* some of them end */
    unsigned handles;
};

/* The state of a relay; in the exchange's arena. */
struct relay_context {
    struct relay_context *next, **prev; /* while the exchange is there */
    struct http_exchange *x;
    uint64_t end_ms; /* cut then: its sandbox was paused, or may have been; 0: no */
    bool may_be;
    bool cut; /* now */
    bool of_volume;
    unsigned repeats; /* how often its volume was asked for anew */
    struct gateway *gateway;
    char id[IDS_SANDBOX_SIZE];
    uint32_t gen;
    uint16_t port;
    char key[2 * PRIVSEP_KEY_SIZE + 1];
    char host[256];
};

/* -- start and end ----------------------------------------------------------------------------- */

static void late(struct http_exchange *x)
{
    http_respond_error(x, 504, "the server is too busy to look for the sandbox; try again");
}

/* The timer rests while there is nothing to look after. */
static void on_sweep(uv_timer_t *t)
{
    struct gateway *g = t->data;
    uint64_t now_ms = clock_mono_ms();

    idle_connections_sweep(&g->idle, now_ms);
    pending_sweep(g->pending, now_ms, late);
    if (g->idle.count == 0 && pending_count(g->pending) == 0)
        uv_timer_stop(t);
}

static void need_sweep(struct gateway *g)
{
    if (!uv_is_active((uv_handle_t *)&g->sweep))
        uv_timer_start(&g->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
}

int gateway_new(uv_loop_t *loop, const struct gateway_config *config, struct gateway **out)
{
    struct gateway *g = calloc(1, sizeof(*g));
    int rc;

    if (!g)
        return -ENOMEM;
    rc = pending_new(config->max_waiting, &g->pending);
    if (rc < 0) {
        free(g);
        return rc;
    }
    g->config = *config;
    idle_connections_init(&g->idle);
    uv_timer_init(loop, &g->sweep);
    uv_timer_init(loop, &g->drain);
    g->sweep.data = g->drain.data = g;
    g->handles = 2;
    *out = g;
    return 0;
}

static void on_sweep_closed(uv_handle_t *h)
{
    struct gateway *g = h->data;

    if (--g->handles > 0)
        return;
    pending_free(g->pending);
    free(g);
}

void gateway_free(struct gateway *g)
{
    if (!g)
        return;
    idle_connections_close_all(&g->idle);
    uv_close((uv_handle_t *)&g->sweep, on_sweep_closed);
    uv_close((uv_handle_t *)&g->drain, on_sweep_closed);
}

/* -- the way in -------------------------------------------------------------------------------- */

bool gateway_preflight(struct http_exchange *x)
{
    static const struct http_header headers[] = {
        {"Access-Control-Allow-Origin", "*"},
        {"Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"},
        {"Access-Control-Allow-Headers", "*, Authorization"},
        {"Access-Control-Expose-Headers", "*"},
        {"Access-Control-Max-Age", "7200"},
    };
    const struct http_head *h = http_exchange_head(x);
    struct route route;

    if (strcmp(h->method, "OPTIONS") != 0 || !http_head_get(h, "Access-Control-Request-Method"))
        return false;
    route_request(h, &route);
    if (route.kind == ROUTE_SANDBOX && route.port != AGENT_PORT)
        return false;
    http_respond(x, 204, headers, ARRAY_SIZE(headers), NULL, 0);
    return true;
}

static bool is_read(const struct http_head *h)
{
    return strcmp(h->method, "GET") == 0 || strcmp(h->method, "HEAD") == 0;
}

/* before: the relay that has failed, where it is asked again; NULL: it is not. */
static void query(struct gateway *g, struct http_exchange *x, const struct route *route,
                  struct relay_context *before)
{
    const struct http_head *h = http_exchange_head(x);
    struct gateway_query q = {.kind = route->kind, .port = route->port};
    uint64_t ticket;

    snprintf(q.id, sizeof(q.id), "%s", route->id);
    if (route->port == AGENT_PORT) {
        q.internal_path = !route_agent_path_is_open(h->path);
        q.idle_gen = idle_connections_generation(&g->idle, q.id);
    }
    if (route->kind == ROUTE_VOLUME) {
        q.idle_gen = 0;
        q.writes = !is_read(h);
        access_read_bearer(h, &q.access);
    } else if (access_read(h, &q.access) < 0) {
        http_respond_error(x, 503, "no memory to serve the request");
        return;
    }
    memcpy(q.access.signed_until, route->signed_until, sizeof(q.access.signed_until));
    ticket = pending_add(g->pending, x, clock_mono_ms() + g->config.lookup_timeout_ms, before,
                         NULL);
    if (ticket && g->config.query(g->config.ctx, ticket, &q) == 0) {
        need_sweep(g);
        return;
    }
    if (ticket)
        pending_take(g->pending, ticket, NULL);
    access_free(&q.access);
    http_respond_error(x, 503, "the server is too busy to look for the sandbox; try again");
}

bool gateway_handle(struct gateway *g, struct http_exchange *x)
{
    struct route route;

    route_request(http_exchange_head(x), &route);
    switch (route.kind) {
    case ROUTE_CONTROL_PLANE:
    case ROUTE_KEYED:
    case ROUTE_FILE_URL: return false;
    case ROUTE_BAD: http_respond_error(x, 400, "%s", route.why); return true;
    case ROUTE_SANDBOX:
    case ROUTE_VOLUME:
    case ROUTE_SIGNED: query(g, x, &route, NULL); return true;
    }
    return false;
}

/* -- what is relayed ends with a pause --------------------------------------------------------- */

static void unlink_relay(struct http_exchange *x, void *data)
{
    struct relay_context *p = data;

    *p->prev = p->next;
    if (p->next)
        p->next->prev = p->prev;
}

static void link_relay(struct gateway *g, struct http_exchange *x, struct relay_context *p)
{
    p->x = x;
    p->end_ms = 0;
    p->may_be = p->cut = false;
    p->next = g->relays;
    p->prev = &g->relays;
    if (p->next)
        p->next->prev = &p->next;
    g->relays = p;
    http_exchange_set(x, p, unlink_relay);
}

/* Cutting one may end others of its connection: the list is begun anew after each. */
static void on_drained(uv_timer_t *t)
{
    struct gateway *g = t->data;
    uint64_t now_ms = clock_mono_ms();
    bool more = true, later = false;

    while (more) {
        more = later = false;
        for (struct relay_context *p = g->relays; p && !more; p = p->next) {
            more = p->end_ms && p->end_ms <= now_ms;
            later |= p->end_ms > now_ms;
            if (!more)
                continue;
            p->end_ms = 0;
            p->cut = true;
            http_relay_break(p->x, p->may_be ? MEMORY_IS_OUT : "the sandbox was paused");
        }
    }
    if (later)
        uv_timer_start(&g->drain, on_drained, GATEWAY_DRAIN_MS, 0);
}

void gateway_paused(struct gateway *g, const char *id)
{
    bool any = false;

    for (struct relay_context *p = g->relays; p; p = p->next)
        if (!p->end_ms && (!id || strcmp(p->id, id) == 0)) {
            p->end_ms = clock_mono_ms() + GATEWAY_DRAIN_MS;
            p->may_be = !id;
            any = true;
        }
    if (any && !uv_is_active((uv_handle_t *)&g->drain))
        uv_timer_start(&g->drain, on_drained, GATEWAY_DRAIN_MS, 0);
}

/* -- the way through --------------------------------------------------------------------------- */

/* A read of a volume's contents whose server has just made way for a sandbox is begun anew: it is
 * served beside that, or told which sandbox has the volume. */
static bool repeat(struct http_exchange *x, struct relay_context *p)
{
    struct route route;

    if (!p->of_volume || p->repeats >= GATEWAY_VOLUME_REPEATS || !is_read(http_exchange_head(x)) ||
        !http_relay_may_repeat(x))
        return false;
    p->repeats++;
    unlink_relay(x, p);
    http_exchange_set(x, NULL, NULL);
    route_request(http_exchange_head(x), &route);
    query(p->gateway, x, &route, p);
    return true;
}

static void on_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    struct relay_context *p = arg;

    if (p->cut && p->may_be)
        http_respond_error(x, 503, MEMORY_IS_OUT "; try again");
    else if (p->cut)
        answer_paused(x, p->id);
    else if (why->code == ERR_UNAVAILABLE && repeat(x, p))
        return;
    else if (p->of_volume)
        http_respond_error(x, why->code == ERR_TIMEOUT ? 504 : 503,
                           "the volume's contents are not served any more (%s); try again",
                           why->text);
    else if (p->port == AGENT_PORT && why->code == ERR_TIMEOUT)
        answer_stuck(x, p->id, why->text);
    else if (p->port == AGENT_PORT)
        answer_not_found(x, p->id);
    else if (why->code == ERR_INTERNAL)
        http_respond_error(x, 502, "the service on port %u answered what is not HTTP: %s", p->port,
                           why->text);
    else
        answer_port_closed(x, p->id, p->port);
}

static void on_reusable(int fd, void *arg)
{
    const struct relay_context *p = arg;

    idle_connections_put(&p->gateway->idle, p->id, p->gen, fd, clock_mono_ms());
    need_sweep(p->gateway);
}

static int connect_port(int fd, uint16_t port)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return loopback_connect(fd, port);
}

/* Calls of the agent whose answer may come long after the request: they work on whole trees. */
#define LONG_CALL_FACTOR 20

static uint64_t head_timeout_ms(const struct http_exchange *x, const struct relay_context *p)
{
    static const char *const long_calls[] = {"/filesystem.Filesystem/Remove",
                                             "/filesystem.Filesystem/Move", "/files/compose"};
    uint64_t ms = p->gateway->config.agent_timeout_ms;

    if (p->port != AGENT_PORT) /* the acts of a user's service are its own affair */
        return 0;
    if (p->of_volume) /* a removal, a listing, or the end of an upload */
        return ms * LONG_CALL_FACTOR;
    for (size_t i = 0; i < ARRAY_SIZE(long_calls); i++)
        if (strcmp(http_exchange_head(x)->path, long_calls[i]) == 0)
            return ms * LONG_CALL_FACTOR;
    return ms;
}

static void relay(struct http_exchange *x, struct relay_context *p, int fd, bool connecting)
{
    static const char *const remove_agent[] = {
        AGENT_KEY_HEADER,    AGENT_ACCESS_HEADER,   ROUTE_HEADER_ID,       ROUTE_HEADER_PORT,
        ACCESS_TOKEN_HEADER, ACCESS_TRAFFIC_HEADER, ACCESS_PREVIEW_HEADER, NULL};
    static const char *const remove_volume[] = {AGENT_KEY_HEADER,    AGENT_ACCESS_HEADER,
                                                ACCESS_TOKEN_HEADER, "Authorization",
                                                "X-API-Key",         NULL};
    static const char *const remove_port[] = {AGENT_KEY_HEADER,      ROUTE_HEADER_ID,
                                              ROUTE_HEADER_PORT,     ACCESS_TRAFFIC_HEADER,
                                              ACCESS_PREVIEW_HEADER, NULL};
    bool agent = p->port == AGENT_PORT;
    struct http_header *key = arena_alloc(http_exchange_arena(x), sizeof(*key));
    struct http_relay_options o = {
        .fd = fd,
        .connecting = connecting,
        .add_count = agent ? 1 : 0,
        .remove = p->of_volume ? remove_volume
                  : agent      ? remove_agent
                               : remove_port,
        .host = p->host[0] ? p->host : NULL,
        .connect_timeout_ms = p->gateway->config.connect_timeout_ms,
        .head_timeout_ms = head_timeout_ms(x, p),
        /* A program that takes them for headers would see what remove_port is to take out. */
        .drop_trailers = true,
        .add_cors = agent && http_head_get(http_exchange_head(x), "Origin"),
        .on_fail = on_fail,
        .on_reusable = agent && !p->of_volume ? on_reusable : NULL,
        .arg = p,
    };

    if (!key) {
        util_close(&fd);
        http_respond_error(x, 503, "no memory to serve the request");
        return;
    }
    *key = (struct http_header){AGENT_KEY_HEADER, p->key};
    o.add = key;
    link_relay(p->gateway, x, p);
    http_relay_start(x, &o);
}

static void pass(struct gateway *g, struct http_exchange *x, struct gateway_answer *a,
                 const struct relay_context *before)
{
    struct relay_context *p = arena_alloc(http_exchange_arena(x), sizeof(*p));
    int fd = TAKE_FD(a->fd), rc = 0;

    if (!p) {
        util_close(&fd);
        http_respond_error(x, 503, "no memory to serve the request");
        return;
    }
    p->gateway = g;
    memcpy(p->id, a->id, sizeof(p->id));
    p->gen = a->gen;
    p->port = a->port;
    p->of_volume = a->of_volume;
    p->repeats = before ? before->repeats : 0;
    ids_hex(a->agent_key, sizeof(a->agent_key), p->key);
    memcpy(p->host, a->host, sizeof(p->host));
    if (!a->connected)
        rc = connect_port(fd, p->port);
    if (rc >= 0) {
        relay(x, p, fd, rc == 1);
        return;
    }
    util_close(&fd);
    if (p->of_volume)
        http_respond_error(x, 503, "the volume's contents are not served any more; try again");
    else if (p->port == AGENT_PORT)
        answer_not_found(x, p->id);
    else
        answer_port_closed(x, p->id, p->port);
}

/* An answer without a socket counts on an idle connection. When that was used up or closed
 * meanwhile it is asked again; bounded, since each time there is one idle connection less, and
 * without any the answer brings a socket. False: asked again. */
static bool take_idle(struct gateway *g, struct http_exchange *x, struct gateway_answer *a)
{
    struct route route;

    if (a->status || a->fd >= 0)
        return true;
    a->fd = idle_connections_take(&g->idle, a->id, a->gen);
    a->connected = a->fd >= 0;
    if (a->connected)
        return true;
    route_request(http_exchange_head(x), &route);
    query(g, x, &route, NULL);
    return false;
}

void gateway_answered(struct gateway *g, uint64_t ticket, struct gateway_answer *a)
{
    void *before = NULL;
    struct http_exchange *x = pending_take(g->pending, ticket, &before);

    if (x && take_idle(g, x, a)) {
        if (a->status)
            answer_refused(x, a);
        else if (!conn_share_take(g->config.conn_shares, x, a->tenant, a->id, a->anonymous))
            conn_share_refuse(x);
        else
            pass(g, x, a, before);
    }
    util_close(&a->fd);
}
