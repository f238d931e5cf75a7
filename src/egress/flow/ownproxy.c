#include "egress/flow/ownproxy.h"

#include "base/err.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/upstream.h"
#include "policy/policy.h"

static void record(struct egress *eg, const struct sandbox *s, const struct flow *f,
                   const struct target *proxy, const struct policy_verdict *v, const char *why)
{
    const struct audit_record r = {.event = AUDIT_CONNECTION,
                                   .sandbox = s,
                                   .flow = f,
                                   .target = proxy,
                                   .allowed = v->action == POLICY_ALLOW,
                                   .rule = v->name,
                                   .source = v->source,
                                   .reason = why};

    if (f && r.allowed)
        audit_record(eg->audit, &r);
    else if (f)
        audit_refusal(eg->audit, &r);
}

/* A ceiling that looks at requests there cannot: requests through a proxy are the proxy's. */
static struct policy_verdict evaluate(const struct sandbox *s, const struct target *proxy)
{
    const struct sandbox *outer = s->parent ? s->parent : s;
    struct policy_verdict v = {
        .action = POLICY_ALLOW, .source = POLICY_BY_SANDBOX, .rule = -1, .name = "egressProxy"};

    if (!policy_address_is_public(&proxy->address))
        v = (struct policy_verdict){.source = POLICY_BY_NEVER, .rule = -1, .name = "never"};
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX && outer->ceilings[i]; i++) {
        struct policy_verdict c = policy_address(outer->ceilings[i], NULL, &proxy->address,
                                                 proxy->port);

        if (v.action != POLICY_ALLOW || c.action == POLICY_ALLOW)
            continue;
        v = c;
        v.action = POLICY_DENY;
        v.source = v.source == POLICY_BY_NEVER ? v.source : POLICY_BY_CEILING;
    }
    return v;
}

static bool explain(const struct policy_verdict *v, const struct target *proxy, struct err *why)
{
    char text[INET6_ADDRSTRLEN];

    policy_address_format(&proxy->address, text);
    if (v->action == POLICY_ALLOW)
        return true;
    if (v->source == POLICY_BY_CEILING)
        err_set(why, ERR_DENIED, "the upstream proxy %s port %u is not allowed by the ceiling: %s",
                text, proxy->port, v->name);
    else
        err_set(why, ERR_DENIED, "the upstream proxy's address %s is not a public one", text);
    return false;
}

static struct target target_of(const struct upstream *own)
{
    return (struct target){.address = *upstream_address(own), .port = upstream_port(own)};
}

bool ownproxy_may(const struct sandbox *s, const struct upstream *own, struct err *why)
{
    const struct target proxy = target_of(own);
    struct policy_verdict v = evaluate(s, &proxy);

    return explain(&v, &proxy, why);
}

bool ownproxy_allowed(struct egress *eg, const struct sandbox *s, const struct upstream *own,
                      uint64_t flow_id, struct err *why)
{
    const struct target proxy = target_of(own);
    struct policy_verdict v = evaluate(s, &proxy);
    bool allowed = explain(&v, &proxy, why);

    record(eg, s, flow_find(eg, flow_id), &proxy, &v, allowed ? NULL : why->text);
    return allowed;
}
