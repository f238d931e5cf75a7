/* Finds the parts of a policy that can never have an effect: see lint.h. Conditions are compared
 * through their table (condition.h, overlaps), so that a new one is compared too. */
#include "policy/lint.h"

#include "policy/address.h"
#include "policy/internal.h"
#include "policy/preset.h"
#include "policy/stack.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct findings {
    const struct policy_lint *l;
    json_t *out;
    unsigned compared;
};

/* Paths and names in it are their owner's, but they are shown on terminals. */
PRINTF(2, 3) static void find(struct findings *f, const char *fmt, ...)
{
    char text[POLICY_LINT_SIZE];
    va_list ap;

    if (json_array_size(f->out) >= POLICY_LINT_MAX)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (json_array_size(f->out) == POLICY_LINT_MAX - 1)
        (void)snprintf(text, sizeof(text), "there is more; mend what stands above first");
    for (char *c = text; *c; c++)
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
    json_array_append_new(f->out, json_string(text));
}

static void print_entry(enum condition_id id, const struct list *l, size_t i, char *out,
                        size_t size)
{
    char text[CONDITION_TEXT_SIZE];

    conditions[id].print(&l->entries[i], text, sizeof(text));
    (void)snprintf(out, size, "%.64s%s", text, strlen(text) > 64 ? "..." : "");
}

/* -- what overlaps ----------------------------------------------------------------------------- */

/* Counts a comparison. Where there have been too many everything meets, so that nothing is found of
 * it. */
static bool is_spent(struct findings *f)
{
    return f->compared++ >= POLICY_LINT_COMPARISONS;
}

static bool entry_meets(struct findings *f, enum condition_id id, const union entry *e,
                        const struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (is_spent(f) || conditions[id].overlaps(e, &l->entries[i]))
            return true;
    return l->n == 0;
}

static bool lists_meet(struct findings *f, enum condition_id id, const struct list *a,
                       const struct list *b)
{
    for (size_t i = 0; i < a->n; i++)
        if (entry_meets(f, id, &a->entries[i], b))
            return true;
    return a->n == 0;
}

/* Could one request meet all conditions of both, but for their destinations? */
static bool rests_meet(struct findings *f, const struct rule *a, const struct rule *b)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (conditions[i].stage > CONDITION_ADDRESS &&
            !lists_meet(f, i, &a->lists[i], &b->lists[i]))
            return false;
    return true;
}

static bool rule_has_name(struct findings *f, const struct rule *r, const union entry *domain)
{
    const struct list *l = &r->lists[CONDITION_DOMAINS];

    return !rule_has_destination(r) || (l->n > 0 && entry_meets(f, CONDITION_DOMAINS, domain, l));
}

/* Could the policy let out a request of r to that name? Of what it denies is not asked. */
static bool lets_name_out(struct findings *f, const struct policy *p, const union entry *domain,
                          const struct rule *r)
{
    if (p->fallback != FALLBACK_DENY || p->warns || p->asks)
        return true;
    for (size_t i = 0; i < p->n_rules; i++)
        if (is_spent(f) ||
            (p->rules[i].action == POLICY_ALLOW && rule_has_name(f, &p->rules[i], domain) &&
             rests_meet(f, &p->rules[i], r)))
            return true;
    for (size_t i = 0; i < p->n_presets; i++)
        if (rule_has_name(f, p->presets[i], domain) && rests_meet(f, p->presets[i], r))
            return true;
    return false;
}

/* The same of a range that no public address is in: only a range of a rule opens such. */
static bool lets_private_out(struct findings *f, const struct policy *p, const union entry *range)
{
    if (p->fallback == FALLBACK_ALLOW || p->warns)
        return true;
    for (size_t i = 0; i < p->n_rules; i++) {
        const struct list *l = &p->rules[i].lists[CONDITION_ADDRESSES];

        if (is_spent(f) || (p->rules[i].action == POLICY_ALLOW && l->n > 0 &&
                            entry_meets(f, CONDITION_ADDRESSES, range, l)))
            return true;
    }
    return false;
}

/* -- credentials ------------------------------------------------------------------------------- */

static const json_t *binding_of(const struct findings *f, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach (f->l->credentials, i, item) {
        const char *one = json_string_value(json_object_get(item, "name"));

        if (one && strcmp(one, name) == 0)
            return json_object_get(item, "bind");
    }
    return NULL;
}

static void print_list(enum condition_id id, const struct list *l, char *out, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < l->n && i < 3 && used < size; i++) {
        char entry[72];

        print_entry(id, l, i, entry, sizeof(entry));
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", entry);
    }
    if (l->n > 3 && used < size)
        (void)snprintf(out + used, size - used, ", ...");
}

/* Compares a condition of the injection with the same one of the binding. Names are told one by
 * one, as each is a host whose requests are refused. */
static void compare(struct findings *f, size_t n, enum condition_id id, const struct rule *bound)
{
    const struct rule *r = &f->l->own->injections[n];
    const struct list *l = &r->lists[id], *allowed = &bound->lists[id];
    char entry[72], list[240] = "";

    print_list(id, allowed, list, sizeof(list));
    if (conditions[id].stage == CONDITION_NAME) {
        for (size_t i = 0; i < l->n; i++)
            if (!entry_meets(f, id, &l->entries[i], allowed)) {
                print_entry(id, l, i, entry, sizeof(entry));
                find(f,
                     "inject[%zu].domains[%zu]: the credential %s is bound to %s, so that requests "
                     "to %s are refused; leave the name out, or set the credential with it (`cay "
                     "secret set %s --domain=%s`)",
                     n, i, r->credential, list, entry, r->credential, entry);
            }
        return;
    }
    if (!lists_meet(f, id, l, allowed))
        find(f,
             "inject[%zu].%s: the credential %s is bound to other %s (%s), so that these requests "
             "are refused; write what it is bound to, or set the credential anew",
             n, conditions[id].key, r->credential, conditions[id].key, list);
}

static void check_binding(struct findings *f, size_t n)
{
    const json_t *bind = binding_of(f, f->l->own->injections[n].credential);
    struct policy *bound = NULL;
    struct err e;

    if (!bind || policy_binding_new(bind, json_is_true(json_object_get(bind, "any_domain")), &bound,
                                    &e) != ERR_OK)
        return;
    for (size_t id = 0; id < CONDITION_COUNT; id++)
        if (conditions[id].in_injections)
            compare(f, n, id, &bound->rules[0]);
    policy_free(bound);
}

static void check_injection(struct findings *f, size_t n)
{
    const struct rule *r = &f->l->own->injections[n];
    const struct list *l = &r->lists[CONDITION_DOMAINS];
    char entry[72];

    check_binding(f, n);
    for (size_t i = 0; i < l->n; i++)
        if (!lets_name_out(f, f->l->own, &l->entries[i], r)) {
            print_entry(CONDITION_DOMAINS, l, i, entry, sizeof(entry));
            find(f,
                 "inject[%zu].domains[%zu]: no rule allows these requests to %s, so that the "
                 "credential %s is never sent there: \"inject\" allows nothing by itself; add a "
                 "rule {\"action\": \"allow\", \"domains\": [\"%s\"]}",
                 n, i, entry, r->credential, entry);
        }
}

/* -- what is above ----------------------------------------------------------------------------- */

static void find_never(struct findings *f, const char *json_path, const char *range)
{
    find(f,
         "%s: %s is never reached, whatever a policy says (loopback, link-local, multicast, "
         "metadata); leave it out",
         json_path, range);
}

/* Wholly within what no policy opens, or what is not public: of the rest nothing is certain. */
static void check_range(struct findings *f, const char *json_path, const union entry *range)
{
    char text[72];

    conditions[CONDITION_ADDRESSES].print(range, text, sizeof(text));
    if (address_range_is_never(&range->range))
        find_never(f, json_path, text);
    else if (!address_range_is_private(&range->range))
        return;
    else if (f->l->all && !lets_private_out(f, f->l->all, range))
        find(f,
             "%s: %s is private, and the operator's ceiling \"%s\" lets no private address out: "
             "the operator has to set `ceiling = allow` of [egress] (`cay up "
             "--egress-ceiling=allow`)",
             json_path, text, preset_fallback_name(f->l->all->fallback));
    else if (f->l->tenant && !lets_private_out(f, f->l->tenant, range))
        find(f,
             "%s: %s is private, and the tenant's ceiling has no rule with it: the operator has "
             "to add one (`cay tenant ceiling`)",
             json_path, text);
}

static void check_name(struct findings *f, const char *json_path, const struct rule *r, size_t i)
{
    const struct list *l = &r->lists[CONDITION_DOMAINS];
    const struct policy_lint *p = f->l;
    const bool by_all = p->all && !lets_name_out(f, p->all, &l->entries[i], r);
    char text[72];

    if (!by_all && (!p->tenant || lets_name_out(f, p->tenant, &l->entries[i], r)))
        return;
    print_entry(CONDITION_DOMAINS, l, i, text, sizeof(text));
    if (by_all)
        find(f,
             "%s: the operator's ceiling \"%s\" lets nothing out to %s: the operator has to set "
             "another (`ceiling` of [egress])",
             json_path, preset_fallback_name(p->all->fallback), text);
    else
        find(f,
             "%s: the tenant's ceiling allows no such request to %s: the operator has to add it "
             "(`cay tenant ceiling`)",
             json_path, text);
}

static void check_rule(struct findings *f, size_t n)
{
    const struct rule *r = &f->l->own->rules[n];
    char json_path[64];

    if (r->action != POLICY_ALLOW)
        return;
    for (size_t i = 0; i < r->lists[CONDITION_DOMAINS].n; i++) {
        (void)snprintf(json_path, sizeof(json_path), "rules[%zu].domains[%zu]", n, i);
        check_name(f, json_path, r, i);
    }
    for (size_t i = 0; i < r->lists[CONDITION_ADDRESSES].n; i++) {
        (void)snprintf(json_path, sizeof(json_path), "rules[%zu].addresses[%zu]", n, i);
        check_range(f, json_path, &r->lists[CONDITION_ADDRESSES].entries[i]);
    }
}

static void check_reroute(struct findings *f, size_t n)
{
    const struct policy_reroute *way = &f->l->own->reroutes[n];
    const union entry to = {.range = {.in6 = way->to.in6, .bits = 128}};
    char json_path[48];

    (void)snprintf(json_path, sizeof(json_path), "reroute[%zu].to", n);
    if (!way->to_name)
        check_range(f, json_path, &to);
}

/* -- the order --------------------------------------------------------------------------------- */

static bool has_condition(const struct rule *r)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (r->lists[i].n > 0)
            return true;
    return false;
}

static void check_order(struct findings *f)
{
    const struct policy *p = f->l->own;

    for (size_t i = 0; i + 1 < p->n_rules; i++)
        if (p->rules[i].action == POLICY_DENY && !has_condition(&p->rules[i])) {
            find(f,
                 "rules[%zu]: rules[%zu] before it denies everything, so that it is never asked; "
                 "put it before that one",
                 i + 1, i);
            return;
        }
}

json_t *policy_lint(const struct policy_lint *l)
{
    struct findings f = {.l = l, .out = json_array()};

    if (!f.out)
        return NULL;
    check_order(&f);
    for (size_t i = 0; i < l->own->n_rules; i++)
        check_rule(&f, i);
    for (size_t i = 0; i < l->own->n_injections; i++)
        check_injection(&f, i);
    for (size_t i = 0; i < l->own->n_reroutes; i++)
        check_reroute(&f, i);
    return f.out;
}
