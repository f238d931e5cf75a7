#pragma once
/* Mounts by descriptor: detached trees that are prepared outside and attached inside a sandbox's
 * mount namespace, so that nothing per sandbox is ever mounted in the caller's. Descriptors are
 * close-on-exec. */

#include "base/util.h"

#include <linux/openat2.h>
#include <stdbool.h>
#include <sys/mount.h>

/* Opens below dir_fd without following any link, magic link or mount's "..": path has to be
 * beneath. O_CLOEXEC is added. A descriptor or -errno (-ELOOP for a link, -EXDEV for an escape). */
int mnt_open_beneath(int dir_fd, const char *path, int flags, unsigned mode) WARN_UNUSED;

/* A detached copy of the mount at dir_fd/path ("" for dir_fd itself), with attr (MOUNT_ATTR_*)
 * added. */
int mnt_clone(int dir_fd, const char *path, uint64_t attr) WARN_UNUSED;

/* Same, as it is: for copies of one that is in this mount namespace, was restricted already, and
 * shares its mount events with none. Saves a third of the work. */
int mnt_copy(int dir_fd, const char *path) WARN_UNUSED;

/* mnt_clone, with ids shifted by the map of a user namespace. -EINVAL when the file system
 * cannot. */
int mnt_clone_idmapped(int dir_fd, const char *path, uint64_t attr, int userns_fd) WARN_UNUSED;

/* Attaches a detached tree at dir_fd/path ("" for dir_fd itself). Links are not followed. 0 or
 * -errno. */
int mnt_attach(int tree_fd, int dir_fd, const char *path) WARN_UNUSED;

struct mnt_option {
    const char *key;
    const char *value; /* NULL for a flag */
};

/* A new, detached instance of a file system. options end with a NULL key. The kernel's messages
 * about a failure go to the log. A descriptor of its root or -errno. */
int mnt_new(const char *type, const struct mnt_option *options, uint64_t attr) WARN_UNUSED;

/* The same, of a tmpfs whose files are never swapped out, and lie in large pages, both where the
 * kernel has that (Linux 6.4, transparent huge pages). */
int mnt_new_memory(const struct mnt_option *options, uint64_t attr) WARN_UNUSED;

/* A detached mount that nothing has open for writing can be read only from here on, by whatever
 * descriptor. 0 or -errno. */
int mnt_set_read_only(int mount_fd) WARN_UNUSED;

/* As mnt_new, of an instance of devpts that has at most so many terminals. */
int mnt_new_terminals(unsigned max) WARN_UNUSED;

/* The file system of that type on a block device, read-only: as mnt_new. */
int mnt_new_on(const char *type, const char *device, uint64_t attr) WARN_UNUSED;

/* Makes the (just attached) new_root_fd the root of this mount namespace and detaches everything
 * that was there before. 0 or -errno. */
int mnt_pivot(int new_root_fd) WARN_UNUSED;

/* Stops every mount event between this namespace and the one it was copied from. 0 or -errno. */
int mnt_make_private(void) WARN_UNUSED;

/* A mount namespace of its own with a /proc that shows only processes that its reader may trace:
 * for one that is to give up the host's root, but not the host's pid namespace, and would see names
 * and arguments of all others. 0 or -errno. */
int mnt_hide_processes(void) WARN_UNUSED;
