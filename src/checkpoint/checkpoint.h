#pragma once
/* Shared by the parts of cay-checkpoint: names, and the report of a failure. */

#include "base/util.h"
#include "contract/checkpoint_boot.h"

#define CHECKPOINT_SELF_DIR  "/proc/self/fd/4"
#define CHECKPOINT_SELF_WORK "/proc/self/fd/3"
#define CHECKPOINT_TMPFS_TAR "tmpfs.tar"
/* Options of tar: places of volumes, whose contents, owners and modes are no part of an image. */
#define CHECKPOINT_NO_VOLUMES                                                             \
    "--anchored", "--no-wildcards", "--exclude=run/volumes/0", "--exclude=run/volumes/1", \
        "--exclude=run/volumes/2", "--exclude=run/volumes/3"

/* Why it could not be done: a sentence of printable ASCII. */
struct checkpoint_why {
    char text[200];
};

PRINTF(3, 4) int checkpoint_fail(struct checkpoint_why *why, int rc, const char *format, ...);
