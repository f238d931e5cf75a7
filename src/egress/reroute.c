#include "egress/reroute.h"

#include <string.h>

const struct policy_verdict reroute_missed = {
    .action = POLICY_DENY, .source = POLICY_BY_SANDBOX, .rule = -1, .name = "reroute"};

static const struct sandbox *whole_of(const struct sandbox *s)
{
    return s->parent ? s->parent : s;
}

const struct policy_reroute *reroute_of(const struct sandbox *s, const char *name)
{
    return name ? policy_reroute(whole_of(s)->policy, name) : NULL;
}

bool reroute_is_missed(const struct sandbox *s, const struct target *t)
{
    return t->via_port == 0 && target_is_resolved(t) && reroute_of(s, t->name);
}

/* A ceiling that looks at requests to the address cannot: they are said to the name. */
static struct policy_verdict within_ceilings(const struct sandbox *s, const struct target *t)
{
    struct policy_verdict v = {
        .action = POLICY_ALLOW, .source = POLICY_BY_SANDBOX, .rule = -1, .name = "reroute"};

    for (size_t i = 0; i < EGRESS_CEILINGS_MAX && s->ceilings[i]; i++) {
        struct policy_verdict c = policy_address(s->ceilings[i], NULL, &t->via, t->via_port);

        if (c.action == POLICY_ALLOW)
            continue;
        c.action = POLICY_DENY;
        c.asks = c.warned = false;
        if (c.source != POLICY_BY_NEVER)
            c.source = POLICY_BY_CEILING;
        return c;
    }
    return v;
}

struct policy_verdict reroute_verdict(const struct sandbox *s, const struct target *t)
{
    const struct policy_reroute *way = reroute_of(s, t->name);
    struct policy_verdict v;

    if (!way || memcmp(&way->to, &t->via, sizeof(t->via)) != 0 ||
        (way->port ? way->port : t->port) != t->via_port) {
        v = reroute_missed;
        v.by = whole_of(s)->policy;
        return v;
    }
    /* Also where there is no ceiling: the preset asks POLICY_NEVER first. */
    v = policy_address(policy_preset("allow"), NULL, &t->via, t->via_port);
    return v.action == POLICY_ALLOW ? within_ceilings(whole_of(s), t) : v;
}
