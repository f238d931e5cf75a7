#pragma once
/* What a sandbox's policy is at cay-egress. */

#include "base/err.h"

struct sandbox_obj;

/* For struct egress_uses. JSON, malloc'd. NULL: why; then nothing may be let out. */
char *egress_policy_body(struct sandbox_obj *o, struct err *e);
