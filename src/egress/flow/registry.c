/* An entry is made by whichever side tells first, has sockets when privd told, rules when cayd
 * did, and serves with both; a later generation of the slot ends it, as do privd's word, and a
 * round of privd's telling that does not have it. New rules take the place of the old ones at
 * once, and open connections are asked about again (policy_sweep.h). A command sandbox is an entry
 * of its own below its sandbox's, and serves only while the sandbox's rules name it. */

#include "egress/flow/registry_internal.h"

#include "base/err.h"
#include "base/log.h"
#include "base/share.h"
#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/flow/accept.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/flow.h"
#include "egress/flow/names.h"
#include "egress/flow/names_kept.h"
#include "egress/flow/policy_sweep.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/upstream.h"
#include "policy/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* -- sandboxes --------------------------------------------------------------------------------- */

static void close_sockets(struct sandbox *s)
{
    accept_stop(s);
    util_close(&s->tcp_fd);
    util_close(&s->udp_fd);
}

static void unlink_sandbox(struct sandbox *s)
{
    struct sandbox **at;

    if (!s->parent) {
        s->egress->registry->slots[s->slot] = NULL;
        return;
    }
    for (at = &s->parent->command_sandboxes; *at != s; at = &(*at)->next_command_sandbox)
        ;
    *at = s->next_command_sandbox;
}

/* Nothing of it is found, or goes on, from now on. */
static void close_sandbox(struct sandbox *s)
{
    policy_sweep_end(s);
    event_stream_end(s->egress, s);
    close_sockets(s);
    for (struct sandbox *r = s->command_sandboxes; r; r = r->next_command_sandbox)
        close_sockets(r);
    unlink_sandbox(s);
    registry_end(s);
}

/* Generations rise; the difference tells which is later, also past the wrap. */
static bool is_later(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) > 0;
}

/* From now on that generation is late. */
static void note_end(struct registry *r, uint32_t slot, uint32_t gen)
{
    if (r->ended[slot] == 0 || is_later(gen, r->ended[slot]))
        r->ended[slot] = gen;
}

static void end_sandbox(struct sandbox *s)
{
    if (!s->parent)
        note_end(s->egress->registry, s->slot, s->gen);
    names_kept_drop(s);
    close_sandbox(s);
}

/* Whether it has ended: a policy that cayd sent before it knew is still to come. */
static bool has_ended(const struct registry *r, uint32_t slot, uint32_t gen)
{
    return r->ended[slot] != 0 && !is_later(gen, r->ended[slot]);
}

static struct sandbox *new_sandbox(struct egress *eg, uint32_t slot, uint32_t gen)
{
    struct sandbox *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->names = names_new(eg->names_key);
    if (!s->names) {
        free(s);
        return NULL;
    }
    s->egress = eg;
    s->slot = slot;
    s->gen = gen;
    s->tcp_fd = s->udp_fd = -1;
    return s;
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
    if ((s && is_later(s->gen, gen)) || has_ended(eg->registry, slot, gen))
        return NULL;
    if (s)
        end_sandbox(s);
    s = new_sandbox(eg, slot, gen);
    eg->registry->slots[slot] = s;
    return s;
}

/* The same of a command sandbox. NULL: there are too many, or memory is out. */
static struct sandbox *at_command_sandbox(struct sandbox *s, uint32_t number)
{
    struct sandbox *r = registry_command_sandbox(s, number);
    size_t n = 0;

    for (const struct sandbox *i = s->command_sandboxes; i; i = i->next_command_sandbox)
        n++;
    if (r || n >= REGISTRY_COMMAND_SANDBOXES_MAX)
        return r;
    r = new_sandbox(s->egress, s->slot, s->gen);
    if (!r)
        return NULL;
    r->command = number;
    r->parent = s;
    r->next_command_sandbox = s->command_sandboxes;
    s->command_sandboxes = r;
    return r;
}

/* The sandbox whose sockets are announced. A command sandbox's come once: those of one that has
 * some already are another's, and nothing of the one before is theirs. */
static struct sandbox *at_open(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command)
{
    struct sandbox *s = at(eg, slot, gen), *r;

    if (!s || !command)
        return s;
    r = registry_command_sandbox(s, command);
    if (r && r->tcp_fd >= 0)
        end_sandbox(r);
    return at_command_sandbox(s, command);
}

void registry_open(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command, int tcp_fd,
                   int udp_fd)
{
    struct sandbox *s = at_open(eg, slot, gen, command);
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

void registry_close(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command)
{
    struct sandbox *s = registry_find(eg, slot, gen, command);

    if (s)
        end_sandbox(s);
    else if (slot < REGISTRY_SLOTS_MAX && !command)
        note_end(eg->registry, slot, gen);
}

void registry_keep(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command)
{
    struct sandbox *s = registry_find(eg, slot, gen, command);

    if (s && s->tcp_fd >= 0)
        s->round = eg->registry->round;
    else
        log_error("slot %u: its ports are taken by a program inside: it has no network", slot);
}

/* The new cay-privd tells which have ended. */
void registry_begin_sync(struct egress *eg)
{
    memset(eg->registry->ended, 0, sizeof(eg->registry->ended));
    eg->registry->round++;
}

/* A sandbox that has sockets of an earlier round only has ended while the channel was down. A
 * sandbox that has none yet was announced by cayd alone: its sockets are on their way. */
static void end_if_not_announced(struct sandbox *s)
{
    if (s->tcp_fd >= 0 && s->round != s->egress->registry->round) {
        end_sandbox(s);
        return;
    }
    for (struct sandbox *r = s->command_sandboxes, *next; r; r = next) {
        next = r->next_command_sandbox;
        end_if_not_announced(r);
    }
}

void registry_sync(struct egress *eg)
{
    for (uint32_t i = 0; i < REGISTRY_SLOTS_MAX; i++)
        if (eg->registry->slots[i])
            end_if_not_announced(eg->registry->slots[i]);
    names_kept_sweep(eg);
}

static bool is_named(const struct sandbox_rules *rules, uint32_t number)
{
    for (size_t i = 0; i < rules->n_command_sandboxes; i++)
        if (rules->command_sandboxes[i].number == number)
            return true;
    return false;
}

/* A command that has ended, or is about to: nothing of it passes any more. */
static void discard_unnamed_command_sandboxes(struct sandbox *s, const struct sandbox_rules *rules)
{
    for (struct sandbox *r = s->command_sandboxes, *next; r; r = next) {
        next = r->next_command_sandbox;
        if (is_named(rules, r->command))
            continue;
        r->has_policy = false;
        r->over = true; /* the sweep that follows ends what is open */
        if (r->tcp_fd < 0)
            end_sandbox(r);
    }
}

/* A command sandbox without a place has no policy: nothing passes. */
static void take_command_sandbox_rules(struct sandbox *s, struct command_sandbox_rules *rules)
{
    struct sandbox *r = at_command_sandbox(s, rules->number);

    if (!r) {
        log_error("slot %u: no place for the policy of another command", s->slot);
        policy_free(rules->policy);
        free(rules->allows);
        credentials_unref(rules->credentials);
        return;
    }
    registry_free_rules(r);
    r->over = false;
    memcpy(r->id, s->id, sizeof(r->id));
    memcpy(r->tenant, s->tenant, sizeof(r->tenant));
    names_set_tenant(r->names, r->tenant);
    r->policy = rules->policy;
    r->allows = rules->allows;
    r->credentials = rules->credentials;
    r->has_policy = true;
}

enum err_code registry_policy(struct egress *eg, uint32_t slot, uint32_t gen,
                              struct sandbox_rules *rules, struct err *e)
{
    struct sandbox *s = at(eg, slot, gen);
    bool is_new;

    if (!s && slot < REGISTRY_SLOTS_MAX && slot % eg->config.shards == eg->config.shard &&
        !eg->registry->slots[slot] && !has_ended(eg->registry, slot, gen))
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (!s)
        return err_set(e, ERR_CONFLICT, "slot %u generation %u is not, or no longer, served here",
                       slot, gen);
    registry_free_rules(s);
    is_new = strcmp(s->id, rules->id) != 0;
    memcpy(s->id, rules->id, sizeof(s->id));
    memcpy(s->tenant, rules->tenant, sizeof(s->tenant));
    names_set_tenant(s->names, s->tenant);
    if (is_new)
        names_kept_open(s);
    s->policy = rules->policy;
    memcpy(s->ceilings, rules->ceilings, sizeof(s->ceilings));
    s->upstream = rules->upstream;
    s->allows = rules->allows;
    s->credentials = rules->credentials;
    s->has_policy = true;
    discard_unnamed_command_sandboxes(s, rules);
    for (size_t i = 0; i < rules->n_command_sandboxes; i++)
        take_command_sandbox_rules(s, &rules->command_sandboxes[i]);
    policy_sweep_start(s);
    return ERR_OK;
}

/* -- life -------------------------------------------------------------------------------------- */

int registry_new(struct egress *eg, struct registry **out)
{
    struct registry *r = calloc(1, sizeof(*r));

    if (r)
        r->shares = share_pool_new(eg->config.flows_max);
    if (!r || !r->shares || policy_sweeps_new(eg, &r->sweeps) < 0) {
        if (r)
            share_pool_free(r->shares);
        free(r);
        return -ENOMEM;
    }
    registry_ends_init(r, eg);
    *out = r;
    return 0;
}

void registry_free(struct registry *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < REGISTRY_SLOTS_MAX; i++)
        if (r->slots[i])
            close_sandbox(r->slots[i]);
    registry_end_all(r);
    policy_sweeps_free(r->sweeps);
    share_pool_free(r->shares);
    registry_ends_free(r); /* and r */
}
