#pragma once
/* The terminals of a sandbox's command sandboxes: an instance of devpts that lies below the
 * sandbox's own (runtime/rootfs_dev.c), where CRIU finds one of them alone. No command sandbox is
 * there during a dump, so this one has no terminals: it is removed before, and made anew where the
 * sandbox goes on. */

#include "base/util.h"

/* pidfd: the sandbox's PID 1. As root of its user namespace. 0 or -errno; nothing has changed
 * then. -EBUSY: a program has a terminal of it open. */
int terminals_remove(int pidfd) WARN_UNUSED;
int terminals_make(int pidfd) WARN_UNUSED;
