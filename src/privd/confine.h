#pragma once
/* privd takes from itself what it does not need, before it serves a peer. */

#include "base/host_dir.h"

/* A mount namespace of its own that holds only what it and its jobs work with: programs and
 * configuration of the host read-only, devices, /proc, /sys, the state and run directories.
 * Programs outside /usr (agent, job) are put where they were. Nothing of it is seen outside, and
 * nothing that is mounted outside later comes in. Of each of host_dirs that can be given to
 * sandboxes the descriptor is put into host_dir_fds, else -1 (host_dirs.h). 0 or -errno after
 * logging. */
int confine_mounts(const char *state_dir, const char *run_dir, const char *const *programs,
                   unsigned n_programs, const struct host_dir host_dirs[static HOST_DIRS_MAX],
                   int host_dir_fds[static HOST_DIRS_MAX]);

/* Capabilities, soft limit of descriptors, umask, no core dumps, system call filter. 0 or -errno
 * after logging. */
int confine_process(void);
