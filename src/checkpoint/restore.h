#pragma once
/* A restore, from the checks of its image to a PID 1 that runs. */

#include "checkpoint/checkpoint.h"

/* As root of a sandbox's user namespace, in its network namespace and in new mount, UTS and control
 * group namespaces; its tree of files is at CHECKPOINT_ROOT. Asks for an image and restores it
 * below that. 0: its processes are let go of; or -errno with *why: then
 * processes may be there, and who started this ends all of the sandbox's. */
int restore_run(unsigned seconds, struct checkpoint_why *why);
