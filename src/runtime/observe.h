#pragma once
/* Which processes there are of a slot. Private to the runtime. */

#include "runtime/runtime.h"

/* Finds a process of a slot that is PID 1 of its own pid namespace; 0: none. */
pid_t process_find_first(const struct runtime *rt, uint32_t slot);

/* A pidfd of pid, which has the slot's ids and is PID 1 of a pid namespace; in which control group
 * it is does not matter. 0 or -ESRCH. */
int process_hold_first(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd) WARN_UNUSED;
