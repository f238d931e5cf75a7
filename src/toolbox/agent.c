/* A call of a sandbox's agent: a request on a connection of its own, and its answer. Handlers call
 * toolbox_agent (or toolbox_rpc for Connect's unary methods), also several at a time. Order of an
 * op: a socket (the one that came with the call's first lookup, an idle connection, or one from a
 * new lookup), connect, request, head, body (handed on in pieces, or collected within
 * TOOLBOX_OUTPUT_BYTES and a share of the loop's memory), done; the connection then goes to the
 * idle ones. done is called exactly once, and the op is off the call's list before it, since done
 * may end the call. A canceled op that waits for its socket ends when that has come. An answer for
 * another generation of the sandbox is refused: its agent is not the one that the call began
 * with. */

#include "toolbox/agent.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/loopback.h"
#include "gateway/idle_connections.h"
#include "gateway/resolve.h"
#include "http/client.h"
#include "http/json.h"
#include "http/server.h"
#include "toolbox/call.h"
#include "toolbox/collect.h"
#include "toolbox/lookup.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define RPC_ANSWER_MAX (64u * 1024u)

/* A call of an agent, from the question for a socket to its answer. */
struct toolbox_op {
    struct toolbox_op *next, **prev;
    struct toolbox_call *call;
    struct toolbox_agent_request r;
    struct http_client *client; /* NULL: not connected yet */
    bool canceled;
    struct collected said; /* a long answer: http/client.h knows no places */
};

static void free_op(struct toolbox_op *op)
{
    collect_free(&op->said);
    free(op->r.target);
    if (op->r.body)
        explicit_bzero(op->r.body, op->r.body_len);
    free(op->r.body);
    free(op);
}

/* The op is off the call's list before done, which may end the call's last use of it. */
static void finish(struct toolbox_op *op, const struct http_head *head, const char *body,
                   size_t len, const struct err *why)
{
    struct toolbox_call *c = op->call;

    *op->prev = op->next;
    if (op->next)
        op->next->prev = op->prev;
    op->r.done(op->r.arg, head, body, len, why);
    free_op(op);
    toolbox_call_unref(c);
}

static void fail(struct toolbox_op *op, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    finish(op, NULL, NULL, 0, &e);
}

/* -- the call ---------------------------------------------------------------------------------- */

static bool is_long(const struct toolbox_agent_request *r)
{
    return !r->on_data && r->max_response_bytes > TOOLBOX_OUTPUT_BYTES;
}

static void on_head(void *arg, const struct http_head *head)
{
    struct toolbox_op *op = arg;

    http_client_timeout(op->client, op->r.timeout_ms);
    if (op->r.on_head)
        op->r.on_head(op->r.arg, head);
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct toolbox_op *op = arg;

    return op->r.on_data ? op->r.on_data(op->r.arg, data, len) : collect_add(&op->said, data, len);
}

static void on_drain(void *arg)
{
    struct toolbox_op *op = arg;

    if (op->r.on_drain)
        op->r.on_drain(op->r.arg);
}

static void on_done(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why, int *fd)
{
    struct toolbox_op *op = arg;
    struct toolbox_call *c = op->call;
    const bool collected = is_long(&op->r) && head && head->status / 100 == 2;

    if (*fd >= 0 && !c->toolbox->stopping) {
        idle_connections_put(&c->toolbox->idle, c->id, c->gen, TAKE_FD(*fd), clock_mono_ms());
        toolbox_need_sweep(c->toolbox);
    }
    if (op->said.refused)
        fail(op, op->said.refused, collect_refusal(&op->said));
    else if (collected)
        finish(op, head, collect_text(&op->said), op->said.bytes.len, why);
    else
        finish(op, head, body, len, why);
}

static size_t put_headers(const struct toolbox_op *op, struct http_header *out, char *key,
                          char *user, char *timeout, char *beat, char *range)
{
    size_t n = 0;

    ids_hex(op->call->agent_key, sizeof(op->call->agent_key), key);
    out[n++] = (struct http_header){AGENT_KEY_HEADER, key};
    memcpy(user, "Basic ", 6);
    base64_encode(TOOLBOX_USER ":", strlen(TOOLBOX_USER ":"), user + 6);
    out[n++] = (struct http_header){"Authorization", user};
    out[n++] = (struct http_header){AGENT_ACCESS_HEADER, "user"};
    if (op->r.type)
        out[n++] = (struct http_header){"Content-Type", op->r.type};
    if (op->r.process_timeout_ms) {
        snprintf(timeout, 24, "%llu", (unsigned long long)op->r.process_timeout_ms);
        out[n++] = (struct http_header){"Connect-Timeout-Ms", timeout};
    }
    if (op->r.beat_s) {
        snprintf(beat, 24, "%u", op->r.beat_s);
        out[n++] = (struct http_header){"Keepalive-Ping-Interval", beat};
    }
    if (op->r.last_bytes) {
        snprintf(range, 32, "bytes=-%zu", op->r.last_bytes);
        out[n++] = (struct http_header){"Range", range};
    }
    return n;
}

static void send_request(struct toolbox_op *op, int fd, bool connecting)
{
    char key[2 * PRIVSEP_KEY_SIZE + 1], user[64], timeout[24], beat[24], range[32];
    struct http_header headers[8];
    struct http_client_request r = {
        .fd = fd,
        .connecting = connecting,
        .method = op->r.method,
        .target = op->r.target,
        .host = "localhost",
        .headers = headers,
        .header_count = put_headers(op, headers, key, user, timeout, beat, range),
        .body = op->r.body,
        .body_len = op->r.body_len,
        .body_streams = op->r.body_streams,
        .max_response_bytes = is_long(&op->r) ? TOOLBOX_OUTPUT_BYTES : op->r.max_response_bytes,
        .timeout_ms = op->r.head_timeout_ms ? op->r.head_timeout_ms
                                            : op->call->toolbox->config.agent_timeout_ms,
        .on_head = on_head,
        .on_data = op->r.on_data || is_long(&op->r) ? on_data : NULL,
        .on_drain = on_drain,
        .done = on_done,
        .arg = op,
    };

    if (http_client_start(op->call->toolbox->loop, &r, &op->client) < 0)
        fail(op, ERR_UNAVAILABLE, "memory is out");
    else if (op->r.on_begun)
        op->r.on_begun(op->r.arg, op->client);
}

/* connect() to the sandbox's own agent. 0, 1 in progress, or -errno. */
static int connect_agent(int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return loopback_connect(fd, AGENT_PORT);
}

static void begin(struct toolbox_op *op, int fd)
{
    int rc = connect_agent(fd);

    if (rc >= 0) {
        send_request(op, fd, rc == 1);
        return;
    }
    util_close(&fd);
    fail(op, ERR_UNAVAILABLE, "the sandbox does not answer");
}

/* -- a connection ------------------------------------------------------------------------------ */

static void on_lookup(void *arg, struct gateway_answer *a)
{
    struct toolbox_op *op = arg;
    struct toolbox_call *c = op->call;
    int fd;

    if (op->canceled) {
        fail(op, ERR_CANCELED, "the call was ended");
    } else if (c->revoked) {
        fail(op, ERR_UNAUTHENTICATED, "the API key was revoked meanwhile");
    } else if (!a) {
        fail(op, ERR_EXHAUSTED, "the server is too busy to look for the sandbox; try again");
    } else if (a->status) {
        fail(op,
             a->status == 404   ? ERR_NOT_FOUND
             : a->status == 401 ? ERR_UNAUTHENTICATED
                                : ERR_CONFLICT,
             a->message);
    } else if (a->gen != c->gen) {
        fail(op, ERR_CONFLICT, "the sandbox has been started anew meanwhile");
    } else if (a->fd >= 0) {
        begin(op, TAKE_FD(a->fd));
    } else if ((fd = idle_connections_take(&c->toolbox->idle, c->id, c->gen)) >= 0) {
        send_request(op, fd, false);
    } else {
        toolbox_lookup(c, on_lookup,
                       op); /* used up meanwhile: without any, the answer brings a socket */
    }
}

static void link_op(struct toolbox_op *op, struct toolbox_call *c)
{
    op->call = c;
    op->next = c->ops;
    op->prev = &c->ops;
    if (op->next)
        op->next->prev = &op->next;
    c->ops = op;
    toolbox_call_ref(c);
}

void toolbox_agent(struct toolbox_call *c, const struct toolbox_agent_request *r)
{
    struct toolbox_op *op = calloc(1, sizeof(*op));

    if (!op || !r->target || (!r->body && r->body_len > 0)) {
        struct err e;

        if (r->no_text)
            err_set(&e, ERR_INVALID, "the path is not text (UTF-8)");
        else
            err_set(&e, ERR_UNAVAILABLE, "memory is out");
        free(op);
        free(r->target);
        free(r->body);
        r->done(r->arg, NULL, NULL, 0, &e);
        return;
    }
    op->r = *r;
    collect_init(&op->said, c, r->max_response_bytes);
    link_op(op, c);
    if (c->unused_fd >= 0)
        begin(op, TAKE_FD(c->unused_fd));
    else
        toolbox_lookup(c, on_lookup, op);
}

/* The end of one may end others, or begin some: the list is looked at anew after each. */
void toolbox_agent_cancel(struct toolbox_call *c)
{
    struct toolbox_op *op = c->ops;

    toolbox_call_ref(c);
    while (op) {
        bool was_canceled = op->canceled;

        op->canceled = true; /* one that waits for its socket is told when that is here */
        if (!was_canceled && op->client) {
            http_client_cancel(op->client);
            op = c->ops;
        } else {
            op = op->next;
        }
    }
    toolbox_call_unref(c);
}

void toolbox_agent_body(struct toolbox_agent_request *r, json_t *o)
{
    bool cut = json_was_cut();

    r->no_text = !o && !cut;
    r->body = cut ? NULL : json_text(o, JSON_COMPACT);
    r->body_len = r->body ? strlen(r->body) : 1; /* toolbox_agent sees that it is missing */
    r->type = "application/json";
    json_decref(o);
}

void toolbox_rpc(struct toolbox_call *c, const char *method, json_t *body,
                 void (*done)(void *arg, const struct http_head *head, const char *text, size_t len,
                              const struct err *why),
                 void *arg)
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .target = strdup(method),
                                      .max_response_bytes = RPC_ANSWER_MAX,
                                      .timeout_ms = c->toolbox->config.agent_timeout_ms,
                                      .done = done,
                                      .arg = arg};

    toolbox_agent_body(&r, body);
    toolbox_agent(c, &r);
}
