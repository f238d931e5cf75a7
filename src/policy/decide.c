/* The three questions: see policy.h for their order and what each knows. */
#include "policy/internal.h"

#include <string.h>
#include <strings.h>

/* What is asked about. Unknown yet: a NULL before the name was resolved, method NULL before there is
 * a request. */
struct subject {
    const char *name;
    const struct policy_address *a;
    uint16_t port;
    const char *method, *path;
    bool is_public;    /* valid with a */
    bool is_ambiguous; /* valid with path */
};

enum match {
    MATCH_NO,
    MATCH_ADDRESS,
    MATCH_REQUEST,
    MATCH_YES
}; /* the middle: cannot tell without */

static bool any_domain(const struct rule *r, const char *name)
{
    for (size_t i = 0; name && i < r->n_domains; i++)
        if (pattern_domain(r->domains[i], name))
            return true;
    return false;
}

static bool any_range(const struct rule *r, const struct policy_address *a)
{
    for (size_t i = 0; a && i < r->n_ranges; i++)
        if (r->action == POLICY_DENY ? address_reaches(&r->ranges[i], a)
                                     : address_in(&r->ranges[i], a))
            return true;
    return false;
}

static bool any_port(const struct ports *ports, size_t n, uint16_t port)
{
    for (size_t i = 0; i < n; i++)
        if (port >= ports[i].first && port <= ports[i].last)
            return true;
    return n == 0;
}

/* Only a range opens what is not public: whoever owns an allowed name could otherwise point it into
 * the operator's network (test: test_policy.c, test_name_into_private_network). */
static enum match match_destination(const struct rule *r, const struct subject *s)
{
    bool by_name = any_domain(r, s->name);

    if (r->n_domains == 0 && r->n_ranges == 0)
        by_name = true;
    if (any_range(r, s->a))
        return MATCH_YES;
    if (by_name)
        return r->action == POLICY_ALLOW && s->a && !s->is_public ? MATCH_NO : MATCH_YES;
    /* A name is not resolved because what it resolves to might be allowed: the question alone would
     * carry out whatever the name says (test: test_policy.c, test_addresses_open_no_names). */
    return r->n_ranges > 0 && !s->a && r->action == POLICY_DENY ? MATCH_ADDRESS : MATCH_NO;
}

static bool any_method(const struct rule *r, const char *method)
{
    for (size_t i = 0; i < r->n_methods; i++)
        if (strcmp(r->methods[i], method) == 0 ||
            (r->action == POLICY_DENY && strcasecmp(r->methods[i], method) == 0))
            return true;
    return r->n_methods == 0;
}

/* What can be read in two ways is allowed by no path and denied by every one. */
static bool any_path(const struct rule *r, const struct subject *s)
{
    if (r->n_paths == 0)
        return true;
    if (s->is_ambiguous)
        return r->action == POLICY_DENY;
    for (size_t i = 0; i < r->n_paths; i++)
        if (r->action == POLICY_DENY ? pattern_path_denied(r->paths[i], s->path)
                                     : pattern_path(r->paths[i], s->path))
            return true;
    return false;
}

static enum match match_rule(const struct rule *r, const struct subject *s)
{
    enum match m = any_port(r->ports, r->n_ports, s->port) ? match_destination(r, s) : MATCH_NO;

    if (m == MATCH_NO)
        return m;
    if (!s->method)
        return r->n_methods > 0 || r->n_paths > 0 ? MATCH_REQUEST : m;
    return any_method(r, s->method) && any_path(r, s) ? m : MATCH_NO;
}

static bool match_preset(const struct preset *p, const struct subject *s)
{
    if (!s->name || !any_port(p->ports, p->n_ports, s->port) || (s->a && !s->is_public))
        return false;
    for (const char *const *d = p->domains; *d; d++)
        if (pattern_domain(*d, s->name))
            return true;
    return false;
}

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
        if (match_preset(p->presets[i], s))
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
    size_t best = 0;

    for (size_t i = 0; i < r->n_domains; i++)
        if (pattern_domain(r->domains[i], name))
            best = MAX(best, r->domains[i][0] == '*' ? strlen(r->domains[i]) : SIZE_MAX);
    return best;
}

/* What is put on an allowed request. Before there is one: whether anything might be. */
static struct policy_verdict inject(const struct policy *p, const struct subject *s,
                                    struct policy_verdict v)
{
    size_t best = 0;

    for (size_t i = 0; v.action != POLICY_DENY && s->name && i < p->n_injections; i++) {
        const struct rule *r = &p->injections[i];
        size_t w = any_port(r->ports, r->n_ports, s->port) ? weight(r, s->name) : 0;

        if (w <= best)
            continue;
        if (!s->method) {
            v.action = POLICY_INSPECT;
        } else if (any_method(r, s->method) && any_path(r, s)) {
            best = w;
            v.credential = r->credential;
        }
    }
    return v;
}

/* The first rule that surely matches decides, unless one before it might match once more is known and
 * would let it pass. */
static struct policy_verdict decide(const struct policy *p, const struct subject *s)
{
    struct policy_verdict sure, open = {.rule = -1};
    bool inspect_first = false, may_pass = false;
    size_t i;

    for (i = 0; i < p->n_rules; i++) {
        enum match m = match_rule(&p->rules[i], s);

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
    struct subject s = {.name = name, .port = port};

    return decide_or_warn(p, &s);
}

static const struct policy_verdict never = {
    .action = POLICY_DENY, .source = POLICY_BY_NEVER, .rule = -1, .name = "never"};

struct policy_verdict policy_address(const struct policy *p, const char *name,
                                     const struct policy_address *a, uint16_t port)
{
    struct subject s = {.name = name, .a = a, .port = port};

    if (policy_address_is_never(a))
        return never;
    s.is_public = policy_address_is_public(a);
    return decide_or_warn(p, &s);
}

struct policy_verdict policy_request(const struct policy *p, const char *host,
                                     const struct policy_address *a, uint16_t port,
                                     const char *method, const char *path)
{
    struct subject s = {.name = host, .a = a, .port = port, .method = method, .path = path};

    if (a && policy_address_is_never(a))
        return never;
    s.is_public = a && policy_address_is_public(a);
    s.is_ambiguous = pattern_path_is_ambiguous(path);
    return decide_or_warn(p, &s);
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
    return own;
}

size_t policy_matches(const struct policy *p, const char *name, const struct policy_address *a,
                      uint16_t port, const char *method, const char *path,
                      struct policy_verdict *out, size_t max)
{
    struct subject s = {.name = name, .a = a, .port = port, .method = method, .path = path};
    size_t n = 0;

    s.is_public = a && policy_address_is_public(a);
    s.is_ambiguous = path && pattern_path_is_ambiguous(path);
    if (a && policy_address_is_never(a)) {
        if (max > 0)
            out[0] = never;
        return 1;
    }
    for (size_t i = 0; i < p->n_rules; i++) {
        enum match m = match_rule(&p->rules[i], &s);

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

        if (r->n_domains > 0 && (r->action == POLICY_DENY || r->n_methods > 0 || r->n_paths > 0))
            return true;
    }
    return p->n_injections > 0;
}

bool policy_looks_at_names(const struct policy *p)
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

const struct policy_limits *policy_limits(const struct policy *p)
{
    return &p->limits;
}
