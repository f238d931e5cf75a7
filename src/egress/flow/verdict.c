/* The common verdict of a policy, a sandbox's above it and the ceilings on a target:
 * policy/stack.h, with this sandbox's policies and its owner's answers. */

#include "egress/flow/verdict.h"

#include "egress/credential/credential.h"
#include "egress/flow/answers.h"
#include "egress/flow/flow.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "policy/policy.h"
#include "policy/stack.h"

_Static_assert(EGRESS_CEILINGS_MAX <= POLICY_STACK_CEILINGS_MAX, "every ceiling has its say");

static const struct sandbox *whole_of(const struct sandbox *s)
{
    return s->parent ? s->parent : s;
}

static bool any_of(const struct sandbox *s, bool (*is)(const struct policy *p))
{
    const struct sandbox *outer = whole_of(s);

    if (is(s->policy) || is(outer->policy))
        return true;
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX && outer->ceilings[i]; i++)
        if (is(outer->ceilings[i]))
            return true;
    return false;
}

bool verdict_narrows_names(const struct sandbox *s)
{
    return any_of(s, policy_narrows_names);
}

bool verdict_depends_on_names(const struct sandbox *s)
{
    return any_of(s, policy_depends_on_names);
}

/* -- the stack --------------------------------------------------------------------------------- */

/* Of a command the sandbox's own word is asked about with answers that were given to the command,
 * too. */
static void answer(void *arg, bool of_outer, const struct policy_target *t,
                   struct policy_verdict *v)
{
    const struct verdict_question *subject = arg;
    const struct target target = {.name = t->name,
                                  .said = t->said,
                                  .address = t->address,
                                  .port = t->port,
                                  .granted = subject->granted};

    answers_apply(of_outer ? whole_of(subject->s) : subject->s, subject->s, &target, v);
}

struct policy_stack verdict_stack(struct verdict_question *subject)
{
    const struct sandbox *s = subject->s, *outer = whole_of(s);
    struct policy_stack stack = {.own = s->policy,
                                 .outer = s->parent ? outer->policy : NULL,
                                 .answer = answer,
                                 .arg = subject};

    for (size_t i = 0; i < EGRESS_CEILINGS_MAX; i++)
        stack.ceilings[i] = outer->ceilings[i];
    return stack;
}

static struct policy_target target_of(const struct target *t)
{
    return (struct policy_target){.name = t->name,
                                  .said = t->said,
                                  .address = t->address,
                                  .port = t->port,
                                  .via = t->via,
                                  .via_port = t->via_port,
                                  .via_name = t->via_name[0] ? t->via_name : NULL};
}

struct policy_verdict verdict_name(const struct sandbox *s, const struct target *t)
{
    struct verdict_question subject = {.s = s, .granted = t->granted};
    const struct policy_stack stack = verdict_stack(&subject);
    const struct policy_target target = target_of(t);

    return policy_stack_name(&stack, &target);
}

struct policy_verdict verdict_dial(const struct sandbox *s, const struct target *t)
{
    struct verdict_question subject = {.s = s, .granted = t->granted};
    const struct policy_stack stack = verdict_stack(&subject);
    const struct policy_target target = target_of(t);

    return policy_stack_dial(&stack, &target);
}

struct policy_verdict verdict_way(const struct sandbox *s, const struct target *t)
{
    struct verdict_question subject = {.s = s, .granted = t->granted};
    const struct policy_stack stack = verdict_stack(&subject);
    struct policy_target target = target_of(t);

    target.via_unresolved = true;
    return policy_stack_dial(&stack, &target);
}

struct policy_verdict verdict_request(const struct sandbox *s, const struct target *t,
                                      bool resolved, const char *method, const char *path)
{
    struct verdict_question subject = {.s = s, .granted = t->granted};
    const struct policy_stack stack = verdict_stack(&subject);
    const struct policy_target target = target_of(t);

    return policy_stack_request(&stack, &target, resolved, method, path);
}

uint64_t verdict_injects(const struct sandbox *s, const struct target *t, bool resolved,
                         const char *method, const char *path)
{
    struct verdict_question subject = {.s = s, .granted = t->granted};
    const struct policy_stack stack = verdict_stack(&subject);
    const struct policy_target target = target_of(t);
    const char *names[CREDENTIALS_MAX];
    size_t n = s->credentials ? s->credentials->count : 0;

    for (size_t i = 0; i < n; i++)
        names[i] = s->credentials->list[i].name;
    return n ? policy_stack_injects(&stack, &target, resolved, method, path, names, n) : 0;
}

const struct policy_reroute *verdict_reroute(const struct sandbox *s, const char *name)
{
    return name ? policy_reroute(whole_of(s)->policy, name) : NULL;
}

bool verdict_is_detour(const struct sandbox *s, const char *name)
{
    return whole_of(s)->upstream || verdict_reroute(s, name);
}

struct policy_verdict verdict_target(const struct sandbox *s, const struct target *t)
{
    if (t->name && !target_is_resolved(t) && !t->via_port)
        return verdict_name(s, t);
    return verdict_dial(s, t);
}

struct policy_verdict verdict_flow(const struct flow *f)
{
    const struct sandbox *s = f->sandbox;

    if (!f->target.name)
        return verdict_target(s, &f->target);
    return verdict_name(s, &f->target);
}
