#pragma once
/* A restore, from the checks of its image to a PID 1 that runs. */

#include "checkpoint/checkpoint.h"

/* As root of a sandbox's user namespace, in its network namespace and in new mount, UTS and control
 * group namespaces; its tree of files is at CHECKPOINT_ROOT. Restores the image of
 * CHECKPOINT_DIR_FD below it, and answers on CHECKPOINT_BOOT_FD. 0, or -errno with *why: then
 * processes may be there, and who started this ends all of the sandbox's. */
int restore_run(unsigned seconds, struct checkpoint_why *why);

/* As CRIU's action script, when all processes are there and stand still: hands a pidfd of PID 1 to
 * CHECKPOINT_ASK_FD and waits for the claim. The exit status: 0, they go on; else they are
 * killed. */
int restore_hook(const char *self, const char *pid_text);
