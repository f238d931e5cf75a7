#pragma once
/* The form of a sandbox's policy that cay-egress is sent. */

#include "base/err.h"

struct sandbox_obj;

/* For struct egress_uses. JSON, malloc'd. NULL: why; then nothing may be let out. */
char *egress_policy_body(struct sandbox_obj *o, struct err *e);
