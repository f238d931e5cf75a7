#pragma once
/* VOLUME_MAKE, VOLUME_REMOVE, VOLUMES, and which sandboxes have which volumes.
 *
 * A volume is a subvolume of the state disk by number, with a limit of its own, that outlives
 * sandboxes. It is in one sandbox that may write to it, or in any number of those that only read:
 * what an overlay can have below it, and what keeps sandboxes from reaching each other by it (no
 * socket, lock, lease or open file of one is another's). That rule is kept here, whatever cayd asks
 * for. */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/reply.h"
#include "privd/volume_records.h"
#include "runtime/runtime.h"

struct privd;

/* Makes and removes volumes, one after the other: those whose record says so. */
struct volume_worker {
    uint32_t number;                                    /* which is at work; 0: none */
    struct reply_to requested[PRIVSEP_VOLUMES_MAX + 1]; /* by number */
    struct task task;
    struct loop_source source;
};

void volume_make_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);
void volume_remove_requested(struct privd *p, const struct reply_to *to,
                             const struct privsep_msg *m);
void volume_list_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);

/* Whether there are entries at all. */
bool volume_any(const struct privsep_mount v[static PRIVSEP_CREATE_VOLUMES]);

/* The size of each, as far as it is known; of none, and of directories of the host, 0. */
void volume_sizes(const struct privd *p,
                  const struct privsep_mount v[static PRIVSEP_CREATE_VOLUMES],
                  uint64_t bytes[static PRIVSEP_CREATE_VOLUMES]);

/* Whether one of them is to be written to. */
bool volume_any_writable(const struct privsep_mount v[static PRIVSEP_CREATE_VOLUMES]);

/* Whether a create may have all of its volumes now. 0; -ENOENT; -EPERM: one is another owner's;
 * -EBUSY: another sandbox writes to one, or reads what this one would write to, or it is just being
 * made or removed. */
int volume_may_mount(struct privd *p, const struct privsep_msg *m);

/* At a start, once it is known which sandboxes live. Blocks. */
void volume_recover(struct privd *p);
