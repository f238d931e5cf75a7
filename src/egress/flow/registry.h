#pragma once
/* The sandboxes that this process serves, by slot and generation, and the flows of all of them.
 *
 * Two sides tell about a sandbox, in any order: privd its listeners (registry_open,
 * registry_close), cayd its policy (registry_policy). Until both were there nothing of it passes. A
 * generation is never used twice, so an older one than known is late and ignored, and a newer one
 * ends the older. Command sandboxes of a sandbox come and go within its generation, likewise by
 * number; its policy brings those of all of them. */

#include "base/err.h"
#include "contract/proto.h"
#include "egress/flow/sandbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REGISTRY_SLOTS_MAX 65536u

struct registry;

int registry_new(struct egress *eg, struct registry **out);

/* Ends all flows and sandboxes. */
void registry_free(struct registry *r);

struct sandbox *registry_find(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command);

struct sandbox *registry_next(struct egress *eg, uint32_t *slot);

/* privd: both descriptors are taken over in every case. */
void registry_open(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command, int tcp_fd,
                   int udp_fd);
void registry_close(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command);

/* privd: it lives, and could be given no sockets; those that it has are good. */
void registry_keep(struct egress *eg, uint32_t slot, uint32_t gen, uint32_t command);

/* privd's channel is up (again): all live sandboxes are told from here to registry_sync, which ends
 * those that were not. */
void registry_begin_sync(struct egress *eg);
void registry_sync(struct egress *eg);

#define REGISTRY_COMMAND_SANDBOXES_MAX \
    (2 * PRIVSEP_COMMAND_SANDBOXES_MAX) /* of a sandbox; some may not have ended yet */

struct command_sandbox_rules {
    uint32_t number;
    struct policy *policy;
    char *allows;
    struct credentials *credentials;
};

/* cayd: what PUT holds, all checked. Pointers are taken over on success. A command sandbox that is
 * not named has no policy any more. */
struct sandbox_rules {
    char id[PRIVSEP_ID_SIZE], tenant[EGRESS_TENANT_MAX + 1];
    struct policy *policy, *ceilings[EGRESS_CEILINGS_MAX];
    struct upstream *upstream;
    char *allows;
    struct credentials *credentials;
    struct command_sandbox_rules command_sandboxes[REGISTRY_COMMAND_SANDBOXES_MAX];
    size_t n_command_sandboxes;
};
/* Open flows are asked about again in a sweep, which may not be over yet (policy_sweep.h). */
enum err_code registry_policy(struct egress *eg, uint32_t slot, uint32_t gen,
                              struct sandbox_rules *rules, struct err *e);

/* Bytes both ways, of flows that live too, and of command sandboxes. */
void registry_usage(const struct sandbox *s, uint64_t *up, uint64_t *down);

/* Has the sandbox, or that of the command sandbox, used up the bytes that its policy gives it? */
bool registry_over_bytes(const struct sandbox *s);

/* The bytes that are left; UINT64_MAX: they are not limited. */
uint64_t registry_bytes_left(const struct sandbox *s);
bool registry_counts_bytes(const struct sandbox *s); /* is there such a limit? */

/* Of the rules that are in force for s; UINT64_MAX: it is over. */
uint64_t registry_rules_serial(const struct sandbox *s);

/* Whose share of the loop's time its flows have (turns.h): a command sandbox's flows are its
 * sandbox's. */
uint64_t registry_owner(const struct sandbox *s);

/* flow.c only: the table of flows. */
void registry_add_flow(struct flow *f);
void registry_remove_flow(struct flow *f);

/* Is there a place for another flow of s, which shares them with all others (base/share.h)? */
bool registry_has_space(const struct sandbox *s);

/* Are more than half of them taken? Then those that only wait for an end wait for less long. */
bool registry_is_crowded(const struct egress *eg);
