#pragma once
/* Layers that are used again. To remove a subvolume costs far more than all else about it: where
 * quotas are on, the kernel commits a whole transaction for each
 * (btrfs_qgroup_cleanup_dropped_subvolume), a millisecond of processor time and disk that all
 * sandboxes wait for. So a layer that only cay and the kernel's overlay have put anything into is
 * made empty and kept for another sandbox. Private to the runtime; for tasks only.
 *
 * The permitted contents of such a layer are a list of names (recycled_layer.c). Nothing else is
 * looked for, no tree is walked: a directory that cannot be removed holds something of a tenant's,
 * and the layer is not kept. All directories are new when it is used again, so no mode, owner, time
 * or attribute comes along; nor does an inode number tell more than that it was used before, as one
 * in which more inodes were made than cay makes is not kept; nor an account with more left in it
 * than those files take. Test: unit recycled_layer "a layer that was used is not kept".
 *
 * With each use the numbers of its inodes go on. They may not come to those of templates, which
 * stand beside them in a sandbox, so that a layer is given up long before. */

#include "base/util.h"

#include <stdbool.h>
#include <stdint.h>

#define RECYCLED_LAYERS_MAX \
    64u /* kept at a time; more may be for a moment, as tasks run side by side */

/* The directories of a new layer (disk_layer_dirs), with the mode that / and /usr have inside. 0 or
 * -errno. */
int recycled_layer_make_dirs(int layer_fd) WARN_UNUSED;

/* Whether layers_fd/name, of which no process lives, holds nothing of a tenant's and was made as
 * new: it may be taken as a layer again. Its files of cay's own are removed in any case. root_fd:
 * of the disk, for accounts. last_inode: the highest number that an inode of it may have; 0:
 * any. */
bool recycled_layer_make_new(int root_fd, int layers_fd, const char *name, uint64_t last_inode);

/* Puts layers_fd/name among those that are kept. 0; -ENOSPC: there are enough; -errno. */
int recycled_layer_put(int recycled_fd, int layers_fd, const char *name) WARN_UNUSED;

/* A recycled layer becomes layers_fd/name. 0; -ENOENT: there is none; -errno. */
int recycled_layer_take(int recycled_fd, int layers_fd, const char *name) WARN_UNUSED;
