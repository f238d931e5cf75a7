#pragma once
/* btrfs: subvolumes with a hard limit. A call about one subvolume takes some 0.1 to 2 ms.
 * Directories are held open by the caller; names are single components. */

#include "base/util.h"

#include <stdbool.h>

/* Whether fd is on btrfs. */
bool btrfs_is(int fd);

/* Whether quota accounting is on. 0 or 1, or -errno. */
int btrfs_quota_is_on(int fd);

/* Turns quota accounting on, the simple kind where the kernel has it (6.7): an extent counts for
 * the subvolume that wrote it, and nothing a tenant does can make the numbers inconsistent. 0 or
 * -errno. */
int btrfs_quota_on(int fd) WARN_UNUSED;

int btrfs_subvolume_create(int dir_fd, const char *name) WARN_UNUSED;
int btrfs_snapshot(int source_fd, int dir_fd, const char *name, bool read_only) WARN_UNUSED;

/* Deletes a subvolume, with all that is in it, without walking it: its blocks are freed in the
 * background. 0 or -errno (-ENOENT; -ENOTEMPTY when it holds another one). */
int btrfs_subvolume_destroy(int dir_fd, const char *name) WARN_UNUSED;

/* The id of the subvolume that fd is in. 0 or -errno. */
int btrfs_subvolume_id(int fd, uint64_t *id) WARN_UNUSED;

/* Sets the hard limit of the subvolume whose root fd is. 0 bytes: none. 0 or -errno. */
int btrfs_limit(int fd, uint64_t bytes) WARN_UNUSED;

/* Live accounting of a subvolume, by id, from the kernel's own table. 0 or -errno. */
int btrfs_usage(int fd, uint64_t id, uint64_t *used_bytes, uint64_t *limit_bytes) WARN_UNUSED;

/* Grows the file system to the size of its device. 0 or -errno. */
int btrfs_grow(int fd) WARN_UNUSED;
