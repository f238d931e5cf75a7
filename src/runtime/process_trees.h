#pragma once
/* The trees of a sandbox's root: opened by the task that starts it, with the host's root and the
 * ids of its user namespace, and where that namespace is its PID 1's own, sent there. Private to
 * the runtime. */

#include "runtime/inside.h"
#include "runtime/process_boot.h"
#include "runtime/runtime.h"

struct process_start_args {
    struct runtime *rt;
    const struct runtime_slot *slot;
    const struct runtime_start *start;
    struct process_boot boot;
    struct disk_rooms *rooms;
};

/* Fills in's lower_fd, view_fd, mask_fd, usr_fd, upper_fd and volume_fds: detached mounts, which
 * end with the task. 0 or -errno, noted in *out. */
int process_trees_open(const struct process_start_args *a, int userns_fd, struct inside *in,
                       struct task_result *out) WARN_UNUSED;

/* The same trees as one message of a SOCK_SEQPACKET socket, and from it. 0 or -errno; -ECHILD:
 * its other end has closed. */
int process_trees_send(int sock, struct inside *in) WARN_UNUSED;
int process_trees_take(int sock, struct inside *in) WARN_UNUSED;
