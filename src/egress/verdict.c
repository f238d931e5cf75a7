/* What a policy, a sandbox's above it and the ceilings say together. */
#include "egress/egress.h"

#include "egress/asks.h"

#include <string.h>

/* Neither allows more than both do; a credential is put on where both name the same. */
static struct policy_verdict within_sandbox(struct policy_verdict own, struct policy_verdict outer)
{
    struct policy_verdict v = policy_both(own, outer);

    if (v.action == POLICY_DENY && v.source == POLICY_BY_CEILING)
        v.source = POLICY_BY_SANDBOX;
    if (v.credential && (!outer.credential || strcmp(v.credential, outer.credential) != 0))
        v.credential = NULL;
    return v;
}

struct policy_verdict verdict_narrower(struct policy_verdict a, struct policy_verdict b)
{
    b.credential = NULL;
    if (a.action == POLICY_DENY || b.action == POLICY_DENY)
        return a.action == POLICY_DENY ? a : b;
    a.warned = b.warned = a.warned || b.warned;
    return b.action == POLICY_ALLOW || b.action == a.action ? a : b;
}

static bool any_of(const struct sandbox *s, bool (*is)(const struct policy *p))
{
    const struct sandbox *outer = s->parent ? s->parent : s;

    if (is(s->policy) || is(outer->policy))
        return true;
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX && outer->ceilings[i]; i++)
        if (is(outer->ceilings[i]))
            return true;
    return false;
}

bool verdict_narrows_names(const struct sandbox *s)
{
    return any_of(s, policy_narrows_names);
}

bool verdict_looks_at_names(const struct sandbox *s)
{
    return any_of(s, policy_looks_at_names);
}

typedef struct policy_verdict (*verdict_ask)(const struct policy *p, const void *subject);

struct policy_verdict verdict_of(const struct sandbox *s, verdict_ask ask, const void *subject,
                                 const struct target *t)
{
    const struct sandbox *outer = s->parent ? s->parent : s;
    struct policy_verdict v = ask(s->policy, subject), other;

    asks_apply(s, s, t, &v);
    if (s->parent) {
        other = ask(outer->policy, subject);
        asks_apply(outer, s, t, &other);
        v = within_sandbox(v, other);
    }
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX && outer->ceilings[i]; i++) {
        other = ask(outer->ceilings[i], subject);
        other.asks = false; /* no owner's yes goes beyond the operator's word */
        v = policy_both(v, other);
    }
    return v;
}
