#pragma once
/* Where a connection or a request is to go. */

#include "policy/policy.h"

#include <stdbool.h>
#include <stdint.h>

struct sandbox;

enum target_granted { TARGET_NOT_GRANTED, TARGET_BY_NAME, TARGET_BY_ADDRESS };

/* Where to: a name, or an address where name is NULL. The names are policy_name_normalize's. */
struct target {
    const char *name;
    const char
        *said; /* where it is an address: the name that the client says (SNI, Host), or NULL */
    struct policy_address address; /* of a name: what it was resolved to and dialled, once it was */
    uint16_t port;
    struct policy_address
        via;           /* dialled for the name instead of what it resolves to: policy/stack.h */
    uint16_t via_port; /* there; 0: it is not rerouted, or not dialled yet */
    char via_name[POLICY_NAME_MAX +
                  1];            /* that was resolved to via; "": its policy has the address */
    enum target_granted granted; /* the owner said yes to this connection: asks.h */
};

/* The name that an address of cay's own stands for in a sandbox, into t. 0 also for other
 * addresses; -ENOENT when it was never given out. */
int target_of_own(const struct sandbox *s, struct target *t);

/* Is t->address known? */
bool target_is_resolved(const struct target *t);
