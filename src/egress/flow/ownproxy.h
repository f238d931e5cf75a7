#pragma once
/* A sandbox's own upstream proxy (`egressProxy`) is a way out that its owner names: the sandbox's
 * policy has no say about it, but every ceiling has, about its address and port, whatever goes
 * through it. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct egress;
struct sandbox;
struct upstream;

/* Do the ceilings of s let it? *why is filled where they do not. */
bool ownproxy_may(const struct sandbox *s, const struct upstream *own, struct err *why);

/* May the flow's connection go through it? Recorded in the audit log with the proxy's address; *why
 * is filled where it may not (test: test_egress_engine.py,
 * test_a_proxy_of_its_own_is_under_the_ceilings). */
bool ownproxy_allowed(struct egress *eg, const struct sandbox *s, const struct upstream *own,
                      uint64_t flow_id, struct err *why);
