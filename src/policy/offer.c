/* The destinations that a policy allows, in words. */
#include "policy/internal.h"

#include <stdio.h>
#include <string.h>

struct offer {
    char text[POLICY_OFFER_SIZE];
    size_t used;
};

PRINTF(2, 3) static void add(struct offer *o, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(o->text + o->used, sizeof(o->text) - o->used, fmt, ap);
    va_end(ap);
    if (n > 0)
        o->used = MIN(o->used + (size_t)n, sizeof(o->text) - 1);
}

/* "; ports 443, 8000-8100", of each condition that the rule has besides its destinations. */
static void add_conditions(struct offer *o, const struct rule *r)
{
    char entry[CONDITION_TEXT_SIZE];

    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct list *l = &r->lists[i];

        if (conditions[i].stage <= CONDITION_ADDRESS || l->n == 0)
            continue;
        add(o, "; %s ", conditions[i].key);
        for (size_t k = 0; k < l->n && o->used < sizeof(o->text) - 1; k++) {
            conditions[i].print(&l->entries[k], entry, sizeof(entry));
            add(o, "%s%s", k > 0 ? ", " : "", entry);
        }
    }
    for (char *c = o->text; *c; c++) /* paths are their owner's, but agents read it */
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
}

static bool offer_rule(const struct rule *r, bool (*line)(void *arg, const char *text), void *arg)
{
    struct offer any = {.used = 0};

    for (size_t i = 0; i < CONDITION_COUNT; i++)
        for (size_t k = 0; conditions[i].stage <= CONDITION_ADDRESS && k < r->lists[i].n; k++) {
            struct offer o = {.used = 0};

            conditions[i].print(&r->lists[i].entries[k], o.text, sizeof(o.text));
            o.used = strlen(o.text);
            add_conditions(&o, r);
            if (!line(arg, o.text))
                return false;
        }
    if (rule_has_destination(r))
        return true;
    add(&any, "every public destination");
    add_conditions(&any, r);
    return line(arg, any.text);
}

void policy_offers(const struct policy *p, bool (*line)(void *arg, const char *text), void *arg)
{
    bool more = true;

    for (size_t i = 0; more && i < p->n_rules; i++)
        if (p->rules[i].action == POLICY_ALLOW)
            more = offer_rule(&p->rules[i], line, arg);
    for (size_t i = 0; more && i < p->n_presets; i++)
        more = line(arg, p->presets[i]->name);
    if (more && p->fallback != FALLBACK_DENY)
        line(arg, p->fallback == FALLBACK_PUBLIC ? "every public address" : "everything else");
}
