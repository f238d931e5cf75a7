#pragma once
/* The authority of a CONNECT, of a Host, of a proxy's address. Pure. */

#include "policy/policy.h"

/* host:port both given: name (normalized) or "" with *address. 0 or -EINVAL. */
int authority_parse(const char *text, char name[static POLICY_NAME_MAX + 1],
                    struct policy_address *address, uint16_t *port);
