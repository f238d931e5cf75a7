/* A rule against what is asked: see condition.h. */
#include "policy/condition.h"
#include "policy/pattern.h"

#include <stdlib.h>

struct subject subject_of(const char *name, const struct policy_address *a, uint16_t port,
                          const char *method, const char *path)
{
    return (struct subject){.name = name,
                            .a = a,
                            .port = port,
                            .method = method,
                            .path = path,
                            .is_public = a && policy_address_is_public(a),
                            .is_ambiguous = path && pattern_path_is_ambiguous(path)};
}

bool rule_has_stage(const struct rule *r, enum condition_stage stage)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (conditions[i].stage == stage && r->lists[i].n > 0)
            return true;
    return false;
}

bool rule_has_destination(const struct rule *r)
{
    return rule_has_stage(r, CONDITION_NAME) || rule_has_stage(r, CONDITION_ADDRESS);
}

static bool any_entry(const struct rule *r, enum condition_id id, const struct subject *s)
{
    const struct list *l = &r->lists[id];

    for (size_t i = 0; i < l->n; i++)
        if (conditions[id].matches(&l->entries[i], s, r->action == POLICY_DENY))
            return true;
    return false;
}

static bool any_of_stage(const struct rule *r, enum condition_stage stage, const struct subject *s)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (conditions[i].stage == stage && any_entry(r, i, s))
            return true;
    return false;
}

enum match rule_matches_condition(const struct rule *r, enum condition_id id,
                                  const struct subject *s)
{
    if (r->lists[id].n == 0)
        return MATCH_YES;
    if (conditions[id].stage == CONDITION_REQUEST && !s->method)
        return MATCH_REQUEST;
    return any_entry(r, id, s) ? MATCH_YES : MATCH_NO;
}

/* Only a range opens what is not public: the owner of an allowed name could otherwise point it into
 * the operator's network (test: test_policy.c, test_name_into_private_network). */
enum match rule_matches_destination(const struct rule *r, const struct subject *s)
{
    if (s->a && any_of_stage(r, CONDITION_ADDRESS, s))
        return MATCH_YES;
    if ((s->name && any_of_stage(r, CONDITION_NAME, s)) || !rule_has_destination(r))
        return r->action == POLICY_ALLOW && s->a && !s->is_public ? MATCH_NO : MATCH_YES;
    /* A name is not resolved because what it resolves to might be allowed: the question alone would
     * carry out whatever the name says (test: test_policy.c, test_addresses_open_no_names). */
    return rule_has_stage(r, CONDITION_ADDRESS) && !s->a && r->action == POLICY_DENY ? MATCH_ADDRESS
                                                                                     : MATCH_NO;
}

enum match rule_matches_rest(const struct rule *r, const struct subject *s)
{
    enum match all = MATCH_YES;

    for (size_t i = 0; i < CONDITION_COUNT; i++)
        if (conditions[i].stage > CONDITION_ADDRESS) {
            enum match m = rule_matches_condition(r, i, s);

            if (m == MATCH_NO)
                return m;
            all = MIN(all, m);
        }
    return all;
}

enum match rule_matches(const struct rule *r, const struct subject *s)
{
    enum match m = rule_matches_destination(r, s), rest;

    if (m == MATCH_NO)
        return m;
    rest = rule_matches_rest(r, s);
    return rest == MATCH_YES ? m : rest;
}

void rule_clear(struct rule *r)
{
    free(r->name);
    free(r->credential);
    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        for (size_t k = 0; k < r->lists[i].n; k++)
            conditions[i].clear(&r->lists[i].entries[k]);
        free(r->lists[i].entries);
    }
}
