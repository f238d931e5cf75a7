#pragma once
/* What a sandbox may not have when its memory is to be kept, as it would be lost without a word. */

#include "checkpoint/checkpoint.h"

#include <stdbool.h>
#include <sys/types.h>

/* Looks at each thread of the sandbox whose PID 1 is pid: by its own /proc, which no program inside
 * can change. 0; -EOPNOTSUPP: *why names what it is, and which process; or -errno. What changes
 * while it looks is not found: it is asked again when all processes stand still. */
int refusal_check(pid_t pid, struct checkpoint_why *why);

/* One thread's status; filters: how many PID 1 has. pid is for *why. */
int refusal_of(const char *status, const char *pid, unsigned filters, struct checkpoint_why *why);

/* One line of a process's maps. */
bool refusal_is_shared_memory_file(const char *line);
