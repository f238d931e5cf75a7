#pragma once
/* The mounts of a command sandbox's own, in the tree that it shares with its sandbox. Private to
 * the runtime. */

#include "base/util.h"

/* Gives the calling process, alone in its pid and mount namespace, a /proc and
 * terminals of these namespaces in the sandbox's tree. 0 or -errno. */
int command_mount(void) WARN_UNUSED;
