/* Near misses: of what nothing allows, the rule that would have but for one thing, so that its
 * owner sees what to change and an agent what it may do instead. */
#include "policy/near.h"
#include "policy/internal.h"

#include <stdio.h>
#include <string.h>

#define SHOWN      3 /* entries of a condition */
#define SHOWN_TEXT 40

/* Of each condition one bit; and two more. */
#define MISS(id)     (1u << (id))
#define MISS_PRIVATE MISS(CONDITION_COUNT)
#define MISS_ALL     MISS(CONDITION_COUNT + 1)

struct nearest {
    const struct rule *rule; /* or a preset */
    int number;              /* -1: a preset */
    unsigned misses;
};

/* How decide.c sees it: would it match but for these conditions? */
static unsigned misses_of(const struct rule *r, const struct subject *s)
{
    struct subject public = *s;
    unsigned misses = 0;

    public.is_public = true;
    if (r->action != POLICY_ALLOW || rule_matches_destination(r, &public) != MATCH_YES)
        return MISS_ALL;
    if (rule_matches_destination(r, s) != MATCH_YES)
        misses |= MISS_PRIVATE;
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (conditions[i].stage > CONDITION_ADDRESS && rule_matches_condition(r, i, s) == MATCH_NO)
            misses |= MISS(i);
    return misses;
}

static void consider(struct nearest *best, const struct rule *r, int number,
                     const struct subject *s)
{
    unsigned misses = misses_of(r, s);

    if (misses == 0 || misses & MISS_ALL ||
        (best->misses && __builtin_popcount(misses) >= __builtin_popcount(best->misses)))
        return;
    *best = (struct nearest){.rule = r, .number = number, .misses = misses};
}

static struct nearest find(const struct policy *p, const struct subject *s)
{
    struct nearest best = {.misses = 0};

    for (size_t i = 0; i < p->n_rules; i++)
        consider(&best, &p->rules[i], (int)i, s);
    for (size_t i = 0; i < p->n_presets; i++)
        consider(&best, p->presets[i], -1, s);
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

static void say_list(struct text *t, const struct condition *c, const struct list *l)
{
    char entry[CONDITION_TEXT_SIZE];

    for (size_t i = 0; i < l->n && i < SHOWN; i++) {
        c->print(&l->entries[i], entry, sizeof(entry));
        say(t, "%s%.*s", i ? ", " : "", SHOWN_TEXT, entry);
    }
    if (l->n > SHOWN)
        say(t, ", ...");
}

static void say_misses(struct text *t, const struct nearest *n, const struct subject *s)
{
    char address[INET6_ADDRSTRLEN], what[CONDITION_WHAT_SIZE];

    if (n->misses & MISS_PRIVATE) {
        policy_address_format(s->a, address);
        say(t, "; its address %s is private, which only a rule with addresses opens", address);
    }
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (n->misses & MISS(i)) {
            conditions[i].describe(s, what, sizeof(what));
            say(t, "; not %s, only ", what);
            say_list(t, &conditions[i], &n->rule->lists[i]);
        }
}

/* "this host", or "this address" */
static void say_destination(struct text *t, const struct rule *r, const struct subject *s)
{
    char what[CONDITION_WHAT_SIZE];

    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (conditions[i].stage == (s->name ? CONDITION_NAME : CONDITION_ADDRESS)) {
            conditions[i].describe(s, what, sizeof(what));
            say(t, " has %s", what);
            return;
        }
}

const char *near_label(int number, const char *name, char out[static NEAR_LABEL_SIZE])
{
    int n = snprintf(out, NEAR_LABEL_SIZE, "rule %d", number);

    if (strcmp(out, name) != 0)
        (void)snprintf(out + n, NEAR_LABEL_SIZE - (size_t)n, " \"%s\"", name);
    return out;
}

bool near_miss(const struct policy *p, const struct subject *s, char *out, size_t size)
{
    struct nearest n = find(p, s);
    struct text t = {.out = out, .size = size};
    char label[NEAR_LABEL_SIZE];

    out[0] = '\0';
    if (!n.misses)
        return false;
    if (n.number >= 0)
        say(&t, "; %s", near_label(n.number, n.rule->name, label));
    else
        say(&t, "; preset \"%s\"", n.rule->name);
    say_destination(&t, n.rule, s);
    say_misses(&t, &n, s);
    for (char *c = out; *c; c++) /* paths are their owner's, but agents read it */
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    return true;
}
