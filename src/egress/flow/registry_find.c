/* Sandboxes and flows by their numbers, which is all that others keep of them across turns of the
 * loop, and what each has used: places among all connections, bytes. Below every file that works on
 * flows; registry.c makes and ends sandboxes. */

#include "egress/flow/registry_internal.h"

#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/sandbox.h"
#include "policy/policy.h"

#include <inttypes.h>
#include <stdio.h>

/* -- sandboxes --------------------------------------------------------------------------------- */

struct sandbox *registry_command_sandbox(struct sandbox *s, uint32_t command)
{
    struct sandbox *r = s->command_sandboxes;

    while (r && r->command != command)
        r = r->next_command_sandbox;
    return r;
}

struct sandbox *registry_find(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command)
{
    struct sandbox *s = slot < REGISTRY_SLOTS_MAX ? eg->registry->slots[slot] : NULL;

    if (!s || s->gen != gen)
        return NULL;
    return command ? registry_command_sandbox(s, command) : s;
}

struct sandbox *registry_next(struct egress *eg, uint32_t *slot)
{
    while (*slot < REGISTRY_SLOTS_MAX) {
        struct sandbox *s = eg->registry->slots[(*slot)++];

        if (s)
            return s;
    }
    return NULL;
}

uint64_t registry_rules_serial(const struct sandbox *s)
{
    const struct sandbox *whole = s->parent ? s->parent : s;

    return s->over || whole->over ? UINT64_MAX : whole->rules_serial;
}

/* -- what they have used ----------------------------------------------------------------------- */

static void add_flows(const struct sandbox *s, uint64_t *up, uint64_t *down)
{
    for (const struct flow *f = s->flows; f; f = f->next) {
        *up += f->up_bytes;
        *down += f->down_bytes;
    }
}

void registry_usage(const struct sandbox *s, uint64_t *up, uint64_t *down)
{
    *up = s->up_bytes;
    *down = s->down_bytes;
    add_flows(s, up, down);
    for (const struct sandbox *r = s->command_sandboxes; r; r = r->next_command_sandbox)
        add_flows(r, up, down);
}

static uint64_t bytes_limit(const struct sandbox *s)
{
    return s->has_policy ? policy_limits(s->policy)->bytes : 0;
}

/* FNV-1a of the tenant's name above, the slot below: turns.h. Slots that follow each other have
 * different shares there, which addresses of memory need not. */
uint64_t registry_owner(const struct sandbox *s)
{
    const struct sandbox *whole = s->parent ? s->parent : s;
    uint32_t tenant = 2166136261u;

    for (const char *p = whole->tenant; *p; p++)
        tenant = (tenant ^ (unsigned char)*p) * 16777619u;
    return (uint64_t)tenant << 32 | whole->slot;
}

bool registry_counts_bytes(const struct sandbox *s)
{
    return bytes_limit(s) > 0 || (s->parent && bytes_limit(s->parent) > 0);
}

bool registry_over_bytes(const struct sandbox *s)
{
    uint64_t max = bytes_limit(s), up, down;

    if (s->parent && registry_over_bytes(s->parent))
        return true;
    if (max == 0)
        return false;
    registry_usage(s, &up, &down);
    return up + down >= max;
}

uint64_t registry_bytes_left(const struct sandbox *s)
{
    uint64_t max = bytes_limit(s), up, down, left = UINT64_MAX;

    if (max > 0) {
        registry_usage(s, &up, &down);
        left = up + down < max ? max - up - down : 0;
    }
    return s->parent ? MIN(left, registry_bytes_left(s->parent)) : left;
}

/* -- flows ------------------------------------------------------------------------------------- */

static void owner_name(const struct sandbox *s, char out[static 16])
{
    (void)snprintf(out, 16, "%" PRIu32, s->slot); /* its command sandboxes' are its own */
}

bool registry_has_space(const struct sandbox *s)
{
    char owner[16];

    owner_name(s, owner);
    return share_may_take(s->egress->registry->shares, s->tenant, owner);
}

bool registry_is_crowded(const struct egress *eg)
{
    return share_used(eg->registry->shares) > eg->config.flows_max / 2;
}

void registry_add_flow(struct flow *f)
{
    struct registry *r = f->egress->registry;
    struct sandbox *s = f->sandbox;
    struct flow **bucket;
    char owner[16];

    owner_name(s, owner);
    f->share = share_take(r->shares, s->tenant, owner);

    f->id = ++r->last_flow;
    bucket = &r->flows[f->id % REGISTRY_BUCKETS];
    f->hash_next = *bucket;
    *bucket = f;
    f->next = s->flows;
    if (s->flows)
        s->flows->prev = f;
    s->flows = f;
    for (; s; s = s->parent)
        s->flow_count++;
}

void registry_remove_flow(struct flow *f)
{
    struct registry *r = f->egress->registry;
    struct sandbox *s = f->sandbox;
    struct flow **p = &r->flows[f->id % REGISTRY_BUCKETS];

    while (*p != f)
        p = &(*p)->hash_next;
    *p = f->hash_next;
    if (s->unsettled == f)
        s->unsettled = f->next;
    *(f->prev ? &f->prev->next : &s->flows) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    share_return(f->share);
    for (; s; s = s->parent) {
        s->flow_count--;
        s->up_bytes += f->up_bytes;
        s->down_bytes += f->down_bytes;
    }
}

struct flow *flow_find(struct egress *eg, uint64_t id)
{
    struct flow *f = eg->registry->flows[id % REGISTRY_BUCKETS];

    while (f && f->id != id)
        f = f->hash_next;
    return f;
}
