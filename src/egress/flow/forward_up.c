/* The server's side of a forwarded connection: dialled, made TLS where the client's is, kept for
 * the next request, and relayed to. */
#include "egress/flow/forward_internal.h"

#include "base/err.h"
#include "base/util.h"
#include "egress/credential/override.h"
#include "egress/flow/authority_check.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/intercept.h"
#include "egress/flow/registry.h"
#include "egress/flow/request.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/tls_intercept.h"
#include "egress/http/inject.h"
#include "egress/http/websocket_check.h"
#include "http/relay.h"
#include "http/tls_conn.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static void note_failed(struct client_conn *l, struct flow *f, const struct http_head *h,
                        const char *why)
{
    struct policy_verdict v = request_decide(f->sandbox, &l->want, true, h);

    flow_failed(f, &l->want, &v, h, why);
}

static void on_relay_break(struct http_exchange *x, const struct err *why, void *arg)
{
    struct client_conn *l = arg;
    struct flow *f = forward_flow(l);

    if (f)
        note_failed(l, f, http_exchange_head(x), why->text);
}

static void on_relay_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    struct client_conn *l = arg;
    struct flow *f = forward_flow(l);

    if (!f) {
        http_exchange_abort(x);
        return;
    }
    note_failed(l, f, http_exchange_head(x), why->text);
    forward_answer(x, f,
                   why->code == ERR_TIMEOUT     ? 504
                   : why->code == ERR_EXHAUSTED ? 503
                                                : 502,
                   "egress_unreachable", "none", why->text);
}

static void on_reusable(int fd, void *arg)
{
    struct client_conn *l = arg;
    struct tls_endpoint end = {.fd = fd};

    end.tls = TAKE_PTR(l->relayed);
    if (l->up_end.fd >= 0 || !l->flow_id) {
        tls_endpoint_close(&end, true);
        return;
    }
    l->up_end = end;
    forward_set_target(&l->up, l->up_name, &l->want);
}

/* The request was allowed, and its server not reached. */
static void not_reached(struct client_conn *l, struct flow *f, const struct err *why)
{
    const struct http_head *h = http_exchange_head(l->x);
    struct policy_verdict v = request_decide(f->sandbox, &l->want, false, h);

    flow_not_reached(f, &l->want, &v, h, why);
}

/* Also where no credential is put on this one: its answer may hold a secret. And where the sandbox
 * has none: a placeholder that it took from elsewhere tells the server a credential's name. */
static bool is_changed(const struct flow *f, const struct policy_verdict *v,
                       const struct http_head *h)
{
    return v->credential || intercept_searched(f->sandbox) || inject_has_placeholder(h);
}

/* Servers that answer without reading the body of a request which has none by its meaning take it
 * for the next request on a kept connection, which no rule was asked about. */
static bool may_keep_server(const struct flow *f, const struct target *t, const struct http_head *h)
{
    static const char *const with_body[] = {
        "POST", "PUT", "PATCH", "PROPFIND", "PROPPATCH", "REPORT", "MKCALENDAR", "SEARCH", "LOCK"};

    if (h->framing == HTTP_BODY_NONE ||
        (h->framing == HTTP_BODY_LENGTH && h->content_length == 0) ||
        !(intercept_searched(f->sandbox) || request_is_ruled(f->sandbox, t)))
        return true;
    for (size_t i = 0; i < ARRAY_SIZE(with_body); i++)
        if (strcmp(h->method, with_body[i]) == 0)
            return true;
    return false;
}

/* end is connected to l->want, and taken over. */
static void start_relay(struct client_conn *l, struct flow *f, struct tls_endpoint end)
{
    struct http_relay_options o = {
        .fd = end.fd,
        .layer = end.tls,
        .layer_ops = &tls_conn_ops,
        .on_fail = on_relay_fail,
        .on_break = on_relay_break,
        .on_reusable = on_reusable,
        .on_move = registry_counts_bytes(f->sandbox) ? forward_on_move : NULL,
        .arg = l,
        .websocket_only = true, /* anything else could hide requests from the rules */
        .may_switch = websocket_check_agreed,
    };
    struct http_exchange *x = l->x;
    const struct http_head *h = http_exchange_head(x);
    struct policy_verdict v = request_decide(f->sandbox, &l->want, true, h);
    struct err e = {0};
    char host[INET6_ADDRSTRLEN + 2];

    l->preparing = false;
    if (v.action == POLICY_DENY) {
        tls_endpoint_close(&end, true);
        forward_refuse(x, f, &l->want, &v);
        return;
    }
    if (v.credential && !f->egress->intercept) {
        tls_endpoint_close(&end, true);
        request_refuse(f, &v, "credential", h, "this server cannot put credentials on requests");
        forward_say_refused(x, f, 403);
        return;
    }
    if (is_changed(f, &v, h) && f->egress->intercept &&
        intercept_prepare(f, &l->want, x, &v, l->tls, &o, &e) != ERR_OK) {
        tls_endpoint_close(&end, true);
        request_refuse(f, NULL, e.code == ERR_EXHAUSTED ? "limit" : "credential", h, "%s", e.text);
        forward_say_refused(x, f, e.code == ERR_EXHAUSTED ? 503 : 403);
        return;
    }
    if (!may_keep_server(f, &l->want, h))
        o.on_reusable = NULL;
    o.drop_trailers = l->tls || intercept_searched(f->sandbox) ||
                      request_is_ruled(f->sandbox, &l->want);
    if (!o.remove && request_is_ruled(f->sandbox, &l->want) &&
        override_names(h, http_exchange_arena(x), &o.remove) < 0) {
        tls_endpoint_close(&end, true);
        http_exchange_abort(x);
        return;
    }
    if (!h->host[0])
        o.host = arena_printf(http_exchange_arena(x), "%s:%u", authority_check_text(&l->want, host),
                              l->want.port);
    request_allow(f, &l->want, &v, h);
    l->relayed = end.tls;
    http_relay_start(x, &o);
}

struct upgrade {
    struct egress *egress;
    uint64_t flow_id;
};

static void on_upstream(void *arg, const struct tls_endpoint *end, const struct err *why)
{
    struct upgrade u = *(struct upgrade *)arg;
    struct flow *f = flow_find(u.egress, u.flow_id);
    struct client_conn *l = f && f->state == FLOW_FORWARDED ? f->user : NULL;

    free(arg);
    if (!l || !l->x || !l->preparing) {
        if (end)
            tls_endpoint_close(&(struct tls_endpoint){.fd = end->fd, .tls = end->tls}, true);
    } else if (!end) {
        l->preparing = false;
        not_reached(l, f, why);
        forward_answer(l->x, f, 502, "egress_unreachable", "none", why->text);
    } else {
        start_relay(l, f, *end);
    }
}

/* A connection that TLS cannot begin on. */
static void no_tls(struct client_conn *l, struct flow *f, const char *why)
{
    struct err e;

    err_set(&e, ERR_EXHAUSTED, "no TLS connection: %s", why);
    l->preparing = false;
    not_reached(l, f, &e);
    forward_answer(l->x, f, 502, "egress_unreachable", "none", e.text);
}

static void connected(struct client_conn *l, struct flow *f, int fd)
{
    struct upgrade *u;

    if (!l->tls) {
        start_relay(l, f, (struct tls_endpoint){.fd = fd});
        return;
    }
    u = malloc(sizeof(*u));
    if (!u || !f->egress->intercept) {
        free(u);
        close(fd);
        no_tls(l, f, "it is not possible");
        return;
    }
    *u = (struct upgrade){f->egress, f->id};
    if (tls_intercept_upstream(f->egress, f->id, fd, l->want.name, on_upstream, u) < 0) {
        free(u);
        no_tls(l, f, "too many handshakes at a time, or out of memory");
    }
}

void forward_on_dialed(struct egress *eg, uint64_t id, const struct dial_result *r)
{
    struct flow *f = flow_find(eg, id);
    struct client_conn *l = f && f->state == FLOW_FORWARDED ? f->user : NULL;

    if (f)
        f->dial_id = 0;
    if (!l || !l->x || !l->preparing) {
        if (r->fd >= 0)
            close(r->fd);
        return;
    }
    dial_note(&l->want, r);
    if (r->fd >= 0) {
        connected(l, f, r->fd);
        return;
    }
    l->preparing = false;
    if (r->denied) {
        forward_refuse(l->x, f, &l->want, &r->verdict);
        return;
    }
    not_reached(l, f, &r->why);
    forward_answer(l->x, f, r->why.code == ERR_TIMEOUT ? 504 : 502, "egress_unreachable", "none",
                   r->why.text);
}

/* Nothing has come from it since its last answer, and it has not ended: it may be asked again.
 * Records without meaning here (a session's ticket) are read. */
static bool is_idle(struct tls_endpoint *end)
{
    char bytes[HTTP_LAYER_READ_BYTES];

    return tls_endpoint_read(end, bytes, sizeof(bytes)) == -EAGAIN;
}

/* Kept from the request before; a server that has closed it meanwhile is dialled anew. */
bool forward_reuse(struct client_conn *l, struct flow *f)
{
    struct tls_endpoint end = l->up_end;

    if (end.fd < 0)
        return false;
    l->up_end = (struct tls_endpoint){.fd = -1};
    if (l->up.port != l->want.port || !authority_check_same(&l->up, &l->want) || !is_idle(&end)) {
        tls_endpoint_close(&end, true);
        return false;
    }
    l->want.address = l->up.address;
    l->want.via = l->up.via;
    l->want.via_port = l->up.via_port;
    memcpy(l->want.via_name, l->up.via_name, sizeof(l->want.via_name));
    start_relay(l, f, end);
    return true;
}
