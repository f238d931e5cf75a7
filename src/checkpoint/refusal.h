#pragma once
/* Features that a sandbox may not use when its memory is to be kept, as they would be lost without
 * a message. */

#include "checkpoint/checkpoint.h"

#include <stdbool.h>
#include <sys/types.h>

#define CHECKPOINT_PROCESSES_MAX 500u /* of a sandbox whose memory is kept */

/* Looks at each thread of the sandbox whose PID 1 is pid: by its own /proc, which no program inside
 * can change. 0; -EOPNOTSUPP: *why names what it is, and which process; or -errno. Changes during
 * the check are not found: it is repeated when all processes stand still. */
int refusal_check(pid_t pid, struct checkpoint_why *why);

/* Checks a thread's status; filters: how many PID 1 has. pid is for *why. */
int refusal_of(const char *status, const char *pid, unsigned filters, struct checkpoint_why *why);

/* Checks a line of a process's maps. */
bool refusal_is_shared_memory_file(const char *line);

/* The meaning of a line of CRIU's log that says why a dump failed: -EOPNOTSUPP, since a process has
 * what it cannot keep, but for words of the kernel that say what the host lacked, and the end of
 * the action script, which does not say it. */
int refusal_of_criu(const char *line);
