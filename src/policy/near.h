#pragma once
/* The rule that almost allowed a request, for texts. Private to src/policy. */

#include "policy/internal.h"

/* For what no rule decides: "; rule 2 "web" has this host; not port 22, only 443". False and "":
 * none has it. */
bool near_miss(const struct policy *p, const struct subject *s, char *out, size_t size);
