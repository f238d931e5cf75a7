/* What a policy, a sandbox's above it and the ceiling say together. */
#include "egress/egress.h"

#include <string.h>

static const struct policy *ceiling_of(const struct sandbox *s)
{
    return s->parent ? s->parent->ceiling : s->ceiling;
}

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

struct policy_verdict verdict_of(const struct sandbox *s,
                                 struct policy_verdict (*ask)(const struct policy *p,
                                                              const void *subject),
                                 const void *subject)
{
    struct policy_verdict v = ask(s->policy, subject);

    if (s->parent)
        v = within_sandbox(v, ask(s->parent->policy, subject));
    return ceiling_of(s) ? policy_both(v, ask(ceiling_of(s), subject)) : v;
}

const struct policy *verdict_policy(const struct sandbox *s, const struct policy_verdict *v)
{
    if (v->source == POLICY_BY_CEILING)
        return ceiling_of(s);
    return v->source == POLICY_BY_SANDBOX ? s->parent->policy : s->policy;
}
