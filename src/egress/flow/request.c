#include "egress/flow/request.h"

#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/credential/override.h"
#include "egress/flow/audit.h"
#include "egress/flow/deny.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/rate.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/verdict.h"
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

/* A path that stands for any: a request that only its path allows is refused. */
static struct policy_verdict decide_second(const struct sandbox *s, const struct target *t,
                                           bool resolved, const char *method)
{
    struct policy_verdict v = verdict_request(s, t, resolved, method, OVERRIDE_SECOND_PATH);

    return v.action == POLICY_DENY ? v
                                   : verdict_request(s, t, resolved, "GET", OVERRIDE_SECOND_PATH);
}

struct policy_verdict request_decide(const struct sandbox *s, const struct target *t, bool resolved,
                                     const struct http_head *h)
{
    struct policy_verdict v = verdict_request(s, t, resolved, h->method, h->path), second;

    if (v.action == POLICY_DENY || !override_second(h))
        return v;
    second = decide_second(s, t, resolved, h->method);
    if (second.action == POLICY_DENY || second.warned)
        return second;
    if (v.credential && (!second.credential || strcmp(v.credential, second.credential) != 0))
        v.credential = second.credential; /* it is for some paths, and this is about any */
    return v;
}

_Static_assert(CREDENTIALS_MAX <= 64, "a bit for each credential");

uint64_t request_injects(const struct sandbox *s, const struct target *t, bool resolved,
                         const struct http_head *h)
{
    uint64_t named = verdict_injects(s, t, resolved, h->method, h->path);

    if (!named || !override_second(h))
        return named;
    return named & verdict_injects(s, t, resolved, h->method, OVERRIDE_SECOND_PATH) &
           verdict_injects(s, t, resolved, "GET", OVERRIDE_SECOND_PATH);
}

bool request_is_ruled(const struct sandbox *s, const struct target *t)
{
    return verdict_target(s, t).action == POLICY_INSPECT;
}

static uint32_t requests_per_second(const struct sandbox *s)
{
    uint32_t own = policy_limits(s->policy)->requests_per_second,
             all = s->egress->config.requests_per_second;

    return own && all ? MIN(own, all) : own ? own : all;
}

bool request_in_rate(struct sandbox *s)
{
    return (!s->parent || request_in_rate(s->parent)) &&
           rate_take(&s->requests, requests_per_second(s));
}

uint32_t request_rate_left(const struct sandbox *s)
{
    return rate_left(&s->requests, requests_per_second(s));
}

void request_refuse(struct flow *f, const struct policy_verdict *v, const char *rule,
                    const struct http_head *h, const char *fmt, ...)
{
    char text[POLICY_REASON_SIZE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    flow_set_rule(f, v && v->name ? v->name : rule);
    free(f->reason);
    f->reason = strdup(text);
    deny_note(f, v, h->method, h->path);
}

void request_refuse_by_policy(struct flow *f, const struct target *t,
                              const struct policy_verdict *v, const struct http_head *h)
{
    const char *second = override_second(h);
    char why[POLICY_REASON_SIZE];

    if (second &&
        verdict_request(f->sandbox, t, target_is_resolved(t), h->method, h->path).action !=
            POLICY_DENY) {
        request_refuse(f, v, "policy", h, REQUEST_SECOND_REASON, second);
        return;
    }
    deny_explain(v->by ? v->by : f->sandbox->policy, v, t, h->method, h->path, why);
    request_refuse(f, v, "policy", h, "%s", why);
}

void request_allow(struct flow *f, const struct target *t, const struct policy_verdict *v,
                   const struct http_head *h)
{
    const struct audit_record r = {.event = AUDIT_REQUEST,
                                   .sandbox = f->sandbox,
                                   .flow = f,
                                   .target = t,
                                   .allowed = true,
                                   .warned = v->warned,
                                   .rule = f->rule,
                                   .source = v->source,
                                   .method = h->method,
                                   .path = h->path,
                                   .credential = v->credential};

    flow_set_rule(f, v->name);
    flow_pass_rule(f);
    f->dialed = true;
    f->sandbox->allowed++;
    f->sandbox->requests_total++;
    audit_record(f->egress->audit, &r);
}

void request_note_injected(void *egress, uint64_t flow_id, const char *method, const char *path,
                           const char *names)
{
    struct egress *eg = egress;
    const struct flow *f = flow_find(eg, flow_id);
    const struct audit_record r = {.event = AUDIT_INJECTION,
                                   .sandbox = f ? f->sandbox : NULL,
                                   .flow = f,
                                   .allowed = true,
                                   .method = method,
                                   .path = path,
                                   .credential = names};

    if (f)
        audit_record(eg->audit, &r);
}

bool request_is_denial(int status)
{
    return status == 403 || status == 421 || status == 429;
}
