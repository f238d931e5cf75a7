#pragma once
/* Whether a policy may be used, and what of it can never have an effect: for an answer to its
 * owner. */

#include "core/core.h"

/* *out: a new array of sentences (policy/lint.h), empty where nothing was found, with the ceilings
 * above the tenant's sandboxes and the bindings of its credentials and of own (a sandbox's; may be
 * NULL) as they are now. ERR_INVALID: it may not be used, with the place of the mistake. */
enum err_code core_policy_check(struct core *c, const char *tenant, const json_t *policy,
                                const json_t *own, json_t **out, struct err *e);
