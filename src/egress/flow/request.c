#include "egress/flow/request.h"

#include "base/util.h"
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

struct policy_verdict request_decide(const struct sandbox *s, const struct target *t, bool resolved,
                                     const struct http_head *h)
{
    return verdict_request(s, t, resolved, h->method, h->path);
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
    char why[POLICY_REASON_SIZE];

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
    f->dialed = true;
    f->sandbox->allowed++;
    f->sandbox->requests_total++;
    audit_record(f->egress->audit, &r);
}

bool request_is_denial(int status)
{
    return status == 403 || status == 421 || status == 429;
}
