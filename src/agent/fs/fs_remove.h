#pragma once
/* Removes a file or a whole tree in bounded steps.
 *
 * Bounded in everything that a tree's maker decides: no recursion, at most FS_REMOVE_FRAMES open
 * directories however deep it is, 16 bytes for each level, and a step ends after some milliseconds.
 * Never leaves the tree: directories are entered only by openat with O_NOFOLLOW from their parent,
 * and left by ".." only when that is the directory we came from; so links, and directories that are
 * moved or replaced meanwhile, cannot lead the removal elsewhere. Removes what it can and reports
 * the first error. Belongs on the file worker. */

#include "base/util.h"

#define FS_REMOVE_FRAMES    16
#define FS_REMOVE_DEPTH_MAX 500000u

struct fs_remover;

/* path is clean and absolute. A path that does not exist is no error. 0; -EBUSY for "/"; -errno. */
int fs_remover_new(const char *path, struct fs_remover **out) WARN_UNUSED;

/* 1: there is more to do; 0: removed; -errno: the first error, nothing more to try. */
int fs_remover_step(struct fs_remover *r) WARN_UNUSED;

void fs_remover_free(struct fs_remover *r);
