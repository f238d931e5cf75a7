#pragma once
/* The verdict of the policies above a target: the sandbox's own, for a command sandbox its
 * sandbox's, and the ceilings. The narrowest counts. */

#include "egress/flow/target.h"
#include "policy/stack.h"

#include <stdbool.h>

struct flow;
struct sandbox;

/* The verdict of sandbox and ceilings on its target, before anything is resolved. With a bare
 * address it is policy_address's. */
struct policy_verdict verdict_flow(const struct flow *f);

/* The same of any target, after it was resolved (address is then what will be dialled). Where an
 * upstream proxy resolves names, there is no address, and the name alone is asked about. */
struct policy_verdict verdict_target(const struct sandbox *s, const struct target *t);

/* Does a policy, a sandbox's above it or a ceiling say less about some name than about all else?
 * Then a connection by address is evaluated only once the name that is said there is known. */
bool verdict_narrows_names(const struct sandbox *s);

/* Or does one let out only what it names? */
bool verdict_depends_on_names(const struct sandbox *s);

/* The narrowest word of all that have one about s: its own policy, for a command sandbox its
 * sandbox's, the ceilings. A command sandbox's credential is one that both name. As
 * policy/stack.h, with the owner's answers. verdict_dial: about the very address that is to be
 * dialled, also when it is `::`, which is the host itself to connect(2), and to verdict_target a
 * name that is not resolved yet. */
struct policy_verdict verdict_name(const struct sandbox *s, const struct target *t);
struct policy_verdict verdict_dial(const struct sandbox *s, const struct target *t);
/* Before t->via_name is resolved: may it be? */
struct policy_verdict verdict_way(const struct sandbox *s, const struct target *t);
struct policy_verdict verdict_request(const struct sandbox *s, const struct target *t,
                                      bool resolved, const char *method, const char *path);

/* Which of s->credentials is named for that request: bit i, the i-th (policy_stack_injects). */
uint64_t verdict_injects(const struct sandbox *s, const struct target *t, bool resolved,
                         const char *method, const char *path);

/* The parts of these questions, for another target. asked and its sandbox outlive the stack. */
struct verdict_question {
    const struct sandbox *s;
    enum target_granted granted;
};
struct policy_stack verdict_stack(struct verdict_question *subject);

/* The way of that name in s, whose commands go it too; NULL: none. */
const struct policy_reroute *verdict_reroute(const struct sandbox *s, const char *name);

/* Goes what is sent to that name where the sandbox's own settings say (a reroute, a proxy of its
 * own)? */
bool verdict_is_detour(const struct sandbox *s, const char *name);
