#pragma once
/* /dev of a sandbox: its own device nodes, links, terminals and shared memory. Private to the
 * runtime. */

#include "runtime/rootfs_attach.h"

/* Once the root is there: fills dev_fd. In the sandbox's namespaces, as its root. 0 or -errno. */
int rootfs_dev_mount(struct rootfs *b) WARN_UNUSED;
