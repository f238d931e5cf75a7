#pragma once
/* Moves a file or a tree to another file system, in bounded steps: copies it beside its destination
 * under a name of its own, renames the copy into place, removes the source.
 *
 * For a client the sandbox is one disk, but rename(2) says EXDEV between /tmp and the rest, and for
 * directories of a template's layer. Owners, modes, times, links, FIFOs, sockets' names and
 * extended attributes go along; devices are refused; hard links become files of their own. A
 * failure before the rename removes the copy and leaves the source. Bounded: FS_MOVE_DEPTH_MAX
 * levels, two descriptors each. Belongs on the file worker. */

#include "base/util.h"

#define FS_MOVE_DEPTH_MAX 128u

struct fs_mover;

/* from and to are clean and absolute; to's directory exists. 0 or -errno. */
int fs_mover_new(const char *from, const char *to, struct fs_mover **out) WARN_UNUSED;

/* 1: there is more to do; 0: moved; -errno: the source is as it was, unless its removal failed. */
int fs_mover_step(struct fs_mover *m) WARN_UNUSED;

void fs_mover_free(struct fs_mover *m);
