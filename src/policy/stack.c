/* The verdict of all policies above a sandbox together: see stack.h. */
#include "policy/stack.h"

#include "base/util.h"

#include <string.h>

struct question {
    const struct policy_target *t;
    bool resolved;
    const char *method, *path;
};

typedef struct policy_verdict (*evaluate_one)(const struct policy *p, const struct question *q);

static struct policy_verdict evaluate_name(const struct policy *p, const struct question *q)
{
    return policy_name(p, q->t->name, q->t->port);
}

static struct policy_verdict evaluate_address(const struct policy *p, const struct question *q)
{
    return policy_address(p, q->t->name, &q->t->address, q->t->port);
}

/* The address that a request is asked about; NULL: it is not known. */
static const struct policy_address *address_of(const struct question *q)
{
    const struct policy_target *t = q->t;

    return (q->resolved && policy_target_is_resolved(t)) || !t->name ? &t->address : NULL;
}

static struct policy_verdict evaluate_request(const struct policy *p, const struct question *q)
{
    return policy_request(p, q->t->name, address_of(q), q->t->port, q->method, q->path);
}

bool policy_target_is_resolved(const struct policy_target *t)
{
    static const struct policy_address none;

    return memcmp(&t->address, &none, sizeof(none)) != 0;
}

/* -- together ---------------------------------------------------------------------------------- */

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

struct policy_verdict policy_narrower(struct policy_verdict a, struct policy_verdict b)
{
    b.credential = NULL;
    if (a.action == POLICY_DENY || b.action == POLICY_DENY)
        return a.action == POLICY_DENY ? a : b;
    a.warned = b.warned = a.warned || b.warned;
    if (a.warned)
        a.credential = NULL;
    return b.action == POLICY_ALLOW || b.action == a.action ? a : b;
}

static void answer(const struct policy_stack *s, bool of_outer, const struct policy_target *t,
                   struct policy_verdict *v)
{
    if (s->answer && v->asks)
        s->answer(s->arg, of_outer, t, v);
}

static struct policy_verdict of_all(const struct policy_stack *s, evaluate_one evaluate,
                                    const struct question *q)
{
    struct policy_verdict v = evaluate(s->own, q), other;

    answer(s, false, q->t, &v);
    if (s->outer) {
        other = evaluate(s->outer, q);
        answer(s, true, q->t, &other);
        v = within_sandbox(v, other);
    }
    for (size_t i = 0; i < POLICY_STACK_CEILINGS_MAX && s->ceilings[i]; i++) {
        other = evaluate(s->ceilings[i], q);
        other.asks = false; /* no owner's yes goes beyond the operator's word */
        other.capped = v.capped || other.action == POLICY_DENY;
        v = policy_both(v, other);
        v.capped = other.capped;
    }
    return v;
}

/* -- other ways -------------------------------------------------------------------------------- */

const struct policy_reroute *policy_stack_reroute(const struct policy_stack *s, const char *name)
{
    return name ? policy_reroute(s->outer ? s->outer : s->own, name) : NULL;
}

static const struct policy_verdict missed = {
    .action = POLICY_DENY, .source = POLICY_BY_SANDBOX, .rule = -1, .name = "reroute"};

/* t was dialled, and not where its policy sends it now. */
static bool is_missed(const struct policy_stack *s, const struct policy_target *t)
{
    return t->via_port == 0 && policy_target_is_resolved(t) && policy_stack_reroute(s, t->name);
}

/* Before its name is resolved nothing is asked outside for what is denied anyway. */
static struct policy_verdict evaluate_way(const struct policy *p, const struct policy_target *t)
{
    return t->via_unresolved ? policy_name(p, t->via_name, t->via_port)
                             : policy_address(p, t->via_name, &t->via, t->via_port);
}

/* A ceiling that looks at requests to the address cannot: they are said to the name. */
static struct policy_verdict via_within_ceilings(const struct policy_stack *s,
                                                 const struct policy_target *t)
{
    struct policy_verdict v = {
        .action = POLICY_ALLOW, .source = POLICY_BY_SANDBOX, .rule = -1, .name = "reroute"};

    for (size_t i = 0; i < POLICY_STACK_CEILINGS_MAX && s->ceilings[i]; i++) {
        struct policy_verdict c = evaluate_way(s->ceilings[i], t);

        if (c.action == POLICY_ALLOW) {
            v.warned |= c.warned;
            continue;
        }
        c.action = POLICY_DENY;
        c.asks = c.warned = false;
        if (c.source != POLICY_BY_NEVER)
            c.source = POLICY_BY_CEILING;
        return c;
    }
    return v;
}

static bool is_its_way(const struct policy_reroute *way, const struct policy_target *t)
{
    if ((way->port ? way->port : t->port) != t->via_port || !way->to_name != !t->via_name)
        return false;
    return way->to_name ? strcmp(way->to_name, t->via_name) == 0
                        : memcmp(&way->to, &t->via, sizeof(t->via)) == 0;
}

/* An address that the policy has was written by its owner. An address that a name resolved to was
 * chosen by the owner of that name: as everywhere, only a range of a rule, or the default "allow",
 * opens one that is not public (test: test_egress_reroute.py, test_a_name_as_the_way), and a rule
 * that denies the name or the address holds (test_a_way_that_a_rule_denies). */
static struct policy_verdict named_way(const struct policy *own, const struct policy_target *t)
{
    struct policy_verdict v = evaluate_way(own, t);

    v.by = own;
    if (v.action == POLICY_DENY && v.source == POLICY_BY_RULE)
        return v;
    if (!t->via_unresolved && !policy_address_is_public(&t->via) && v.action != POLICY_ALLOW)
        return (struct policy_verdict){
            .source = POLICY_BY_SANDBOX, .rule = -1, .name = "private", .by = own};
    v.action = POLICY_ALLOW;
    return v;
}

/* The way is the sandbox's, and a command goes it as far as its own policy has nothing against it
 * (test: test_command_policy.py, test_a_command_denies_the_way). */
static struct policy_verdict commands_word(const struct policy_stack *s,
                                           const struct policy_target *t)
{
    struct policy_verdict v;

    if (t->via_name)
        return named_way(s->own, t);
    v = evaluate_way(s->own, t);
    v.by = s->own;
    if (v.action != POLICY_DENY || v.source != POLICY_BY_RULE)
        v.action = POLICY_ALLOW;
    return v;
}

static struct policy_verdict of_way(const struct policy_stack *s, const struct policy_target *t)
{
    const struct policy_reroute *way = policy_stack_reroute(s, t->name);
    const struct policy *own = s->outer ? s->outer : s->own;
    struct policy_verdict v = missed;

    v.by = own;
    if (!way || !is_its_way(way, t))
        return v;
    /* Also where there is no ceiling: never reached. */
    if (!t->via_unresolved)
        v = policy_address(policy_preset("allow"), NULL, &t->via, t->via_port);
    else
        v.action = POLICY_ALLOW;
    if (v.action == POLICY_ALLOW && t->via_name)
        v = named_way(own, t);
    if (v.action == POLICY_ALLOW && s->outer)
        v = commands_word(s, t);
    return v.action == POLICY_ALLOW ? via_within_ceilings(s, t) : v;
}

/* -- the three questions ----------------------------------------------------------------------- */

struct policy_verdict policy_stack_name(const struct policy_stack *s, const struct policy_target *t)
{
    return of_all(s, evaluate_name, &(struct question){.t = t});
}

/* By address, and by the name that is said there: the narrower. */
static struct policy_verdict with_said(const struct policy_stack *s, evaluate_one evaluate,
                                       const struct question *q)
{
    struct policy_verdict v = of_all(s, evaluate, q);
    struct policy_target named = *q->t;
    struct question again = *q;

    if (q->t->name || !q->t->said)
        return v;
    named.name = named.said;
    again.t = &named;
    again.resolved = true;
    return policy_narrower(v, of_all(s, evaluate, &again));
}

struct policy_verdict policy_stack_dial(const struct policy_stack *s, const struct policy_target *t)
{
    const struct question q = {.t = t, .resolved = true};

    if (t->via_port)
        return policy_narrower(of_all(s, evaluate_name, &q), of_way(s, t));
    if (is_missed(s, t))
        return missed;
    return with_said(s, evaluate_address, &q);
}

struct policy_verdict policy_stack_request(const struct policy_stack *s,
                                           const struct policy_target *t, bool resolved,
                                           const char *method, const char *path)
{
    const struct question q = {.t = t, .resolved = resolved, .method = method, .path = path};

    if (t->via_port)
        return policy_narrower(of_all(s, evaluate_request, &q), of_way(s, t));
    if (resolved && is_missed(s, t))
        return missed;
    return with_said(s, evaluate_request, &q);
}

/* A credential is put on where both name it: policy_stack_request's own rule (within_sandbox). */
uint64_t policy_stack_injects(const struct policy_stack *s, const struct policy_target *t,
                              bool resolved, const char *method, const char *path,
                              const char *const *credentials, size_t n)
{
    const struct question q = {.t = t, .resolved = resolved, .method = method, .path = path};
    uint64_t named;

    if (policy_stack_request(s, t, resolved, method, path).warned)
        return 0;
    named = policy_request_injects(s->own, t->name, address_of(&q), t->port, method, path,
                                   credentials, n);
    if (named && s->outer)
        named &= policy_request_injects(s->outer, t->name, address_of(&q), t->port, method, path,
                                        credentials, n);
    return named;
}
