#pragma once
/* Two processes beside the task of a restore, for speed alone: without them, or where they end
 * early, all is done as well, but later. Private to the runtime. */

#include <sys/types.h>

/* -1: it is not there. */
struct restore_beside {
    pid_t closer;
    pid_t mover;
    int mover_fd; /* pidfd */
    int go_fd;    /* a byte here, and the mover begins */
};

#define RESTORE_BESIDE_NONE \
    ((struct restore_beside){.closer = -1, .mover = -1, .mover_fd = -1, .go_fd = -1})

/* In the task, which is in the control group that group_fd moves processes into. From here on what
 * the task has open when it ends is given back after its end, not in it. */
void restore_beside_begin(struct restore_beside *b, int group_fd);

/* From a grace period after this on, and until restore_beside_moved, the kernel moves processes
 * between control groups without a wait. */
void restore_beside_moves(struct restore_beside *b);

/* The task moves no process any more. */
void restore_beside_moved(struct restore_beside *b);
