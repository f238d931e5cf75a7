#pragma once
/* The tree of files of a sandbox. Private to the runtime. */

#include "base/util.h"

struct inside;

/* Builds the file system tree. Returns the root's descriptor (attached below the working
 * directory, ready for mnt_pivot), or -errno. */
int rootfs_build(const struct inside *in) WARN_UNUSED;

/* Gives this mount namespace, in which cay-init waits and no program of a tenant ran yet, another
 * root, of the layers that *in has; /dev, /proc and /run stay, with what is mounted below them.
 * Returns the root's descriptor, as rootfs_build. */
int rootfs_change(struct inside *in) WARN_UNUSED;
