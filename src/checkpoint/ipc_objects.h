#pragma once
/* Objects of the sandbox's IPC namespace that CRIU does not keep: System V shared memory, for which
 * its dump fails without a name, and POSIX message queues, which it leaves out without a word. It
 * keeps System V message queues and semaphores. */

#include "checkpoint/checkpoint.h"

#include <sys/types.h>

/* Looks at the IPC namespace of the process pid. 0; -EOPNOTSUPP: *why names one; or -errno. */
int ipc_objects_check(pid_t pid, struct checkpoint_why *why);

/* Checks a line of /proc/sysvipc/shm, whose first line is a heading. */
int ipc_objects_of_line(const char *line, struct checkpoint_why *why);
