#pragma once
/* What registry.c (who is served, by which rules) and registry_find.c (who is who, and what they
 * have used) share. */

#include "egress/flow/registry.h"

#include "base/share.h"

#include <stdint.h>

#define REGISTRY_BUCKETS 4096u

struct registry {
    struct sandbox *slots[REGISTRY_SLOTS_MAX]; /* one generation of each at a time */
    struct flow *flows[REGISTRY_BUCKETS];
    struct policy_sweeps *sweeps;
    struct share_pool *shares; /* of flows, by tenant and sandbox */
    uint64_t last_flow, round;
};

/* NULL: there is none of that number. */
struct sandbox *registry_command_sandbox(struct sandbox *s, uint32_t command);
