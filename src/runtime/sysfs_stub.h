#pragma once
/* The contents of a sandbox's /sys: plain files, read-only, that say what programs ask of it: which
 * processors and memory nodes there are and how they hang together, huge pages, the one network
 * device. No sysfs is mounted.
 *
 * A sysfs of a network namespace is a file system instance for each sandbox, which costs each
 * control group of the machine an entry in a table and the sandbox 30 KiB and a thirtieth of its
 * making; and it shows the host's devices, modules and file systems, which had to be hidden one by
 * one.
 *
 * The files are copies of the host's, made when privd starts, by an allow list (sysfs_stub.c); the
 * least layer of each sandbox's root, under the template's, so that no inode is shared by two
 * sandboxes (locks and watches of one are not seen by another). Private to the runtime. */

#include "base/util.h"

/* Makes the tree below dir_fd, unless it is there as it would be made now, and opens it (O_PATH).
 * Blocks for some hundred small files. A descriptor or -errno. */
int sysfs_stub_open(int dir_fd) WARN_UNUSED;
