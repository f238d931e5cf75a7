/* A request of the toolbox, from its head to its handler. toolbox_handle is called by the
 * connection loop; the route is found by path and method, then the control loop is asked for the
 * sandbox and a socket to its agent (lookup.c), with the request's key or signature. A body is
 * collected only after that, so that a client without a key makes the server hold none. Then the
 * route's handler answers. A call is held by its exchange and by what waits for it, and outlives
 * the exchange where the client goes first (c->x is NULL then). */

#include "toolbox/toolbox.h"

#include "base/clock.h"
#include "base/share.h"
#include "core/core.h"
#include "core/key.h"
#include "gateway/idle_connections.h"
#include "gateway/resolve.h"
#include "http/json.h"
#include "http/message.h"
#include "http/server.h"
#include "http/websocket.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/collect.h"
#include "toolbox/events.h"
#include "toolbox/lookup.h"
#include "toolbox/pty.h"
#include "toolbox/reply.h"
#include "toolbox/routes.h"
#include "toolbox/toolbox_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* -- the instance ------------------------------------------------------------------------------ */

/* The timer rests while there is nothing to look after. */
static void on_sweep(uv_timer_t *timer)
{
    struct toolbox *t = timer->data;
    uint64_t now_ms = clock_mono_ms();

    idle_connections_sweep(&t->idle, now_ms);
    toolbox_lookups_sweep(t, now_ms);
    toolbox_events_sweep(t, now_ms);
    if (t->idle.count == 0 && toolbox_lookups_count(t->lookups) == 0 && !t->events)
        uv_timer_stop(timer);
}

static void free_now(struct toolbox *t)
{
    toolbox_lookups_free(t->lookups);
    share_pool_free(t->bodies);
    share_pool_free(t->outputs);
    free(t);
}

int toolbox_new(uv_loop_t *loop, const struct toolbox_config *config, struct toolbox **out)
{
    struct toolbox *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->loop = loop;
    t->config = *config;
    t->bodies = share_pool_new(TOOLBOX_BODIES_MAX);
    t->outputs = share_pool_new(TOOLBOX_OUTPUTS_MAX);
    idle_connections_init(&t->idle);
    if (!t->bodies || !t->outputs || toolbox_lookups_new(config->max_waiting, &t->lookups) < 0) {
        free_now(t);
        return -ENOMEM;
    }
    uv_timer_init(loop, &t->sweep);
    t->sweep.data = t;
    t->on_sweep = on_sweep;
    *out = t;
    return 0;
}

static void on_sweep_closed(uv_handle_t *h)
{
    free_now(h->data);
}

/* The end of one call's may be the end of others: the list is looked at anew after each. */
static void end_calls(struct toolbox *t, const char *id)
{
    bool more = true;

    while (more) {
        more = false;
        for (struct toolbox_call *c = t->calls; c && !more; c = c->next) {
            if (!c->ops || c->stopped || (id && strcmp(c->id, id) != 0))
                continue;
            c->stopped = more = true;
            toolbox_agent_cancel(c);
        }
    }
}

void toolbox_paused(struct toolbox *t, const char *id)
{
    end_calls(t, id);
}

/* The id is made once for each call, however many keys are revoked meanwhile. */
static bool has_key(struct toolbox_call *c, const char *key_id)
{
    if (c->is_signed || !c->key[0])
        return false;
    if (!c->key_id[0])
        core_key_id(c->key, c->key_id);
    return !key_id || strcmp(c->key_id, key_id) == 0;
}

/* Their clients' connections end, and with them all else of the calls: in this turn of the loop,
 * but after what else is in the mailbox (on_found). */
void toolbox_key_revoked(struct toolbox *t, const char *key_id)
{
    for (struct toolbox_call *c = t->calls; c; c = c->next) {
        if (c->revoked || !has_key(c, key_id))
            continue;
        c->revoked = true;
        util_close(&c->unused_fd);
        if (c->x)
            http_exchange_abort(c->x);
    }
}

void toolbox_stop(struct toolbox *t)
{
    t->stopping = true;
    toolbox_events_end(t);
    end_calls(t, NULL);
}

void toolbox_free(struct toolbox *t)
{
    if (!t)
        return;
    idle_connections_close_all(&t->idle);
    toolbox_lookups_sweep(t, UINT64_MAX);
    uv_close((uv_handle_t *)&t->sweep, on_sweep_closed);
}

/* -- a call ------------------------------------------------------------------------------------ */

static void on_close(struct http_exchange *x UNUSED, void *data)
{
    struct toolbox_call *c = data;

    c->x = NULL;
    if (c->on_gone)
        c->on_gone(c);
    else
        toolbox_agent_cancel(c);
    toolbox_call_unref(c);
}

static struct toolbox_call *call_new(struct toolbox *t, struct http_exchange *x)
{
    struct toolbox_call *c = calloc(1, sizeof(*c));

    if (c)
        c->key = strdup(access_api_key(http_exchange_head(x)));
    if (!c || !c->key) {
        free(c);
        return NULL;
    }
    c->toolbox = t;
    c->x = x;
    c->refs = 1;
    c->unused_fd = -1;
    c->next = t->calls;
    c->prev = &t->calls;
    if (c->next)
        c->next->prev = &c->next;
    t->calls = c;
    http_exchange_set(x, c, on_close);
    return c;
}

/* -- which route ------------------------------------------------------------------------------- */

/* Decodes a part of a path, up to the next slash. -EINVAL: badly encoded; -EMSGSIZE. */
static ssize_t part(const char *at, char *out, size_t size)
{
    return http_percent_decode(at, strcspn(at, "/"), false, out, size);
}

static bool matches(const char *pattern, const char *path,
                    char params[TOOLBOX_PARAMS_MAX][TOOLBOX_PARAM_SIZE])
{
    size_t n = 0;

    for (;;) {
        if (strcmp(pattern, "/*") == 0)
            return true;
        if (*pattern == '\0' || *path == '\0')
            return *pattern == *path;
        if (strncmp(pattern, "/{}", 3) == 0) {
            if (*path != '/' || n == TOOLBOX_PARAMS_MAX ||
                part(path + 1, params[n], TOOLBOX_PARAM_SIZE) <= 0)
                return false;
            n++;
            pattern += 3;
            path += 1 + strcspn(path + 1, "/");
        } else if (*pattern++ != *path++) {
            return false;
        }
    }
}

static const struct toolbox_route *find_route(struct toolbox_call *c, const char *method,
                                              const char *path)
{
    for (size_t i = 0; toolbox_tables[i]; i++)
        for (const struct toolbox_route *r = toolbox_tables[i]; r->method; r++) {
            if (r->method[0] != '*' && strcmp(r->method, method) != 0)
                continue;
            if (matches(r->pattern, path, c->params))
                return r;
        }
    return NULL;
}

/* -- the body ---------------------------------------------------------------------------------- */

/* False: the call was answered. */
static bool take_share(struct toolbox_call *c)
{
    if (!c->body_share)
        c->body_share = share_take(c->toolbox->bodies, c->tenant, c->id);
    if (!c->body_share)
        toolbox_fail(
            c, 503, NULL,
            "the server holds as many requests' bodies of this sandbox as it may; try again");
    return c->body_share != NULL;
}

static void handle(struct toolbox_call *c)
{
    (void)json_was_cut(); /* of another call */
    c->route->handler(c);
}

/* A short text of many values is held as a long one is. */
static void on_body(struct http_exchange *x, char *body, size_t len)
{
    struct toolbox_call *c = http_exchange_get(x);
    struct err e;
    enum err_code rc;

    if (json_values(body, len) > TOOLBOX_SMALL_VALUES && !take_share(c))
        return;
    rc = json_parse_request(body, len, true, &c->body, &e);
    http_body_release(x);
    if (rc == ERR_UNAVAILABLE || rc == ERR_INTERNAL)
        toolbox_fail(c, 503, NULL, "memory is out");
    else if (rc != ERR_OK)
        toolbox_fail(c, rc == ERR_TOO_LARGE ? 413 : 400,
                     rc == ERR_TOO_LARGE ? NULL : "INVALID_REQUEST_BODY",
                     "invalid request body: %s", e.text);
    else if (!json_is_object(c->body))
        toolbox_fail(c, 400, "INVALID_REQUEST_BODY",
                     "invalid request body: it must be a JSON object");
    else
        handle(c);
}

static void take_body(struct toolbox_call *c)
{
    const struct http_head *h = http_exchange_head(c->x);
    bool is_small = h->framing == HTTP_BODY_NONE ||
                    (h->framing == HTTP_BODY_LENGTH && h->content_length <= TOOLBOX_SMALL_BYTES);

    if (h->framing == HTTP_BODY_LENGTH && h->content_length > TOOLBOX_BODY_MAX_BYTES) {
        toolbox_fail(c, 413, NULL, "the body has more than %u bytes", TOOLBOX_BODY_MAX_BYTES);
        return;
    }
    if (is_small || take_share(c))
        http_body_collect(c->x, is_small ? TOOLBOX_SMALL_BYTES : TOOLBOX_BODY_MAX_BYTES, on_body);
}

/* -- the request ------------------------------------------------------------------------------- */

/* 502, the gateway's word for a sandbox that does not run, would be a broken server's here. */
static void refuse(struct toolbox_call *c, const struct gateway_answer *a)
{
    bool rests = a->status == 502;

    if (rests && c->route->flags & TOOLBOX_TERMINAL &&
        websocket_requested(http_exchange_head(c->x)))
        pty_refuse(c, a->message);
    else
        toolbox_fail(c, rests ? 409 : a->status, NULL, "%s", a->message);
}

static void on_found(void *arg, struct gateway_answer *a)
{
    struct toolbox_call *c = arg;

    if (!c->x || c->revoked) {
        toolbox_call_unref(c);
        return;
    }
    if (!a) {
        toolbox_fail(c, 503, NULL, "the server is too busy to look for the sandbox; try again");
    } else if (a->status) {
        refuse(c, a);
    } else if (!conn_share_take(c->toolbox->config.conn_shares, c->x, a->tenant, a->id, false)) {
        toolbox_fail(c, 429, NULL, "%s", conn_share_refusal);
    } else {
        memcpy(c->id, a->id, sizeof(c->id));
        memcpy(c->tenant, a->tenant, sizeof(c->tenant));
        memcpy(c->agent_key, a->agent_key, sizeof(c->agent_key));
        c->gen = a->gen;
        c->unused_fd = TAKE_FD(a->fd);
        if (c->route->flags & TOOLBOX_NO_BODY)
            handle(c);
        else
            take_body(c);
    }
    toolbox_call_unref(c);
}

/* The path after the sandbox's name. Clients of before 2025 put /toolbox before it. */
static const char *path_inside(const char *rest)
{
    rest += strcspn(rest, "/");
    return strncmp(rest, "/toolbox/", 9) == 0 ? rest + 8 : rest;
}

/* Without a key, a route that takes signed URLs is one where there is a signature. False: the call
 * was answered. */
static bool read_signature(struct toolbox_call *c)
{
    int rc = -ENOENT;

    if (c->key[0] == '\0' && c->route->flags & TOOLBOX_SIGNED)
        rc = access_read_file_url(http_exchange_head(c->x), &c->file_url);
    c->is_signed = rc == 0;
    if (rc == -ENOMEM)
        toolbox_fail(c, 503, NULL, "memory is out");
    return rc != -ENOMEM;
}

/* False: the call was answered. */
static bool find_addressee(struct toolbox_call *c, const char *rest)
{
    const struct http_head *h = http_exchange_head(c->x);
    ssize_t n = part(rest, c->name, sizeof(c->name));

    if (n == -EINVAL || n == 0)
        toolbox_fail(c, 400, NULL, "the path has no sandbox's id");
    else if (n < 0)
        toolbox_fail(c, 404, NULL, "Sandbox with ID or name %.*s... not found", 60, rest);
    else if (!(c->route = find_route(c, h->method, path_inside(rest))))
        toolbox_fail(c, 404, NULL, "there is no %s %.200s here", h->method, path_inside(rest));
    return c->route && read_signature(c);
}

bool toolbox_handle(struct toolbox *t, struct http_exchange *x)
{
    const struct http_head *h = http_exchange_head(x);
    bool events = strcmp(h->path, TOOLBOX_EVENTS_PATH) == 0 && websocket_requested(h);
    struct toolbox_call *c;

    if (!events && strncmp(h->path, TOOLBOX_PREFIX, strlen(TOOLBOX_PREFIX)) != 0)
        return false;
    c = call_new(t, x);
    if (!c) {
        http_respond_error(x, 503, "no memory to serve the request");
    } else if (events) {
        toolbox_events(c);
    } else if (find_addressee(c, h->path + strlen(TOOLBOX_PREFIX))) {
        toolbox_call_ref(c);
        toolbox_lookup(c, on_found, c);
    }
    return true;
}
