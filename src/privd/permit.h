#pragma once
/* Which request is allowed in which state of the slot that it names, and the range of every field
 * that a request carries: the one place where numbers from cayd are evaluated. Pure functions. */

#include "contract/meta.h"
#include "contract/proto.h"

enum slot_state {
    SLOT_EMPTY,    /* nothing of it exists */
    SLOT_MAKING,   /* a task makes namespaces, layer and cgroups */
    SLOT_READY,    /* pooled */
    SLOT_STARTING, /* claimed: a task starts cay-init, then its ready byte is awaited */
    SLOT_RUNNING,
    SLOT_KILLING, /* killed, its PID 1 has not ended yet */
    SLOT_ENDING,  /* a task removes what is left */
    /* Their numbers stand in records, so that new ones come last. */
    SLOT_FREEZING,   /* it runs, and its processes are being stopped */
    SLOT_FROZEN,     /* it lives, and no process of it runs */
    SLOT_COPYING,    /* likewise, and its layer is being copied: none may run before that is done */
    SLOT_PRESTARTED, /* pooled, and cay-init waits in it to be claimed: a member of the pool */
    SLOT_DUMPING,    /* it lives, and its memory is being written: its processes run or stand */
    SLOT_STATE_COUNT
};

struct permit_bounds {
    uint32_t open_files_max; /* this machine's hard limit */
    uint32_t slots_max;
};

#define PERMIT_TEMPLATE_MAX META_TEMPLATES_MAX

/* Whether the fields of the request are in range, whatever the state. 0; -EINVAL; -EOPNOTSUPP for a
 * level or job that is not there; -EPROTO for an operation that is none. */
int permit_fields(const struct privsep_msg *m, const struct permit_bounds *b);

/* For a request that names a sandbox: whether its operation is allowed when the slot is in this
 * state with this generation. 0; -ESTALE: not that sandbox, or no longer; -EBUSY: not yet; -EPERM:
 * the table does not say. */
int permit_state(const struct privsep_msg *m, enum slot_state state, uint32_t gen);

/* Whether the operation names a sandbox at all. */
bool permit_needs_sandbox(uint16_t op);

/* Whether there is a sandbox in it that was answered and has not ended. */
bool permit_lives(enum slot_state state);

/* Whether it was made for one create: it has an id, and keeps its template. */
bool permit_is_claimed(enum slot_state state);

/* Whether it has the volumes that its create named: from when it is about to be started until its
 * PID 1 was reaped, when the kernel has ended all of its processes and its mounts. */
bool permit_has_volumes(enum slot_state state);

/* Whether a slot may go from one state to the other. */
bool permit_transition(enum slot_state from, enum slot_state to);
