#pragma once
/* A task speaks with the cay-init of a sandbox that is dumped or restored (the contract is
 * contract/agent_go_on.h). Private to the runtime. */

#include "runtime/state.h"
#include "sys/cgroup.h"

/* The files of the host's that a cay-init has, opened for it by a task. -1: not there. */
struct go_on_files {
    int listener_fd; /* borrowed */
    int cgroup_fds[CGROUP_ATTACH_MAX], n_cgroup_fds;
    int oom_fd;
};

/* Opens those of the slot but the listener. That of a control group moves only processes with
 * cay-init's id into the sandbox's group (version 1): CRIU, which an image may have
 * taken over, can name the host's processes. 0 or -errno; the caller closes what was opened either
 * way. */
int process_go_on_open(const struct runtime *rt, uint32_t slot,
                       struct go_on_files *out) WARN_UNUSED;
void process_go_on_close(struct go_on_files *f);

/* cay-init is ready to be dumped: 0, or -errno and why. net_fd: a descriptor of its network
 * namespace, or a pidfd of a process in it. Waits for its answer, as does the next. */
int process_go_on_take(int net_fd, char why[static TASK_WHY_SIZE]) WARN_UNUSED;

/* It has its files again, and serves. */
int process_go_on_back(int net_fd, const struct go_on_files *f) WARN_UNUSED;

/* The same of one that was restored, and may stand still; its answer comes by the boot socket, of
 * which boot_fd is its end. Does not wait; -EIO: its queue is full, or cannot be written to. */
int process_go_on_new(int net_fd, int boot_fd, const struct go_on_files *f) WARN_UNUSED;
