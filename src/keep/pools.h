#pragma once
/* Settings of the whole host that cay-keep changes at its start, so that one sandbox cannot leave
 * nothing for others. */

/* Raises fs.file-max and kernel.pty.max where they are lower, and switches
 * net.core.tstamp_allow_data off where the kernel has no such setting for each network namespace.
 * Says in the log what it changed and what it could not, and goes on: `cay doctor` names that too.
 * Before threads; blocks for about a millisecond. */
void pools_set(void);
