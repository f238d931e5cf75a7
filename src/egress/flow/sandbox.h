#pragma once
/* A sandbox as cay-egress has it: who owns the listener that accepted, and nothing else says who it
 * is. Sandboxes and their command sandboxes are kept as {slot, gen, command} across turns of the
 * loop (registry_find). */

#include "contract/proto.h"
#include "egress/flow/rate.h"
#include "policy/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct answers;
struct credentials;
struct denial;
struct egress;
struct flow;
struct h2_share;
struct names;
struct policy;
struct policy_sweep;
struct sandbox_io;
struct upstream;

#define EGRESS_TENANT_MAX     64u
#define EGRESS_CEILINGS_MAX   2u    /* the operator's for all, and for the tenant */
#define EGRESS_POLICY_WAIT_MS 5000u /* a connection waits that long for the sandbox's policy */

/* A sandbox, or one of its command sandboxes: a command with a network, names and a policy of its
 * own, which says no more than its sandbox's does. A command sandbox has no ceilings, upstream or
 * proxy of its own. */
struct sandbox {
    struct egress *egress;
    uint32_t slot, gen;
    uint32_t command;       /* 0: the sandbox itself */
    struct sandbox *parent; /* of a command sandbox, else NULL; outlives it */
    struct sandbox *command_sandboxes, *next_command_sandbox; /* of a sandbox */
    char id[PRIVSEP_ID_SIZE], tenant[EGRESS_TENANT_MAX + 1];  /* "" until the policy came */
    bool has_policy;
    bool over; /* it or its command ends: each open flow ends when next looked at */
    struct policy *policy;
    struct policy *ceilings[EGRESS_CEILINGS_MAX]; /* NULL: no more of them */
    struct upstream *upstream;                    /* this sandbox's own upstream proxy, or NULL */
    struct credentials *credentials;              /* intercept_credentials_new's, or NULL */

    int tcp_fd, udp_fd; /* -1 until privd sent them */
    struct sandbox_io *io;
    struct names *names;
    char *allows; /* of its policy, for refusals: the inside of a JSON array; may be NULL */

    struct answers *answers; /* of its owner's, for its life: asks.c. NULL: none */
    struct h2_share *h2;     /* held by its connections of HTTP/2, or NULL: none yet */
    struct flow *flows;
    uint32_t flow_count;
    uint64_t rules_serial;  /* of its rules; 0: none yet. A command sandbox has its sandbox's */
    struct flow *unsettled; /* the next that a sweep asks about (policy_sweep.h), or NULL */
    struct sandbox *next_ending; /* registry_end.c */
    uint8_t ending_line;         /* 0: none yet, else its number and 1 */
    struct policy_sweep *sweep;  /* under way, or NULL; of a sandbox only */
    uint64_t sweep_number;       /* of the last one */
    bool awaits;                 /* a credential, in some request: in the list of policy_sweep.c */
    struct sandbox *next_awaiting;
    struct rate connections, requests;
    struct rate handshakes;        /* of refused clients: deny.c */
    uint64_t up_bytes, down_bytes; /* of flows that ended; registry_usage adds the others */
    uint64_t allowed, denied, requests_total;
    struct denial *denials; /* ring of DENIALS_MAX, made with the first */
    size_t denials_next, denials_count;
    struct rate patient;   /* forward.c: requests over the rate whose connections stay */
    struct rate recorded;  /* audit.c: refusals that have a record of their own */
    uint64_t unrecorded;   /* and that were only counted */
    struct rate announced; /* event_stream.c: refusals that cayd was told of */
    uint64_t unannounced;  /* and that were only counted */
    struct rate arrivals;  /* arrivals.c: connections and questions of it */
    struct rate crowded;   /* and how often it was told that more was dropped */
    uint64_t round;        /* of privd's hellos that told it: see registry_sync */
};
