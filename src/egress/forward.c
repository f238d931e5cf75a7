#include "egress/forward.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/deny.h"
#include "egress/dial.h"
#include "egress/host.h"
#include "egress/names.h"
#include "egress/registry.h"
#include "egress/request.h"
#include "egress/tcpcount.h"
#include "http/relay.h"
#include "http/server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define BODY_TIMEOUT_MS  300000
#define WRITE_TIMEOUT_MS 300000
#define STOP_MS          500
#define SWEEP_MS         1000 /* how far past its bytes a sandbox may come */

struct forward {
    struct egress *egress;
    struct http_server *server;
    struct line *lines;
    uv_timer_t sweep; /* while there are lines */
};

/* One adopted connection. It lives as long as http_server's, which may be a moment longer than the
 * flow: flow_id is 0 then, and nothing is served any more. */
struct line {
    struct egress *egress;
    struct line *prev, *next;
    uint64_t flow_id;
    int fd; /* http_server's: only to end it, and to count */
    bool tls;
    struct http_exchange *x; /* the request that is served, if one is */
    struct target want;      /* of it; its name is in want_name */
    char want_name[POLICY_NAME_MAX + 1];
    bool preparing; /* dialling for it */
    int up_fd;      /* idle, connected to `up`; -1 */
    struct target up;
    char up_name[POLICY_NAME_MAX + 1];
    uint64_t up_before, down_before;
};

static struct flow *flow_of(const struct line *l)
{
    return l->flow_id ? flow_find(l->egress, l->flow_id) : NULL;
}

static void set_target(struct target *t, char room[static POLICY_NAME_MAX + 1],
                       const struct target *from)
{
    *t = *from;
    if (from->name) {
        if (from->name != room)
            snprintf(room, POLICY_NAME_MAX + 1, "%s", from->name);
        t->name = room;
    }
}

/* -- counting ---------------------------------------------------------------------------------- */

/* What the kernel counted on the client's connection: the bytes are not ours to count on their way. */
static void sample(struct line *l)
{
    struct flow *f = flow_of(l);

    if (f)
        (void)tcpcount_get(l->fd, &f->up_bytes, &f->down_bytes);
}

/* Tunnels look at every move; here the kernel is asked now and then. */
static void on_sweep(uv_timer_t *t)
{
    struct forward *fw = t->data;

    for (struct line *l = fw->lines, *next; l; l = next) {
        struct flow *f = flow_of(l);

        next = l->next;
        if (!f || !registry_counts_bytes(f->sandbox))
            continue;
        sample(l);
        if (!registry_over_bytes(f->sandbox))
            continue;
        f->cut = true;
        flow_end(f);
    }
}

static void link_line(struct forward *fw, struct line *l)
{
    if (!fw->lines)
        uv_timer_start(&fw->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    l->next = fw->lines;
    if (fw->lines)
        fw->lines->prev = l;
    fw->lines = l;
}

static void unlink_line(struct forward *fw, struct line *l)
{
    *(l->prev ? &l->prev->next : &fw->lines) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    if (!fw->lines)
        uv_timer_stop(&fw->sweep);
}

/* -- answers ----------------------------------------------------------------------------------- */

static void answer(struct http_exchange *x, struct flow *f, int status, const char *error,
                   const char *rule, const char *message)
{
    struct http_header headers[] = {{"Content-Type", "application/json"}, {DENY_HEADER, rule}};
    CLEANUP_BUF struct buf b;

    buf_init(&b, DENY_BODY_MAX);
    if (deny_body(f->sandbox, error, rule, message, &b) < 0)
        buf_clear(&b);
    http_respond(x, status, headers, request_is_denial(status) ? 2 : 1, b.data ? b.data : "",
                 b.len);
}

/* After request_refuse. */
static void say_refused(struct http_exchange *x, struct flow *f, int status)
{
    answer(x, f, status, "egress_denied", f->rule, f->reason ? f->reason : "");
}

static void refuse_by_policy(struct http_exchange *x, struct flow *f, const struct target *t,
                             const struct policy_verdict *v)
{
    request_refuse_by_policy(f, t, v, http_exchange_head(x));
    say_refused(x, f, 403);
}

/* -- cay.internal ------------------------------------------------------------------------------ */

static void internal(struct http_exchange *x, struct flow *f)
{
    static const struct http_header plain = {"Content-Type", "text/plain"},
                                    json = {"Content-Type", "application/json"};
    static const char hello[] = "cay: this computer's way out.\n"
                                "  /denials       what was refused, newest last\n"
                                "  /denials.txt   the same, to be read\n"
                                "  /allowed       what the policy allows\n";
    const char *path = http_exchange_head(x)->path;
    const char *allows = f->sandbox->allows ? f->sandbox->allows : "[]";
    json_t *list;
    char *text;

    if (strcmp(path, "/") == 0) {
        http_respond(x, 200, &plain, 1, hello, sizeof(hello) - 1);
    } else if (strcmp(path, "/allowed") == 0) {
        http_respond(x, 200, &json, 1, allows, strlen(allows));
    } else if (strcmp(path, "/denials") == 0) {
        list = deny_list(f->sandbox);
        text = list ? json_dumps(list, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
        json_decref(list);
        http_respond(x, text ? 200 : 503, &json, 1, text ? text : "", text ? strlen(text) : 0);
        free(text);
    } else if (strcmp(path, "/denials.txt") == 0) {
        CLEANUP_BUF struct buf b;
        int rc;

        buf_init(&b, DENIALS_MAX * DENY_LINE_MAX);
        rc = deny_lines(f->sandbox, &b);
        http_respond(x, rc == 0 ? 200 : 503, &plain, 1, b.data, b.len);
    } else {
        http_respond_error(x, 404, "there is /, /denials, /denials.txt and /allowed");
    }
}

/* -- relaying ---------------------------------------------------------------------------------- */

static void on_relay_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    struct flow *f = flow_of(arg);

    if (f)
        answer(x, f, why->code == ERR_TIMEOUT ? 504 : 502, "egress_unreachable", "none", why->text);
    else
        http_exchange_abort(x);
}

static void on_reusable(int fd, void *arg)
{
    struct line *l = arg;

    if (l->up_fd >= 0 || !l->flow_id) {
        close(fd);
        return;
    }
    l->up_fd = fd;
    set_target(&l->up, l->up_name, &l->want);
}

/* fd is connected to l->want, and for tls it is the plain end. */
static void start_relay(struct line *l, struct flow *f, int fd)
{
    struct http_relay_options o = {
        .fd = fd,
        .on_fail = on_relay_fail,
        .on_reusable = on_reusable,
        .arg = l,
        .websocket_only = true, /* anything else could hide requests from the rules */
    };
    struct http_exchange *x = l->x;
    const struct http_head *h = http_exchange_head(x);
    struct policy_verdict v = request_decide(f->sandbox, &l->want, true, h);
    struct err e = {0};
    char host[INET6_ADDRSTRLEN + 2];

    l->preparing = false;
    if (v.action == POLICY_DENY) {
        close(fd);
        refuse_by_policy(x, f, &l->want, &v);
        return;
    }
    if (v.credential && !f->egress->hooks.request_prepare) {
        close(fd);
        request_refuse(f, &v, "credential", h, "this server cannot put credentials on requests");
        say_refused(x, f, 403);
        return;
    }
    /* Also where none is put on this one: it may hold a placeholder, its answer a secret. */
    if ((v.credential || f->sandbox->credentials) && f->egress->hooks.request_prepare &&
        f->egress->hooks.request_prepare(f->egress, f, x, &v, l->tls, &o, &e) != ERR_OK) {
        close(o.fd);
        request_refuse(f, NULL, "credential", h, "%s", e.text);
        say_refused(x, f, 403);
        return;
    }
    if (!h->host[0])
        o.host = arena_printf(http_exchange_arena(x), "%s:%u", host_text(&l->want, host),
                              l->want.port);
    request_allow(f, &l->want, &v, h);
    http_relay_start(x, &o);
}

struct upgrade {
    struct egress *egress;
    uint64_t flow_id;
};

static void on_upstream(void *arg, int fd, const struct err *why)
{
    struct upgrade u = *(struct upgrade *)arg;
    struct flow *f = flow_find(u.egress, u.flow_id);
    struct line *l = f && f->state == FLOW_FORWARDED ? f->user : NULL;

    free(arg);
    if (!l || !l->x || !l->preparing) {
        if (fd >= 0)
            close(fd);
    } else if (fd < 0) {
        l->preparing = false;
        answer(l->x, f, 502, "egress_unreachable", "none", why->text);
    } else {
        start_relay(l, f, fd);
    }
}

static void connected(struct line *l, struct flow *f, int fd)
{
    struct upgrade *u;

    if (!l->tls) {
        start_relay(l, f, fd);
        return;
    }
    u = malloc(sizeof(*u));
    if (!u || !f->egress->hooks.upstream_start) {
        free(u);
        close(fd);
        l->preparing = false;
        answer(l->x, f, 502, "egress_unreachable", "none", "TLS is not possible");
        return;
    }
    *u = (struct upgrade){f->egress, f->id};
    f->egress->hooks.upstream_start(f->egress, f->id, fd, l->want.name, on_upstream, u);
}

static void on_dialed(struct egress *eg, uint64_t id, const struct dial_result *r)
{
    struct flow *f = flow_find(eg, id);
    struct line *l = f && f->state == FLOW_FORWARDED ? f->user : NULL;

    if (f)
        f->dial_id = 0;
    if (!l || !l->x || !l->preparing) {
        if (r->fd >= 0)
            close(r->fd);
        return;
    }
    l->want.address = r->address;
    if (r->fd >= 0) {
        connected(l, f, r->fd);
        return;
    }
    l->preparing = false;
    if (r->denied)
        refuse_by_policy(l->x, f, &l->want, &r->verdict);
    else
        answer(l->x, f, r->why.code == ERR_TIMEOUT ? 504 : 502, "egress_unreachable", "none",
               r->why.text);
}

/* Kept from the request before; a server that has closed it meanwhile is dialled anew. */
static bool reuse(struct line *l, struct flow *f)
{
    char byte;
    int fd = l->up_fd;

    if (fd < 0)
        return false;
    l->up_fd = -1;
    if (l->up.port != l->want.port || !host_same(&l->up, &l->want) ||
        recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
        close(fd);
        return false;
    }
    l->want.address = l->up.address;
    start_relay(l, f, fd);
    return true;
}

/* -- requests ---------------------------------------------------------------------------------- */

static void on_exchange_end(struct http_exchange *x, void *data)
{
    struct line *l = data;
    struct flow *f = flow_of(l);

    l->x = NULL;
    l->preparing = false;
    if (!f)
        return;
    sample(l);
    dial_cancel(f->egress, f->dial_id);
    f->dial_id = 0;
}

/* The next request's target is also what the flow is about, for its records and for a change of the
 * policy. */
static int follow(struct flow *f, const struct line *l)
{
    if (f->via != FLOW_BY_REQUEST)
        return 0;
    return flow_set_target(f, l->want.name, &l->want.address, l->want.port);
}

static void serve(struct http_exchange *x, struct line *l, struct flow *f)
{
    const struct http_head *h = http_exchange_head(x);
    struct policy_verdict v;

    if (l->want.name && strcmp(l->want.name, NAMES_INTERNAL_NAME) == 0) {
        internal(x, f);
        return;
    }
    if (!request_in_rate(f->sandbox)) {
        request_refuse(f, NULL, "limit", h, REQUEST_RATE_REASON);
        say_refused(x, f, 429);
        return;
    }
    v = request_decide(f->sandbox, &l->want, false, h);
    if (v.action == POLICY_DENY) {
        refuse_by_policy(x, f, &l->want, &v);
        return;
    }
    l->preparing = true;
    if (reuse(l, f))
        return;
    f->dial_id = dial_start(f->egress, f->sandbox, &l->want, f->id, on_dialed);
    if (!f->dial_id)
        http_exchange_abort(x);
}

static int agree(struct line *l, const struct flow *f, const struct http_head *h)
{
    set_target(&l->want, l->want_name, &f->target);
    return host_agrees(f->sandbox, h, &f->target);
}

static void handle(struct http_exchange *x, void *ctx)
{
    struct line *l = (void *)(uintptr_t)http_exchange_tag(x);
    const struct http_head *h = http_exchange_head(x);
    struct flow *f = flow_of(l);
    int status;

    if (!f) {
        http_exchange_abort(x);
        return;
    }
    l->x = x;
    http_exchange_set(x, l, on_exchange_end);
    if (f->refused || f->unreachable) {
        answer(x, f, f->refused ? 403 : f->unreachable,
               f->refused ? "egress_denied" : "egress_unreachable", f->refused ? f->rule : "none",
               f->reason ? f->reason : "");
        return;
    }
    if (f->via == FLOW_BY_REQUEST && !h->authority[0]) {
        internal(x, f); /* to the proxy and about nobody else */
        return;
    }
    status = f->via == FLOW_BY_REQUEST ? host_of_request(f->sandbox, h, &l->want, l->want_name)
                                       : agree(l, f, h);
    if (status == 400) {
        answer(x, f, 400, "bad_request", "none", REQUEST_MALFORMED_REASON);
    } else if (status != 0) {
        request_refuse(f, NULL, "host", h, REQUEST_HOST_REASON);
        say_refused(x, f, status);
    } else if (follow(f, l) < 0) {
        http_exchange_abort(x);
    } else {
        serve(x, l, f);
    }
}

/* -- connections ------------------------------------------------------------------------------- */

/* http_server ends the connection: so does the flow. */
static void on_tagged_end(void *ctx, uint64_t tag, int fd)
{
    struct line *l = (void *)(uintptr_t)tag;
    struct flow *f;

    sample(l);
    f = flow_of(l);
    if (f) {
        f->on_end = NULL;
        f->user = NULL;
        flow_end(f);
    }
    util_close(&l->up_fd);
    unlink_line(ctx, l);
    free(l);
}

/* The flow ends first: http_server learns it from the socket. */
static void on_flow_end(struct flow *f)
{
    struct line *l = f->user;

    sample(l);
    l->flow_id = 0;
    util_close(&l->up_fd);
    shutdown(l->fd, SHUT_RDWR);
    if (l->x)
        http_exchange_abort(l->x);
}

int forward_adopt(struct egress *eg, struct flow *f, int fd, bool tls)
{
    struct line *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return -ENOMEM;
    l->egress = eg;
    l->flow_id = f->id;
    l->fd = fd;
    l->tls = tls;
    l->up_fd = TAKE_FD(f->up_fd);
    set_target(&l->up, l->up_name, &f->target);
    rc = http_server_adopt_tagged(eg->forward->server, fd, (uint64_t)(uintptr_t)l);
    if (rc < 0) {
        util_close(&l->up_fd);
        free(l);
        return rc;
    }
    link_line(eg->forward, l);
    if (fd == f->fd)
        f->fd = -1;
    f->state = FLOW_FORWARDED;
    f->user = l;
    f->on_end = on_flow_end;
    return 0;
}

bool forward_recheck(struct flow *f, struct policy_verdict *v)
{
    struct line *l = f->user;
    struct policy_verdict now;

    if (!l->x || f->refused)
        return true;
    now = request_decide(f->sandbox, &l->want, !l->preparing, http_exchange_head(l->x));
    if (now.action != POLICY_DENY)
        return true;
    *v = now;
    return false;
}

int forward_new(struct egress *eg, struct forward **out)
{
    struct forward *fw = calloc(1, sizeof(*fw));
    struct http_server_config c;
    int rc;

    if (!fw)
        return -ENOMEM;
    fw->egress = eg;
    http_server_config_default(&c);
    c.max_connections = eg->config.flows_max;
    c.body_timeout_ms = BODY_TIMEOUT_MS;
    c.write_timeout_ms = WRITE_TIMEOUT_MS;
    c.proxy = true;
    c.on_tagged_end = on_tagged_end;
    rc = http_server_new(eg->loop, &c, handle, fw, &fw->server);
    if (rc < 0) {
        free(fw);
        return rc;
    }
    uv_timer_init(eg->loop, &fw->sweep);
    fw->sweep.data = fw;
    *out = fw;
    return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
    free(h->data);
}

static void on_stopped(void *ctx)
{
    struct forward *fw = ctx;

    uv_close((uv_handle_t *)&fw->sweep, on_timer_closed);
}

void forward_free(struct forward *fw)
{
    if (!fw)
        return;
    http_server_stop(fw->server, STOP_MS, on_stopped, fw);
}
