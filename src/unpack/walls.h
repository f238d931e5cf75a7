#pragma once
/* The privileges that cay-unpack gives up before it reads a byte of an image: all of the file
 * system but the tree, every capability but four over files, and every system call that the work
 * does not need. Not taken: a user namespace (the tree's ids are the disk's; without CAP_MKNOD and
 * CAP_SYS_ADMIN there is nothing that root of the host could do with a name below this root that
 * matters). */

/* Bytes of memory: libarchive keeps a list of a sparse file's pieces, which an archive makes as
 * long as it likes, and 128 MiB is the largest window of zstd. */
#define WALLS_MEMORY_BYTES (512u * 1024 * 1024)

/* tree: an absolute path; becomes the root of the file system, nosuid, nodev, noexec. Must be
 * called by root in a mount namespace that may be changed. 0 or -errno; what: the failed step. */
int walls_enter(const char *tree, const char **what);
