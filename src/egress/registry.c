#include "egress/registry.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/accept.h"
#include "egress/names.h"
#include "egress/upstream.h"

#include <errno.h>
#include <string.h>

#define BUCKETS 4096u

struct registry {
    struct sandbox *slots[REGISTRY_SLOTS_MAX]; /* one generation of each at a time */
    struct flow *flows[BUCKETS];
    size_t flow_count;
    uint64_t last_flow, round;
};

/* -- sandboxes --------------------------------------------------------------------------------- */

static void free_rules(struct sandbox *s)
{
    policy_free(s->policy);
    policy_free(s->ceiling);
    upstream_free(s->upstream);
    if (s->credentials)
        s->egress->hooks.credentials_free(s->credentials);
    free(s->allows);
    s->allows = NULL;
    s->policy = s->ceiling = NULL;
    s->upstream = NULL;
    s->credentials = NULL;
}

static void close_sockets(struct sandbox *s)
{
    accept_stop(s);
    util_close(&s->tcp_fd);
    util_close(&s->udp_fd);
}

static void end_sandbox(struct sandbox *s)
{
    s->egress->registry->slots[s->slot] = NULL;
    close_sockets(s);
    while (s->flows)
        flow_end(s->flows);
    free_rules(s);
    names_free(s->names);
    free(s->denials);
    free(s);
}

struct sandbox *registry_find(struct egress *eg, uint32_t slot, uint32_t gen)
{
    struct sandbox *s = slot < REGISTRY_SLOTS_MAX ? eg->registry->slots[slot] : NULL;

    return s && s->gen == gen ? s : NULL;
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

static struct sandbox *new_sandbox(struct egress *eg, uint32_t slot, uint32_t gen)
{
    struct sandbox *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->names = names_new();
    if (!s->names) {
        free(s);
        return NULL;
    }
    s->egress = eg;
    s->slot = slot;
    s->gen = gen;
    s->tcp_fd = s->udp_fd = -1;
    eg->registry->slots[slot] = s;
    return s;
}

/* Generations rise; the difference tells which is later, also past the wrap. */
static bool is_later(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* The sandbox of that generation, made when it is new; an older one of the slot has ended, whatever
 * has told so. NULL: it is late itself, or not ours, or memory is out. */
static struct sandbox *at(struct egress *eg, uint32_t slot, uint32_t gen)
{
    struct sandbox *s;

    if (slot >= REGISTRY_SLOTS_MAX || slot % eg->config.shards != eg->config.shard)
        return NULL;
    s = eg->registry->slots[slot];
    if (s && s->gen == gen)
        return s;
    if (s && is_later(s->gen, gen))
        return NULL;
    if (s)
        end_sandbox(s);
    return new_sandbox(eg, slot, gen);
}

void registry_open(struct egress *eg, uint32_t slot, uint32_t gen, int tcp_fd, int udp_fd)
{
    struct sandbox *s = at(eg, slot, gen);
    int rc;

    if (!s) {
        close(tcp_fd);
        close(udp_fd);
        return;
    }
    close_sockets(s);
    s->tcp_fd = tcp_fd;
    s->udp_fd = udp_fd;
    s->round = eg->registry->round;
    rc = accept_start(s);
    if (rc < 0)
        log_error("slot %u: cannot serve its listener: %s", slot, strerror(-rc));
}

void registry_close(struct egress *eg, uint32_t slot, uint32_t gen)
{
    struct sandbox *s = registry_find(eg, slot, gen);

    if (s)
        end_sandbox(s);
}

void registry_begin_sync(struct egress *eg)
{
    eg->registry->round++;
}

/* What has sockets of an earlier round only has ended while the channel was down. What has none yet
 * was told by cayd alone: its sockets are on their way. */
void registry_sync(struct egress *eg)
{
    struct registry *r = eg->registry;

    for (uint32_t i = 0; i < REGISTRY_SLOTS_MAX; i++)
        if (r->slots[i] && r->slots[i]->tcp_fd >= 0 && r->slots[i]->round != r->round)
            end_sandbox(r->slots[i]);
}

enum err_code registry_policy(struct egress *eg, uint32_t slot, uint32_t gen,
                              struct sandbox_rules *rules, struct err *e)
{
    struct sandbox *s = at(eg, slot, gen);

    if (!s)
        return err_set(e, ERR_CONFLICT, "slot %u generation %u is not, or no longer, served here",
                       slot, gen);
    free_rules(s);
    memcpy(s->id, rules->id, sizeof(s->id));
    memcpy(s->tenant, rules->tenant, sizeof(s->tenant));
    s->policy = rules->policy;
    s->ceiling = rules->ceiling;
    s->upstream = rules->upstream;
    s->allows = rules->allows;
    s->credentials = rules->credentials;
    s->has_policy = true;
    for (struct flow *f = s->flows, *next; f; f = next) {
        next = f->next;
        if (f->state != FLOW_WAITING)
            flow_recheck(f);
    }
    accept_go_on(s);
    return ERR_OK;
}

void registry_usage(const struct sandbox *s, uint64_t *up, uint64_t *down)
{
    *up = s->up_bytes;
    *down = s->down_bytes;
    for (const struct flow *f = s->flows; f; f = f->next) {
        *up += f->up_bytes;
        *down += f->down_bytes;
    }
}

bool registry_over_bytes(const struct sandbox *s)
{
    uint64_t max = s->has_policy ? policy_limits(s->policy)->bytes : 0, up, down;

    if (max == 0)
        return false;
    registry_usage(s, &up, &down);
    return up + down >= max;
}

/* -- rates ------------------------------------------------------------------------------------- */

bool rate_take(struct rate *r, uint32_t per_second)
{
    uint64_t now = clock_mono_ms(), full = (uint64_t)per_second * 1000;

    if (per_second == 0)
        return true;
    if (r->at_ms == 0 || r->per_second != per_second)
        r->tokens_milli = full;
    else
        r->tokens_milli = MIN(full, r->tokens_milli + (now - r->at_ms) * per_second);
    r->per_second = per_second;
    r->at_ms = now;
    if (r->tokens_milli < 1000)
        return false;
    r->tokens_milli -= 1000;
    return true;
}

/* -- flows ------------------------------------------------------------------------------------- */

void registry_add_flow(struct flow *f)
{
    struct registry *r = f->egress->registry;
    struct sandbox *s = f->sandbox;
    struct flow **bucket;

    f->id = ++r->last_flow;
    bucket = &r->flows[f->id % BUCKETS];
    f->hash_next = *bucket;
    *bucket = f;
    f->next = s->flows;
    if (s->flows)
        s->flows->prev = f;
    s->flows = f;
    s->flow_count++;
    r->flow_count++;
}

void registry_remove_flow(struct flow *f)
{
    struct registry *r = f->egress->registry;
    struct sandbox *s = f->sandbox;
    struct flow **p = &r->flows[f->id % BUCKETS];

    while (*p != f)
        p = &(*p)->hash_next;
    *p = f->hash_next;
    *(f->prev ? &f->prev->next : &s->flows) = f->next;
    if (f->next)
        f->next->prev = f->prev;
    s->flow_count--;
    r->flow_count--;
    s->up_bytes += f->up_bytes;
    s->down_bytes += f->down_bytes;
}

struct flow *flow_find(struct egress *eg, uint64_t id)
{
    struct flow *f = eg->registry->flows[id % BUCKETS];

    while (f && f->id != id)
        f = f->hash_next;
    return f;
}

size_t registry_flow_count(const struct egress *eg)
{
    return eg->registry->flow_count;
}

/* -- life -------------------------------------------------------------------------------------- */

int registry_new(struct egress *eg, struct registry **out)
{
    *out = calloc(1, sizeof(**out));
    return *out ? 0 : -ENOMEM;
}

void registry_free(struct registry *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < REGISTRY_SLOTS_MAX; i++)
        if (r->slots[i])
            end_sandbox(r->slots[i]);
    free(r);
}
