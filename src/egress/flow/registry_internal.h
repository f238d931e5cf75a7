#pragma once
/* Shared by registry.c (sandboxes that are served, and their rules), registry_find.c (finding them,
 * and their use) and registry_end.c (those that end). */

#include "egress/flow/registry.h"

#include "base/share.h"

#include <stdint.h>
#include <uv.h>

#define REGISTRY_BUCKETS      4096u
#define REGISTRY_ENDING_LINES 64u /* tenants whose ends go round */

/* Sandboxes whose connections are being closed. */
struct ending_line {
    struct sandbox *first, *last;
};

struct registry {
    struct sandbox *slots[REGISTRY_SLOTS_MAX]; /* one generation of each at a time */
    uint32_t ended[REGISTRY_SLOTS_MAX];        /* the last generation that has ended; 0: none */
    struct flow *flows[REGISTRY_BUCKETS];
    struct policy_sweeps *sweeps;
    struct share_pool *shares; /* of flows, by tenant and sandbox */
    uint64_t last_flow, round;
    struct ending_line lines[REGISTRY_ENDING_LINES];
    unsigned line; /* that had the last slice */
    size_t n_ending;
    uv_prepare_t slice;
    uv_idle_t awake; /* while there are any: the loop does not sleep */
    unsigned handles;
};

/* -- registry_end.c ---------------------------------------------------------------------------- */

/* s is in no table any more, and has no listeners: closes what is open of it and its command
 * sandboxes, and frees them, in part now and in part later. */
void registry_end(struct sandbox *s);
void registry_free_rules(struct sandbox *s);

void registry_ends_init(struct registry *r, struct egress *eg);
void registry_end_all(struct registry *r);   /* now */
void registry_ends_free(struct registry *r); /* and r, when the loop has turned */

/* -- registry_find.c --------------------------------------------------------------------------- */

/* NULL: there is none of that number. */
struct sandbox *registry_command_sandbox(struct sandbox *s, uint32_t command);
