#pragma once
/* The end of a sandbox, for every reason there is: killed, then cleaned up. */

#include "privd/slots.h"

struct privd;

/* Removes layers and cgroups of ended sandboxes, many with one task. */
struct cleaner {
    struct slot_list ended; /* no process of theirs lives; not yet under way */
    struct task task;
    const struct runtime_driver *driver; /* of all that the task removes */
    struct loop_source source;
    struct loop_timer timer; /* gathers them for a moment */
    struct slot *slots[RUNTIME_ENDS_MAX];
    struct runtime_end ends[RUNTIME_ENDS_MAX]; /* of the task; n of both */
    unsigned n;
};

/* KILL: answered when no process is left. Layer and cgroups go a moment later. */
void end_requested(struct privd *p, struct slot *s, const struct reply_to *to);

/* Its pidfd is watched from now on: an end that was not asked for becomes PRIVSEP_ENDED. 0 or
 * -errno. */
int end_watch(struct privd *p, struct slot *s);

/* Kills what runs in it, whatever its state, then cleans up. For failed starts, recovery, stop. */
void end_force(struct privd *p, struct slot *s);

/* A create waits for a slot: ended ones are not gathered any longer. */
void end_hurry(struct privd *p);
