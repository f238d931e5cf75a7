#pragma once
/* The places of a sandbox's tree in the making, and how trees are attached at them. Used by the
 * files that build a part of it (rootfs.c, rootfs_dev.c, rootfs_proc.c), in its mount namespace,
 * as its root. Private to the runtime. */

#include "base/util.h"

#include <stdbool.h>
#include <sys/mount.h>

struct inside;

/* Mount attributes of every file system of the sandbox that holds neither programs nor devices of
 * its tenant. */
#define ROOTFS_STRICT (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Descriptors end with exec and are closed by none of these files. */
struct rootfs {
    const struct inside *in;
    int stage_fd, root_fd, proc_fd, sys_fd, dev_fd;
};

/* A directory at path (one or more existing components and a last one that is made when missing):
 * a descriptor (O_PATH, the caller's) or -errno. No link is followed. */
int rootfs_target_dir(int dir_fd, const char *path, unsigned mode) WARN_UNUSED;

/* Attaches a detached tree at such a directory and closes nothing. 0 or -errno. */
int rootfs_attach_at(int tree_fd, int dir_fd, const char *path) WARN_UNUSED;
