#pragma once
/* Finds the parts of a policy that can never have an effect: a credential for hosts that it is not
 * bound to, or that no rule lets out; an address that is never reached or that a ceiling does not
 * let out; a name that a ceiling does not have; rules behind one that denies everything. Each
 * sentence has the place, why, and what to do. Pure.
 *
 * It only warns: a binding or a ceiling may be changed after the policy. Findings are certain, but
 * not complete (paths are compared up to their first star, a deny rule is looked at only where it
 * denies everything, and there are POLICY_LINT_COMPARISONS at most, as it runs on the caller's
 * loop). A tenant reads it: of a limit of the operator's it says that it refuses, and not what else
 * is in it. */

#include "policy/policy.h"

#define POLICY_LINT_MAX  16u /* sentences; the last one then says that there are more */
#define POLICY_LINT_SIZE 512 /* of one, in bytes */
/* Of two entries, in one call: 4 ms with the longest (POLICY_TEXT_MAX). Policies of
 * POLICY_PATTERNS_MAX entries each would take 16 million. */
#define POLICY_LINT_COMPARISONS 65536u

struct policy_lint {
    const struct policy *own;
    const struct policy *all;    /* the operator's limit for all, [egress] ceiling; NULL: none */
    const struct policy *tenant; /* and for the tenant; NULL: none */
    const json_t *credentials;   /* [{"name", "bind"}] that it names */
};

/* Sentences, printable ASCII: a new array, empty where nothing was found. NULL: memory is out. */
json_t *policy_lint(const struct policy_lint *l);
