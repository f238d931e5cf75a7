#pragma once
/* Shared by the parts of cay-checkpoint: names, and the report of a failure. */

#include "base/util.h"
#include "contract/checkpoint_boot.h"

#define CHECKPOINT_SELF_DIR  "/proc/self/fd/4"
#define CHECKPOINT_SELF_WORK "/proc/self/fd/3"
#define CHECKPOINT_TMPFS_TAR "tmpfs.tar"

/* Why it could not be done: a sentence of printable ASCII. */
struct checkpoint_why {
    char text[200];
};

PRINTF(3, 4) int checkpoint_fail(struct checkpoint_why *why, int rc, const char *format, ...);
