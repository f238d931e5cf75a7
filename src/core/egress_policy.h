#pragma once
/* What a sandbox's policy is at cay-egress. */

#include "core/internal.h"

/* For struct egress_uses. JSON, malloc'd. NULL: why; then nothing may be let out. */
char *egress_policy_body(struct sandbox_obj *o, struct err *e);
