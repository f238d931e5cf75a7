/* A call goes: dialled within its rules, held against the ceilings once more as the request that it
 * will be, TLS, the owner's request, its answer. While it is dialled it is found by its number,
 * since a dial knows numbers alone. */

#include "egress/flow/https_call.h"

#include "base/util.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/request.h"
#include "egress/flow/tls_intercept.h"
#include "egress/tls/tls_endpoint.h"
#include "http/client.h"
#include "http/tls_conn.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* -- its rules --------------------------------------------------------------------------------- */

static enum err_code take_ceilings(struct https_call *c, const json_t *ceilings, struct err *e)
{
    const json_t *item;
    size_t i;

    if (!json_is_array(ceilings) || json_array_size(ceilings) > EGRESS_CEILINGS_MAX)
        return err_set(e, ERR_INVALID, "ceilings: not a list of at most %u policies",
                       EGRESS_CEILINGS_MAX);
    json_array_foreach (ceilings, i, item)
        if (policy_new(item, &c->as.ceilings[i], e) != ERR_OK)
            return e->code;
    return ERR_OK;
}

enum err_code https_call_init(struct https_call *c, struct egress *eg, const char *tenant,
                              const char *sandbox, const json_t *ceilings, struct err *e)
{
    json_t *own;
    enum err_code code;

    c->egress = eg;
    c->as.egress = eg;
    c->as.slot = DIAL_LONE;
    c->as.tcp_fd = c->as.udp_fd = -1;
    c->target = (struct target){.name = c->url.host, .port = c->url.port};
    (void)snprintf(c->as.tenant, sizeof(c->as.tenant), "%s", tenant);
    (void)snprintf(c->as.id, sizeof(c->as.id), "%s", sandbox);
    own = json_pack("{s:[{s:s, s:s, s:[s], s:[i]}]}", "rules", "name", "call", "action", "allow",
                    "domains", c->url.host, "ports", (int)c->url.port);
    code = own ? policy_new(own, &c->as.policy, e) : err_set(e, ERR_EXHAUSTED, "out of memory");
    json_decref(own);
    return code == ERR_OK ? take_ceilings(c, ceilings, e) : code;
}

void https_call_clear(struct https_call *c)
{
    policy_free(c->as.policy);
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX; i++)
        policy_free(c->as.ceilings[i]);
}

/* The ceilings may look at requests: this is the one. */
static bool is_allowed(struct https_call *c, struct err *e)
{
    char path[HTTPS_URL_TARGET_MAX];
    const struct http_head h = {.method = "POST", .path = path};
    struct policy_verdict v;

    https_url_path(&c->url, path);
    v = request_decide(&c->as, &c->target, true, &h);
    if (v.action != POLICY_DENY)
        return true;
    err_set(e, ERR_UNAVAILABLE, "%s is not allowed by %s: %s", c->uses->peer,
            v.source == POLICY_BY_NEVER ? "any policy" : "the ceiling", v.name);
    return false;
}

/* -- its request ------------------------------------------------------------------------------- */

static void on_answer(void *arg, const struct http_head *head, const char *body, size_t len,
                      const struct err *why, int *fd)
{
    struct https_call *c = arg;
    struct err e;

    if (!why) {
        c->uses->answered(c->arg, head, body, len);
        return;
    }
    err_set(&e, ERR_UNAVAILABLE, "%s: %s", c->uses->peer, why->text);
    c->uses->failed(c->arg, false, &e);
}

int https_call_send(struct https_call *c, const struct http_header *headers, size_t n,
                    const void *body, size_t len, size_t answer_max)
{
    struct tls_endpoint *end = TAKE_PTR(c->end);
    const struct http_client_request q = {.fd = end->fd,
                                          .layer = end->tls,
                                          .layer_ops = &tls_conn_ops,
                                          .method = "POST",
                                          .target = c->url.target,
                                          .host = c->url.authority,
                                          .headers = headers,
                                          .header_count = n,
                                          .body = body,
                                          .body_len = len,
                                          .max_response_bytes = answer_max,
                                          .timeout_ms = HTTPS_CALL_MS,
                                          .done = on_answer,
                                          .arg = c};

    return http_client_send(c->egress->loop, &q);
}

static void on_tls(void *arg, const struct tls_endpoint *end, const struct err *why)
{
    struct https_call *c = arg;
    struct tls_endpoint taken;
    struct err e;

    if (!end) {
        err_set(&e, ERR_UNAVAILABLE, "%s: %s", c->uses->peer, why->text);
        c->uses->failed(c->arg, false, &e);
        return;
    }
    taken = *end;
    c->end = &taken;
    c->uses->connected(c->arg);
    if (c->end)
        tls_endpoint_close(TAKE_PTR(c->end), true);
}

/* -- dialled ----------------------------------------------------------------------------------- */

static struct https_call *take_dialled(struct egress *eg, uint64_t id)
{
    struct https_call *c = eg->https_calls;

    while (c && c->id != id)
        c = c->next;
    if (!c)
        return NULL;
    *(c->prev ? &c->prev->next : &eg->https_calls) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    return c;
}

/* The call's own policy allows its name, so that it denies only addresses that are not public. */
static void say_why_not(const struct https_call *c, const struct dial_result *r, struct err *e)
{
    const bool own = r->denied && r->verdict.source == POLICY_BY_DEFAULT;

    err_set(e, ERR_UNAVAILABLE, "%s: %s%s%s", c->uses->peer, r->why.text,
            own         ? ": it is not public"
            : r->denied ? " by "
                        : "",
            r->denied && !own ? r->verdict.name : "");
}

static void on_dialled(struct egress *eg, uint64_t id, const struct dial_result *result)
{
    struct https_call *c = take_dialled(eg, id);
    struct err e;
    int rc;

    if (!c) {
        if (result->fd >= 0)
            close(result->fd);
        return;
    }
    dial_note(&c->target, result);
    if (result->fd < 0) {
        say_why_not(c, result, &e);
        c->uses->failed(c->arg, result->denied, &e);
    } else if (!is_allowed(c, &e)) {
        close(result->fd);
        c->uses->failed(c->arg, true, &e);
    } else {
        rc = tls_intercept_client(eg, result->fd, c->url.host, c->as.tenant, on_tls, c);
        if (rc < 0) {
            err_set_sys(&e, ERR_EXHAUSTED, rc, "%s: no TLS connection", c->uses->peer);
            c->uses->failed(c->arg, false, &e);
        }
    }
}

void https_call_start(struct https_call *c, const struct https_call_uses *uses, void *arg)
{
    struct egress *eg = c->egress;
    struct err e;

    c->uses = uses;
    c->arg = arg;
    c->id = ++eg->last_https_call;
    c->next = eg->https_calls;
    if (c->next)
        c->next->prev = c;
    eg->https_calls = c;
    if (dial_start(eg, &c->as, &c->target, c->id, on_dialled))
        return;
    (void)take_dialled(eg, c->id);
    err_set(&e, ERR_EXHAUSTED, "out of memory");
    uses->failed(arg, false, &e);
}
