#pragma once
/* The storage `btrfs`: layers, kept files and volumes are subvolumes with a limit. Its functions
 * are called through the table, as struct disk_backend says; they keep nothing between calls.
 * Private to the runtime. */

#include "runtime/disk.h"

extern const struct disk_backend disk_btrfs_backend;
