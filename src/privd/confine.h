#pragma once
/* privd takes from itself what it does not need, before it serves a peer. */

/* A mount namespace of its own that holds only what it and its jobs work with: programs and
 * configuration of the host read-only, devices, /proc, /sys, the state and run directories.
 * Programs outside /usr (agent, job) are put where they were. Nothing of it is seen outside, and
 * nothing that is mounted outside later comes in. 0 or -errno after logging. */
int confine_mounts(const char *state_dir, const char *run_dir, const char *const *programs,
                   unsigned n_programs);

/* Capabilities, soft limit of descriptors, umask, no core dumps, system call filter. 0 or -errno
 * after logging. */
int confine_process(void);
