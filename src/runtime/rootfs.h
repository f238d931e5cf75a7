#pragma once
/* The tree of files of a sandbox. Private to the runtime. */

#include "base/util.h"

struct inside;

/* Builds the file system tree. Returns the root's descriptor (attached below the working
 * directory, ready for mnt_pivot), or -errno. */
int rootfs_build(const struct inside *in) WARN_UNUSED;
