#pragma once
/* The storage `memory`: nothing on disk. Each sandbox's writable layer is a tmpfs that it mounts
 * itself and that ends with it, so that the table has nothing to make, keep or destroy. Private
 * to the runtime. */

#include "runtime/disk.h"

extern const struct disk_backend disk_memory_backend;

/* Whether this kernel's tmpfs can be the upper layer of an overlay in a user namespace. 0 or
 * -errno. */
int disk_memory_probe(void) WARN_UNUSED;
