#pragma once
/* The rule that almost allowed a request, for texts. Private to src/policy. */

#include "policy/internal.h"

/* For what no rule decides: "; rule 2 "web" has this host; not port 22, only 443". False and "":
 * none has it. */
bool near_miss(const struct policy *p, const struct subject *s, char *out, size_t size);

/* A rule as texts name it: `rule 2 "web"`, or `rule 2` where it has no name but that. Returns
 * out. */
#define NEAR_LABEL_SIZE (POLICY_RULE_NAME_MAX + 32)
const char *near_label(int number, const char *name, char out[static NEAR_LABEL_SIZE]);
