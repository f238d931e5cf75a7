#include "egress/flow/answers.h"

#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct answer {
    char name[POLICY_NAME_MAX + 1]; /* "": of the address */
    struct policy_address address;
    uint16_t port;
    bool yes;
};

struct answers {
    size_t count;
    struct answer list[ASKS_ANSWERS_MAX];
};

/* Otherwise the owner of a name could point it into the operator's network, as with rules of
 * names. */
static bool is_open_to_names(const struct target *t)
{
    return !target_is_resolved(t) || policy_address_is_public(&t->address);
}

static bool is_about(const struct answer *a, const struct target *t)
{
    if (a->port != t->port)
        return false;
    if (a->name[0])
        return t->name && strcmp(a->name, t->name) == 0 && (!a->yes || is_open_to_names(t));
    return target_is_resolved(t) && memcmp(&a->address, &t->address, sizeof(a->address)) == 0;
}

static const struct answer *find(const struct sandbox *s, const struct target *t)
{
    for (size_t i = 0; s->answers && i < s->answers->count; i++)
        if (is_about(&s->answers->list[i], t))
            return &s->answers->list[i];
    return NULL;
}

static bool is_granted(const struct target *t)
{
    return t->granted == TARGET_BY_ADDRESS || (t->granted == TARGET_BY_NAME && is_open_to_names(t));
}

void answers_apply(const struct sandbox *whose, const struct sandbox *s, const struct target *t,
                   struct policy_verdict *v)
{
    const struct answer *a;

    if (v->action != POLICY_DENY || !v->asks)
        return;
    a = find(s, t);
    if (!a && whose != s)
        a = find(whose, t);
    if (!a && !is_granted(t))
        return;
    v->asks = false;
    v->action = a && !a->yes ? POLICY_DENY : v->inspects ? POLICY_INSPECT : POLICY_ALLOW;
    v->source = POLICY_BY_OWNER;
    v->name = "owner";
}

int answers_keep(struct sandbox *s, const struct target *t, bool yes)
{
    struct answer *a = NULL;

    if (!s->answers)
        s->answers = calloc(1, sizeof(*s->answers));
    if (!s->answers)
        return -ENOMEM;
    if (s->answers->count == ASKS_ANSWERS_MAX)
        return -ENOSPC;
    a = &s->answers->list[s->answers->count++];
    *a = (struct answer){.port = t->port, .yes = yes};
    if (t->name)
        snprintf(a->name, sizeof(a->name), "%s", t->name);
    else
        a->address = t->address;
    return 0;
}
