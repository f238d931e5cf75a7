#pragma once
/* Copies of kept files that are made at once, for creates that follow (COPY for several, proto.h).
 * The kernel commits a transaction for each snapshot, in which its directory is locked: snapshots
 * of one directory, or that are asked for one after the other, have a commit each, some two
 * milliseconds; those that are asked for at once in several directories share one. So they are made
 * by threads, each in a directory of its own (DISK_MAKING_DIRS), and a start renames one to its
 * layer. They end with their number: a drop removes those that no create has taken, and a start of
 * privd all of them, as no create outlives it. Private to the runtime; in a task, but for undo. */

#include "runtime/disk.h"

/* count copies of number n, whose layer kept_fd is. 0; -errno: some
 * may be there, until a drop. */
int copies_ahead_make(const struct disk *d, int kept_fd, uint32_t n, uint32_t count) WARN_UNUSED;

/* A directory in which copies are made, of DISK_MAKING_DIRS: which, i says. A descriptor or
 * -errno. */
int copies_ahead_dir(const struct disk *d, uint32_t i) WARN_UNUSED;

/* A copy becomes layers_fd/name. seed: any number, such that those of others differ. -ENOENT:
 * all are taken. */
int copies_ahead_take(const struct disk *d, uint32_t n, uint32_t count, uint32_t seed,
                      const char *name) WARN_UNUSED;

/* Those of n that are left, of count. 0 or -errno. */
int copies_ahead_drop(const struct disk *d, uint32_t n, uint32_t count) WARN_UNUSED;

/* Those of all numbers, at a start. */
void copies_ahead_undo(const struct disk *d);
