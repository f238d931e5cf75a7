/* Near misses: of what nothing allows, the rule that would have but for one thing, so that its owner sees what to
 * change and an agent what it may do instead. */
#include "policy/internal.h"

#include <stdio.h>
#include <string.h>

#define SHOWN      3 /* ports, methods or paths */
#define SHOWN_TEXT 40

enum miss { MISS_PORT = 1, MISS_PRIVATE = 2, MISS_METHOD = 4, MISS_PATH = 8, MISS_ALL = 16 };

/* What is like a rule in a rule or a preset. */
struct offer {
    const struct ports *ports;
    size_t n_ports;
    const struct rule *rule; /* NULL: a preset's */
    const char *name;
    int number;
};

struct nearest {
    struct offer offer;
    unsigned misses;
};

static bool has_port(const struct ports *ports, size_t n, uint16_t port)
{
    for (size_t i = 0; i < n; i++)
        if (port >= ports[i].first && port <= ports[i].last)
            return true;
    return n == 0;
}

static bool has_name(const struct rule *r, const char *name)
{
    for (size_t i = 0; name && i < r->n_domains; i++)
        if (pattern_domain(r->domains[i], name))
            return true;
    return false;
}

static bool has_address(const struct rule *r, const struct policy_address *a)
{
    for (size_t i = 0; a && i < r->n_ranges; i++)
        if (address_in(&r->ranges[i], a))
            return true;
    return false;
}

static bool has_method(const struct rule *r, const char *method)
{
    for (size_t i = 0; i < r->n_methods; i++)
        if (strcmp(r->methods[i], method) == 0)
            return true;
    return r->n_methods == 0;
}

static bool has_path(const struct rule *r, const char *path)
{
    if (r->n_paths > 0 && pattern_path_is_ambiguous(path))
        return false;
    for (size_t i = 0; i < r->n_paths; i++)
        if (pattern_path(r->paths[i], path))
            return true;
    return r->n_paths == 0;
}

static unsigned misses_of(const struct rule *r, const struct near_question *q)
{
    bool by_address = has_address(r, q->a),
         named = has_name(r, q->name) || (r->n_domains == 0 && r->n_ranges == 0);
    unsigned misses = 0;

    if (r->action != POLICY_ALLOW || (!by_address && !named))
        return MISS_ALL;
    if (!has_port(r->ports, r->n_ports, q->port))
        misses |= MISS_PORT;
    if (!by_address && q->a && !policy_address_is_public(q->a))
        misses |= MISS_PRIVATE;
    if (q->method && !has_method(r, q->method))
        misses |= MISS_METHOD;
    if (q->path && !has_path(r, q->path))
        misses |= MISS_PATH;
    return misses;
}

static unsigned misses_of_preset(const struct preset *p, const struct near_question *q)
{
    for (const char *const *d = p->domains; q->name && *d; d++)
        if (pattern_domain(*d, q->name))
            return (has_port(p->ports, p->n_ports, q->port) ? 0u : MISS_PORT) |
                   (q->a && !policy_address_is_public(q->a) ? MISS_PRIVATE : 0u);
    return MISS_ALL;
}

static void consider(struct nearest *best, const struct offer *o, unsigned misses)
{
    if (misses == 0 || misses & MISS_ALL ||
        (best->misses && __builtin_popcount(misses) >= __builtin_popcount(best->misses)))
        return;
    *best = (struct nearest){.offer = *o, .misses = misses};
}

static struct nearest find(const struct policy *p, const struct near_question *q)
{
    struct nearest best = {.misses = 0};

    for (size_t i = 0; i < p->n_rules; i++) {
        const struct rule *r = &p->rules[i];

        consider(&best, &(struct offer){r->ports, r->n_ports, r, r->name, (int)i}, misses_of(r, q));
    }
    for (size_t i = 0; i < p->n_presets; i++) {
        const struct preset *s = p->presets[i];

        consider(&best, &(struct offer){s->ports, s->n_ports, NULL, s->name, -1},
                 misses_of_preset(s, q));
    }
    return best;
}

/* -- said -------------------------------------------------------------------------------------- */

struct text {
    char *out;
    size_t size, used;
};

PRINTF(2, 3) static void say(struct text *t, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(t->out + t->used, t->size - t->used, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->used = MIN(t->used + (size_t)n, t->size - 1);
}

static void say_ports(struct text *t, const struct offer *o)
{
    for (size_t i = 0; i < o->n_ports && i < SHOWN; i++) {
        const struct ports *p = &o->ports[i];

        say(t, p->first == p->last ? "%s%u" : "%s%u-%u", i ? ", " : "", p->first, p->last);
    }
    if (o->n_ports > SHOWN)
        say(t, ", ...");
}

static void say_list(struct text *t, char *const *list, size_t n)
{
    for (size_t i = 0; i < n && i < SHOWN; i++)
        say(t, "%s%.*s", i ? ", " : "", SHOWN_TEXT, list[i]);
    if (n > SHOWN)
        say(t, ", ...");
}

static void say_misses(struct text *t, const struct nearest *n, const struct near_question *q)
{
    char address[INET6_ADDRSTRLEN];

    if (n->misses & MISS_PRIVATE) {
        policy_address_format(q->a, address);
        say(t, "; its address %s is private, which only a rule with addresses opens", address);
    }
    if (n->misses & MISS_PORT) {
        say(t, "; not port %u, only ", q->port);
        say_ports(t, &n->offer);
    }
    if (n->misses & MISS_METHOD) {
        say(t, "; not this method, only ");
        say_list(t, n->offer.rule->methods, n->offer.rule->n_methods);
    }
    if (n->misses & MISS_PATH) {
        say(t, "; not this path, only ");
        say_list(t, n->offer.rule->paths, n->offer.rule->n_paths);
    }
}

bool near_miss(const struct policy *p, const struct near_question *q, char *out, size_t size)
{
    struct nearest n = find(p, q);
    struct text t = {.out = out, .size = size};

    out[0] = '\0';
    if (!n.misses)
        return false;
    if (n.offer.rule)
        say(&t, "; rule %d \"%s\" has this host", n.offer.number, n.offer.name);
    else
        say(&t, "; preset \"%s\" has this host", n.offer.name);
    say_misses(&t, &n, q);
    for (char *c = out; *c; c++) /* paths are their owner's, but agents read it */
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    return true;
}
