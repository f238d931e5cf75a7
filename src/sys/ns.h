#pragma once
/* Namespaces: making processes in new ones, id maps, entering. Callers are single-threaded. */

#include "base/util.h"

#include <sys/types.h>

/* fork(2) with clone flags (CLONE_NEW*, CLONE_PARENT). exit_signal is SIGCHLD, or 0 with
 * CLONE_PARENT (the kernel then takes the caller's own). *pidfd (may be NULL) is close-on-exec; the
 * kernel sets it before the child runs, in the parent's memory only (but where that is shared).
 * Returns 0 in the child, the pid in the parent, or -errno. */
pid_t ns_fork(uint64_t flags, int exit_signal, int *pidfd);

/* Writes "0 first count" as uid and gid map of a process in a new user namespace. Needs CAP_SETUID
 * and CAP_SETGID in the parent namespace. 0 or -errno. */
int ns_write_maps(pid_t pid, uint32_t first, uint32_t count) WARN_UNUSED;

/* Opens /proc/<pid>/ns/<name> ("user", "net", ...). A descriptor or -errno. */
int ns_open(pid_t pid, const char *name) WARN_UNUSED;

/* setns(2); type is a CLONE_NEW* flag. fd may be a pidfd. 0 or -errno. */
int ns_enter(int fd, int type) WARN_UNUSED;

/* Real, effective and saved ids to uid and gid, no supplementary groups. 0 or -errno. */
int ns_become(uid_t uid, gid_t gid) WARN_UNUSED;
