#pragma once
/* From a process of the host's root to one of the sandbox's. */

/* Enters the network, UTS and control group namespace of that process and its user namespace, as
 * its root, with a new mount namespace of that user namespace's that shows what the caller's does,
 * but in /proc only that sandbox's processes. From here on there is no right on the host. 0 or
 * -errno. */
int enter_sandbox(int pidfd);
