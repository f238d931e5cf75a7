/* A request is the API's (connloop_api.c) or a sandbox's (gateway.c). A sandbox's: the head is
 * posted, and the answer brings a socket to relay through. Nothing here waits for the control
 * loop: whatever it answers comes through the loop's mailbox, as do its orders (serve, paused,
 * stop). cayd's main starts one of these for each thread and joins it at the end; stopping closes
 * listeners first, then exchanges that go on after the grace time. */

#include "cayd/connloop_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "cayd/loop_end.h"
#include "cayd/snapshot_import.h"
#include "cayd/storage.h"
#include "cayd/upload.h"
#include "gateway/route.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define GATEWAY_TIMEOUT_MS 15000
#define CONNECT_TIMEOUT_MS 10000
#define WRITE_TIMEOUT_MS   600000 /* a client may look at a stream's last lines for a while */
#define SWEEP_MS           1000
#define INBOX_MAX          16

/* -- the gateway ------------------------------------------------------------------------------- */

static void lookup_answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;

    gateway_answered(l->gateway, a->ticket, &a->answer);
    control_request_free(a);
}

static int send_query(struct connloop *l, uint64_t ticket, struct gateway_query *q,
                      void (*answered)(struct control_request *, void *))
{
    struct control_request *a = control_request_gateway(l->config.control, q, &l->inbox, ticket,
                                                        answered);
    int rc = a ? control_send(a) : -EAGAIN;

    if (rc == 0)
        return 0;
    if (a) /* still q's */
        a->query.access.subject = a->query.access.key = NULL;
    control_request_free(a);
    return -EAGAIN;
}

static int lookup(void *ctx, uint64_t ticket, struct gateway_query *q)
{
    return send_query(ctx, ticket, q, lookup_answered);
}

/* -- the toolbox ------------------------------------------------------------------------------- */

static void toolbox_lookup_answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;

    toolbox_answered(l->toolbox, a->ticket, &a->answer);
    control_request_free(a);
}

static int toolbox_lookup(void *ctx, uint64_t ticket, struct gateway_query *q)
{
    return send_query(ctx, ticket, q, toolbox_lookup_answered);
}

/* As the toolbox takes answers: 0 is good. */
static void follow_answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;
    struct gateway_answer answer = {.fd = -1, .status = a->response.status};

    if (a->response.stream_fd) {
        answer.status = 0;
        memcpy(answer.tenant, a->response.tenant, sizeof(answer.tenant));
        answer.fd = a->response.stream_fd;
        a->response.stream_fd = 0;
    }
    toolbox_answered(l->toolbox, a->ticket, &answer);
    control_request_free(a);
}

static int toolbox_follow(void *ctx, uint64_t ticket, const char *host, const char *key)
{
    struct connloop *l = ctx;
    struct api_request *r = api_request_new("GET", TOOLBOX_EVENTS_PATH, "", host, key, "", 0);
    struct control_request *a = NULL;

    if (r) {
        r->is_socket = true;
        a = control_request_api(l->config.control, r, &l->inbox, follow_answered);
    }
    if (a)
        a->ticket = ticket;
    if (a && control_send(a) == 0)
        return 0;
    control_request_free(a);
    return -EAGAIN;
}

static void handle(struct http_exchange *x, void *ctx)
{
    struct connloop *l = ctx;
    const char *repeated = route_repeated(http_exchange_head(x));

    if (repeated) {
        http_respond_error(x, 400, "more than one header %s: send it once", repeated);
        return;
    }
    if (gateway_preflight(x) || gateway_handle(l->gateway, x) || toolbox_handle(l->toolbox, x) ||
        upload_handle(l, x) || storage_handle(l, x) || snapshot_import_handle(l, x))
        return;
    connloop_api(l, x);
}

/* -- the thread -------------------------------------------------------------------------------- */

static void late(struct http_exchange *x)
{
    http_respond_error(x, 504, "the server did not answer in time");
}

static void on_sweep(uv_timer_t *t)
{
    struct connloop *l = t->data;

    if (pending_count(l->api_pending) > 0)
        pending_sweep(l->api_pending, clock_mono_ms(), late);
}

static void on_stopped(void *ctx)
{
    struct connloop *l = ctx;

    gateway_free(l->gateway);
    toolbox_free(l->toolbox);
    mailbox_close(&l->inbox);
    uv_close((uv_handle_t *)&l->sweep, NULL);
}

static void order_free(struct order *o)
{
    free(o->allocated ? o : NULL);
}

static void discard_order(struct mailbox_message *message)
{
    order_free(CONTAINER_OF(message, struct order, message));
}

static void open_stop(struct mailbox_message *message, void *reader)
{
    struct order *o = CONTAINER_OF(message, struct order, message);
    struct connloop *l = reader;

    if (!l->stopping) {
        streams_end(l->streams);
        toolbox_stop(l->toolbox);
        http_server_stop(l->server, o->grace_ms, on_stopped, l);
    }
    l->stopping = true;
    order_free(o);
}

static void open_serve(struct mailbox_message *message, void *reader)
{
    struct order *o = CONTAINER_OF(message, struct order, message);
    struct connloop *l = reader;

    for (size_t i = 0; i < l->config.n_listen && !l->stopping; i++) {
        int rc = http_server_listen(l->server, l->listen_fds[i]);

        if (rc < 0)
            log_error("connection loop %u cannot listen: %s", l->config.number, strerror(-rc));
        else
            l->listen_fds[i] = -1;
    }
    order_free(o);
}

static void open_paused(struct mailbox_message *message, void *reader)
{
    struct order *o = CONTAINER_OF(message, struct order, message);
    struct connloop *l = reader;
    const char *id = o == &l->end_all ? NULL : o->id;

    if (!id)
        l->end_all_is_on = false; /* first: a later pause has an order of its own */
    if (!l->stopping) {
        gateway_paused(l->gateway, id);
        toolbox_paused(l->toolbox, id);
    }
    if (!l->stopping && !id) { /* it may be about a key */
        key_owner_forget(&l->owners, NULL);
        connloop_api_revoked(l, NULL);
        upload_key_revoked(l, NULL);
        toolbox_key_revoked(l->toolbox, NULL);
        streams_end(l->streams);
    }
    order_free(o);
}

static void open_key_revoked(struct mailbox_message *message, void *reader)
{
    struct order *o = CONTAINER_OF(message, struct order, message);
    struct connloop *l = reader;

    if (!l->stopping) {
        key_owner_forget(&l->owners, o->id);
        connloop_api_revoked(l, o->id);
        upload_key_revoked(l, o->id);
        toolbox_key_revoked(l->toolbox, o->id);
        streams_end_of(l->streams, o->id);
    }
    order_free(o);
}

static void post(struct connloop *l, struct order *o,
                 void (*open)(struct mailbox_message *, void *))
{
    o->message.open = open;
    o->message.discard = discard_order;
    mailbox_answer(&l->inbox, &o->message);
}

void connloop_serve(struct connloop *l)
{
    post(l, &l->serve, open_serve);
}

void connloop_stop(struct connloop *l, uint64_t grace_ms)
{
    l->stop.grace_ms = grace_ms;
    post(l, &l->stop, open_stop);
}

/* what: as the log names it. */
static void order_about(struct connloop *l, const char *what, const char *id,
                        void (*open)(struct mailbox_message *, void *))
{
    struct order *o = calloc(1, sizeof(*o));

    if (!o) {
        log_error("memory is out: with what is relayed for %s, all that connection loop %u "
                  "relays ends",
                  what, l->config.number);
        if (!atomic_exchange(&l->end_all_is_on, true))
            post(l, &l->end_all, open_paused);
        return;
    }
    o->allocated = true;
    (void)snprintf(o->id, sizeof(o->id), "%s", id);
    post(l, o, open);
}

void connloop_paused(struct connloop *l, const char *id)
{
    order_about(l, "the paused sandbox", id, open_paused);
}

void connloop_key_revoked(struct connloop *l, const char *key_id)
{
    order_about(l, "the key that was revoked", key_id, open_key_revoked);
}

static void thread_main(void *arg)
{
    struct connloop *l = arg;

    uv_run(&l->loop, UV_RUN_DEFAULT);
    l->config.ended(l->config.ended_arg);
}

static int set_up(struct connloop *l)
{
    struct http_server_config server;
    struct gateway_config gateway = {
        .max_waiting = l->config.max_connections,
        .lookup_timeout_ms = GATEWAY_TIMEOUT_MS,
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
        .agent_timeout_ms = l->config.agent_timeout_ms,
        .conn_shares = conn_share_pool_new(l->config.max_connections),
        .query = lookup,
        .ctx = l,
    };
    struct toolbox_config toolbox = {
        .max_waiting = l->config.max_connections,
        .lookup_timeout_ms = GATEWAY_TIMEOUT_MS,
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
        .agent_timeout_ms = l->config.agent_timeout_ms,
        .conn_shares = gateway.conn_shares,
        .query = toolbox_lookup,
        .follow = toolbox_follow,
        .ctx = l,
    };
    int rc;

    http_server_config_default(&server);
    server.max_connections = l->config.max_connections;
    server.write_timeout_ms = WRITE_TIMEOUT_MS;
    server.owner_timeout_ms = CONN_SHARE_OWNER_MS;
    server.layer = l->config.layer;
    server.relays = true;
    server.collect_total_bytes = (size_t)BODIES_MAX * API_BODY_MAX_BYTES + TOOLBOX_BODIES_BYTES +
                                 l->config.max_connections * (size_t)KEYLESS_BODY_BYTES;
    l->bodies = share_pool_new(BODIES_MAX);
    l->conn_shares = gateway.conn_shares;
    if (!l->bodies || !l->conn_shares)
        return -ENOMEM;
    if ((rc = pending_new(l->config.max_connections, &l->api_pending)) < 0 ||
        (rc = http_server_new(&l->loop, &server, handle, l, &l->server)) < 0 ||
        (rc = gateway_new(&l->loop, &gateway, &l->gateway)) < 0 ||
        (rc = toolbox_new(&l->loop, &toolbox, &l->toolbox)) < 0 ||
        (rc = streams_new(&l->loop, &l->streams)) < 0 ||
        (rc = mailbox_init(&l->inbox, &l->loop, INBOX_MAX, l)) < 0)
        return rc;
    uv_timer_init(&l->loop, &l->sweep);
    l->sweep.data = l;
    uv_timer_start(&l->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    uv_unref((uv_handle_t *)&l->sweep);
    return 0;
}

/* A failure here ends the program: nothing is undone. */
int connloop_start(const struct connloop_config *config, struct connloop **out)
{
    struct connloop *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return -ENOMEM;
    l->config = *config;
    for (size_t i = 0; i < config->n_listen; i++) {
        l->listen_fds[i] = fcntl(config->listen_fds[i], F_DUPFD_CLOEXEC, 3);
        if (l->listen_fds[i] < 0)
            return -errno; /* cppcheck-suppress memleak */
    }
    rc = uv_loop_init(&l->loop);
    if (rc < 0)
        return rc;
    l->loop.data = l;
    if ((rc = set_up(l)) < 0 || (rc = uv_thread_create(&l->thread, thread_main, l)) < 0)
        return rc;
    *out = l;
    return 0;
}

void connloop_join(struct connloop *l)
{
    uv_thread_join(&l->thread);
    for (size_t i = 0; i < l->config.n_listen; i++)
        util_close(&l->listen_fds[i]);
    pending_free(l->api_pending);
    share_pool_free(l->bodies);
    share_pool_free(l->conn_shares);
    streams_free(l->streams);
    mailbox_free(&l->inbox);
    loop_end(&l->loop, "connection loop");
    free(l);
}
