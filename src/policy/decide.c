/* The three questions of policy.h: policy_name before a name is resolved, policy_address before
 * it is dialled, policy_request for each request that is read. Pure, without state: cay-egress
 * asks in that order, and core for explanations. All three build a subject with what is known so
 * far and give it to decide(): the first rule that surely matches wins, unless an earlier one
 * might match once more is known; then the verdict says so (inspect, or a check at the next
 * question). Where no rule decides, the default does. No answer of a later question is wider than
 * that of an earlier one. */

#include "policy/internal.h"
#include "policy/pattern.h"
#include "policy/preset.h"

#include <string.h>

static struct policy_verdict by_rule(const struct policy *p, size_t i, enum policy_action action)
{
    const struct rule *r = &p->rules[i];

    return (struct policy_verdict){
        .action = action, .source = POLICY_BY_RULE, .rule = (int)i, .name = r->name, .by = p};
}

static struct policy_verdict by_default(const struct policy *p, const struct subject *s)
{
    struct policy_verdict v = {.source = POLICY_BY_DEFAULT,
                               .rule = -1,
                               .name = preset_fallback_name(p->fallback),
                               .by = p};

    for (size_t i = 0; i < p->n_presets; i++)
        if (rule_matches(p->presets[i], s) == MATCH_YES)
            return (struct policy_verdict){.action = POLICY_ALLOW,
                                           .source = POLICY_BY_PRESET,
                                           .rule = -1,
                                           .name = p->presets[i]->name,
                                           .by = p};
    if (p->fallback == FALLBACK_ALLOW ||
        (p->fallback == FALLBACK_PUBLIC && (!s->a || s->is_public)))
        v.action = POLICY_ALLOW;
    return v;
}

/* How well a name is met: the pattern's length, and an exact one before all. 0: not at all. */
static size_t weight(const struct rule *r, const char *name)
{
    const struct list *l = &r->lists[CONDITION_DOMAINS];
    size_t best = 0;

    for (size_t i = 0; i < l->n; i++) {
        const char *pattern = l->entries[i].text;

        if (pattern_domain(pattern, name))
            best = MAX(best, pattern[0] == '*' ? strlen(pattern) : SIZE_MAX);
    }
    return best;
}

/* The credentials that are put on an allowed request. Before there is a request: whether any might
 * be. */
static struct policy_verdict inject(const struct policy *p, const struct subject *s,
                                    struct policy_verdict v)
{
    size_t best = 0;

    for (size_t i = 0; v.action != POLICY_DENY && s->name && i < p->n_injections; i++) {
        const struct rule *r = &p->injections[i];
        enum match m = rule_matches_rest(r, s);
        size_t w = m == MATCH_NO ? 0 : weight(r, s->name);

        if (w <= best)
            continue;
        if (!s->method) {
            v.action = POLICY_INSPECT;
        } else if (m == MATCH_YES) {
            best = w;
            v.credential = r->credential;
        }
    }
    return v;
}

/* The first rule that surely matches decides, unless one before it might match once more is known
 * and would let it pass. */
static struct policy_verdict decide(const struct policy *p, const struct subject *s)
{
    struct policy_verdict sure, open = {.rule = -1};
    bool inspect_first = false, may_pass = false;
    size_t i;

    for (i = 0; i < p->n_rules; i++) {
        enum match m = rule_matches(&p->rules[i], s);

        if (m == MATCH_YES)
            break;
        if (m == MATCH_NO)
            continue;
        if (m == MATCH_REQUEST && !inspect_first)
            open = by_rule(p, i, POLICY_INSPECT);
        else if (open.rule < 0 && p->rules[i].action == POLICY_ALLOW)
            open = by_rule(p, i, POLICY_ALLOW);
        inspect_first |= m == MATCH_REQUEST;
        may_pass |= p->rules[i].action == POLICY_ALLOW;
    }
    sure = i < p->n_rules ? by_rule(p, i, p->rules[i].action) : by_default(p, s);
    /* a rule that denies requests holds also where the owner says yes to the rest */
    sure.inspects = inspect_first;
    return inject(p, s, (sure.action == POLICY_DENY ? may_pass : inspect_first) ? open : sure);
}

/* A policy that only warns denies nothing of what could be allowed. */
static struct policy_verdict decide_or_warn(const struct policy *p, const struct subject *s)
{
    struct policy_verdict v = decide(p, s);

    if (p->warns && v.action == POLICY_DENY) {
        v.action = POLICY_ALLOW;
        v.warned = true;
    }
    v.asks = p->asks && v.action == POLICY_DENY && v.source == POLICY_BY_DEFAULT;
    return v;
}

struct policy_verdict policy_name(const struct policy *p, const char *name, uint16_t port)
{
    const struct subject s = subject_of(name, NULL, port, NULL, NULL);

    return decide_or_warn(p, &s);
}

static const struct policy_verdict never = {
    .action = POLICY_DENY, .source = POLICY_BY_NEVER, .rule = -1, .name = "never"};

struct policy_verdict policy_address(const struct policy *p, const char *name,
                                     const struct policy_address *a, uint16_t port)
{
    const struct subject s = subject_of(name, a, port, NULL, NULL);

    if (policy_address_is_never(a))
        return never;
    return decide_or_warn(p, &s);
}

struct policy_verdict policy_request(const struct policy *p, const char *host,
                                     const struct policy_address *a, uint16_t port,
                                     const char *method, const char *path)
{
    const struct subject s = subject_of(host, a, port, method, path);

    if (a && policy_address_is_never(a))
        return never;
    return decide_or_warn(p, &s);
}

static uint64_t find_credential(const char *name, const char *const *credentials, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(credentials[i], name) == 0)
            return UINT64_C(1) << i;
    return 0;
}

_Static_assert(POLICY_INJECT_MAX <= 64, "a bit for each credential");

uint64_t policy_request_injects(const struct policy *p, const char *host,
                                const struct policy_address *a, uint16_t port, const char *method,
                                const char *path, const char *const *credentials, size_t n)
{
    const struct subject s = subject_of(host, a, port, method, path);
    uint64_t named = 0;

    if (!host || p->n_injections == 0 || decide(p, &s).action == POLICY_DENY)
        return 0;
    for (size_t i = 0; i < p->n_injections; i++)
        if (rule_matches_rest(&p->injections[i], &s) == MATCH_YES &&
            weight(&p->injections[i], host) > 0)
            named |= find_credential(p->injections[i].credential, credentials, n);
    return named;
}

struct policy_verdict policy_both(struct policy_verdict own, struct policy_verdict ceiling)
{
    if (own.action == POLICY_DENY) {
        own.asks &= ceiling.action != POLICY_DENY || ceiling.asks;
        return own;
    }
    if (ceiling.action == POLICY_DENY) {
        if (ceiling.source != POLICY_BY_NEVER)
            ceiling.source = POLICY_BY_CEILING;
        return ceiling;
    }
    if (ceiling.action == POLICY_INSPECT)
        own.action = POLICY_INSPECT;
    own.warned |= ceiling.warned;
    if (own.warned) /* it passes only because it is to be told of: no value goes with it */
        own.credential = NULL;
    return own;
}

size_t policy_matches(const struct policy *p, const char *name, const struct policy_address *a,
                      uint16_t port, const char *method, const char *path,
                      struct policy_verdict *out, size_t max)
{
    const struct subject s = subject_of(name, a, port, method, path);
    size_t n = 0;

    if (a && policy_address_is_never(a)) {
        if (max > 0)
            out[0] = never;
        return 1;
    }
    for (size_t i = 0; i < p->n_rules; i++) {
        enum match m = rule_matches(&p->rules[i], &s);

        if (m != MATCH_NO && n++ < max)
            out[n - 1] = by_rule(p, i, m == MATCH_YES ? p->rules[i].action : POLICY_INSPECT);
    }
    if (n++ < max)
        out[n - 1] = by_default(p, &s);
    return n;
}

bool policy_narrows_names(const struct policy *p)
{
    for (size_t i = 0; i < p->n_rules; i++) {
        const struct rule *r = &p->rules[i];

        if (rule_has_stage(r, CONDITION_NAME) &&
            (r->action == POLICY_DENY || rule_has_stage(r, CONDITION_REQUEST)))
            return true;
    }
    return p->n_injections > 0;
}

bool policy_reads_requests(const struct policy *p)
{
    for (size_t i = 0; i < p->n_rules; i++)
        if (rule_has_stage(&p->rules[i], CONDITION_REQUEST))
            return true;
    for (size_t i = 0; i < p->n_presets; i++)
        if (rule_has_stage(p->presets[i], CONDITION_REQUEST))
            return true;
    return p->n_injections > 0;
}

bool policy_depends_on_names(const struct policy *p)
{
    return p->fallback == FALLBACK_DENY || policy_narrows_names(p);
}

const struct policy_reroute *policy_reroute(const struct policy *p, const char *name)
{
    for (size_t i = 0; i < p->n_reroutes; i++)
        if (!name || pattern_domain(p->reroutes[i].domain, name))
            return &p->reroutes[i];
    return NULL;
}

const char *policy_credential(const struct policy *p, size_t i)
{
    return i < p->n_injections ? p->injections[i].credential : NULL;
}

bool policy_uses_credential(const struct policy *p, const char *credential)
{
    for (size_t i = 0; i < p->n_injections; i++)
        if (strcmp(p->injections[i].credential, credential) == 0)
            return true;
    return false;
}

bool policy_closes(const struct policy *p)
{
    return p->closes;
}

const struct policy_limits *policy_limits(const struct policy *p)
{
    return &p->limits;
}
