#pragma once
/* The file system that a sandbox's mount points, /dev and /run are on. Private to the runtime. */

#include "base/util.h"

#include <stdint.h>

/* A new, detached tmpfs that belongs to uid (a slot's first), with its `dev` and the usual
 * device nodes in it. As root of the host. A descriptor or -errno. */
int stage_make(uint32_t uid, uint64_t memory_bytes) WARN_UNUSED;
