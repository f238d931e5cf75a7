#pragma once
/* Pools of the whole host that cay-keep enlarges at its start, so that one sandbox cannot leave nothing for others. */

/* Raises fs.file-max and kernel.pty.max where they are lower, and says so in the log; says what could not be raised,
 * and goes on: `cay doctor` names it too. Never lowers one. */
void pools_raise(void);
