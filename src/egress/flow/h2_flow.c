/* A flow whose client speaks HTTP/2 under interception: what h2.c asks of a flow. Each stream is a
 * request: its authority is checked, its policy asked, its credential put on it, and it is
 * recorded, as forward.c does it for HTTP/1.1. h2.c calls it for each stream; a refusal is that
 * stream's answer, and a changed policy refuses or cuts the requests that it no longer allows. */

#include "egress/flow/h2_flow.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "egress/flow/authority_check.h"
#include "egress/flow/deny.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/intercept.h"
#include "egress/flow/intercept_internal.h"
#include "egress/flow/oauth.h"
#include "egress/flow/policy_sweep.h"
#include "egress/flow/registry.h"
#include "egress/flow/request.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/verdict.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

struct h2_flow {
    struct egress *egress;
    uint64_t flow_id;
    struct h2 *conn;
    struct h2_flow_lost lost;
};

static struct flow *flow_of(const struct h2_flow *hf)
{
    return flow_find(hf->egress, hf->flow_id);
}

/* -- answers ----------------------------------------------------------------------------------- */

static void answer(const struct flow *f, struct h2_verdict *v, int status, const char *error,
                   const char *rule, const char *message)
{
    v->status = status;
    v->rule = request_is_denial(status) ? rule : NULL;
    snprintf(v->message, sizeof(v->message), "%s", message);
    if (deny_body(f->sandbox, error, rule, message, &v->body) < 0)
        buf_clear(&v->body);
}

/* After request_refuse. */
static void say_refused(const struct flow *f, struct h2_verdict *v, int status)
{
    answer(f, v, status, "egress_denied", f->rule, f->reason ? f->reason : "");
}

static void say_lost(const struct flow *f, const struct h2_flow_lost *lost, struct h2_verdict *v)
{
    answer(f, v, lost->status, "egress_unreachable", "none", lost->why.text);
}

static void note_failed(struct flow *f, const struct http_head *h, const char *why)
{
    char name_buffer[POLICY_NAME_MAX + 1];
    struct target t = f->target;
    struct policy_verdict p;

    (void)authority_check_origin(h, &t,
                                 name_buffer); /* it did, or it would not have been let through */
    p = request_decide(f->sandbox, &t, true, h);
    flow_failed(f, &t, &p, h, why);
}

static void on_break(void *arg, const struct http_head *head, const char *why)
{
    struct flow *f = flow_of(arg);

    if (f)
        note_failed(f, head, why);
}

static void say(void *arg, const struct http_head *head, int status, const char *why,
                struct buf *body)
{
    struct flow *f = flow_of(arg);

    if (f && head && status == 502)
        note_failed(f, head, why);
    if (f && deny_body(f->sandbox, status < 500 ? "bad_request" : "egress_unreachable", "none", why,
                       body) < 0)
        buf_clear(body);
}

/* -- requests ---------------------------------------------------------------------------------- */

/* No address of the name may be dialled: the policy's word on the last of them, as of now. */
static void refuse_address(struct flow *f, const struct target *t, const struct h2_flow_lost *lost,
                           const struct http_head *h, struct h2_verdict *v)
{
    struct policy_verdict p = verdict_target(f->sandbox, t);

    if (p.action != POLICY_DENY) {
        say_lost(f, lost, v); /* it would be another today: the next connection will see */
        return;
    }
    request_refuse_by_policy(f, t, &p, h);
    say_refused(f, v, 403);
}

static void let_through(struct flow *f, const struct target *t, const struct http_head *h,
                        struct arena *a, const struct policy_verdict *p, struct h2_verdict *v)
{
    const struct inject_request r = intercept_request(f, t, f->dialed, true, h, p->credential);
    struct policy_verdict allowed = *p;
    struct err e = {0};

    if (inject_decide(&r, h, a, &v->plan, &e) != ERR_OK) {
        request_refuse(f, NULL, e.code == ERR_EXHAUSTED ? "limit" : "credential", h, "%s", e.text);
        say_refused(f, v, e.code == ERR_EXHAUSTED ? 503 : 403);
        return;
    }
    allowed.credential = v->plan.put; /* the log says what left */
    request_allow(f, t, &allowed, h);
}

/* Its credential is there, or the request is put off, or refused. */
static bool has_credential(struct flow *f, const struct http_head *h,
                           const struct policy_verdict *p, struct h2_verdict *v)
{
    struct err e;

    switch (oauth_inspect(f->sandbox, p->credential, v->waited_ms, &e)) {
    case OAUTH_READY: return true;
    case OAUTH_WAITING:
        v->later = true;
        policy_sweep_schedule(f->sandbox);
        return false;
    default: break;
    }
    request_refuse(f, NULL, "credential", h, "%s", e.text);
    say_refused(f, v, e.code == ERR_DENIED ? 403 : 503);
    return false;
}

static void by_policy(struct flow *f, const struct target *t, const struct h2_flow_lost *lost,
                      const struct http_head *h, struct arena *a, struct h2_verdict *v)
{
    struct policy_verdict p = request_decide(f->sandbox, t, f->dialed, h);

    if (p.action == POLICY_DENY) {
        request_refuse_by_policy(f, t, &p, h);
        say_refused(f, v, 403);
    } else if (lost->denied) {
        refuse_address(f, t, lost, h, v);
    } else if (lost->status) {
        flow_not_reached(f, &f->target, &p, h, &lost->why);
        say_lost(f, lost, v);
    } else if (has_credential(f, h, &p, v)) {
        let_through(f, t, h, a, &p, v);
    }
}

/* The request goes on with the authority that was evaluated; :authority or Host has it, or both
 * agree. */
static bool settle_host(struct http_head *h, struct arena *a)
{
    const char *host = authority_check_canonical(h->authority[0] ? h->authority : h->host,
                                                 AUTHORITY_HTTPS_PORT, a);

    if (host)
        h->host = h->authority = host;
    return host != NULL;
}

static void evaluate(void *arg, struct http_head *h, struct arena *a, struct h2_verdict *v)
{
    struct h2_flow *hf = arg;
    struct flow *f = flow_of(hf);
    char name_buffer[POLICY_NAME_MAX + 1];
    struct target t;
    int status;

    if (!f) {
        v->status = 503;
        return;
    }
    if (f->refused || f->unreachable) { /* as a whole, and that was noted */
        answer(f, v, deny_status(f), f->refused ? "egress_denied" : "egress_unreachable",
               f->refused ? f->rule : "none", f->reason ? f->reason : "");
        return;
    }
    t = f->target;
    status = authority_check_origin(h, &t, name_buffer);
    if (status == 400) {
        answer(f, v, 400, "bad_request", "none", REQUEST_MALFORMED_REASON);
    } else if (!v->waited_ms && !request_in_rate(f->sandbox)) {
        request_refuse(f, NULL, "limit", h, REQUEST_RATE_REASON);
        say_refused(f, v, 429);
    } else if (status != 0) {
        request_refuse(f, NULL, "host", h, REQUEST_HOST_REASON);
        say_refused(f, v, status);
    } else if (strcmp(h->method, "CONNECT") == 0) {
        request_refuse(f, NULL, "connect", h, "CONNECT in a connection whose requests are read");
        say_refused(f, v, 403);
    } else if (!settle_host(h, a)) {
        v->status = 503;
    } else {
        by_policy(f, &t, &hf->lost, h, a, v);
    }
}

static bool still(void *arg, const struct http_head *h, struct h2_verdict *v)
{
    struct flow *f = flow_of(arg);
    char name_buffer[POLICY_NAME_MAX + 1];
    struct target t = f->target;
    struct policy_verdict p;

    (void)authority_check_origin(h, &t, name_buffer); /* it did, or there would be no stream */
    p = request_decide(f->sandbox, &t, true, h);
    if (p.action != POLICY_DENY)
        return true;
    request_refuse_by_policy(f, &t, &p, h);
    say_refused(f, v, 403);
    return false;
}

void h2_flow_recheck_all(struct flow *f)
{
    struct h2_flow *hf = f->user;

    h2_recheck_all(hf->conn);
}

bool h2_flow_recheck(struct flow *f)
{
    struct h2_flow *hf = f->user;

    return h2_recheck(hf->conn, still);
}

/* New rules come first, as far as its owner has time. */
static bool may_go_on(void *arg)
{
    struct h2_flow *hf = arg;
    const struct turns *turns = hf->egress->turns;
    struct flow *f = flow_of(hf);
    enum flow_standing standing;

    do
        standing = flow_settle(f);
    while (standing == FLOW_UNSETTLED && !turns_is_over(turns));
    return standing == FLOW_SETTLED;
}

bool h2_flow_again(struct flow *f, uint64_t sweep_number)
{
    struct h2_flow *hf = f->user;

    return h2_again(hf->conn, sweep_number);
}

/* -- life -------------------------------------------------------------------------------------- */

static uint64_t on_moved(void *arg, uint64_t read, uint64_t written)
{
    struct flow *f = flow_of(arg);

    f->up_bytes = read;
    f->down_bytes = written;
    if (!registry_over_bytes(f->sandbox))
        return registry_bytes_left(f->sandbox);
    flow_cut(f, NULL, "limit", FLOW_BYTES_REASON);
    flow_end(f);
    return 0;
}

static void on_conn_end(void *arg)
{
    struct flow *f = flow_of(arg);

    free(arg);
    f->user = NULL;
    f->on_end = NULL;
    flow_end(f);
}

static void on_flow_end(struct flow *f)
{
    struct h2_flow *hf = f->user;

    h2_close(hf->conn);
    free(hf);
}

bool h2_flow_reserve(struct sandbox *s)
{
    if (!s->h2)
        s->h2 = calloc(1, sizeof(*s->h2));
    if (!s->h2 || s->h2->conns >= H2_SHARE_CONNS)
        return false;
    s->h2->conns++;
    return true;
}

void h2_flow_release(struct sandbox *s)
{
    s->h2->conns--;
}

int h2_flow_start(struct flow *f, const struct tls_endpoint *client,
                  const struct tls_endpoint *server, const struct h2_flow_lost *lost)
{
    struct h2_options o = {.client = *client,
                           .server = *server,
                           .owner = registry_owner(f->sandbox),
                           .share = f->sandbox->h2,
                           .answers = f->egress->intercept->held_answers,
                           .like = f->share,
                           .idle_ms = f->egress->config.idle_timeout_ms,
                           .may_go_on = may_go_on,
                           .evaluate = evaluate,
                           .say = say,
                           .on_break = on_break,
                           .on_moved = on_moved,
                           .on_end = on_conn_end};
    struct h2_flow *hf = calloc(1, sizeof(*hf));
    int rc = -ENOMEM;

    if (hf) {
        *hf = (struct h2_flow){.egress = f->egress, .flow_id = f->id, .lost = *lost};
        o.arg = hf;
        rc = h2_start(f->egress->intercept->h2s, &o, &hf->conn);
    }
    if (rc < 0) {
        free(hf);
        return rc;
    }
    f->state = FLOW_STREAMS;
    f->user = hf;
    f->on_end = on_flow_end;
    return 0;
}
