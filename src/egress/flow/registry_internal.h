#pragma once
/* Shared by registry.c (sandboxes that are served, and their rules) and registry_find.c (finding
 * them, and their use). */

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
