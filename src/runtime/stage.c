/* The file system that a sandbox's /dev, /run, /dev/shm and mount points are directories of, with
 * the device nodes.
 *
 * It is made by root of the host, and not by the sandbox's own, for two reasons. Device nodes open
 * only on a file system whose super block belongs to the first user namespace; and one that a user
 * namespace mounts shows in /proc/PID/mountinfo, in the host's numbers, whose it is. Each sandbox
 * has nodes of its own: locks, leases, watches and times belong to the inode, so that on the host's
 * nodes those of all sandboxes and of the host would be the same ones. It is never attached in the
 * mount namespace of who makes it, and ends with the mounts of its sandbox. */

#include "runtime/stage.h"

#include "base/test_bypass.h"
#include "sys/mnt.h"

#include "runtime/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define SHM_MIN         (UINT64_C(64) << 20)
#define BYTES_PER_INODE 4096
#define TTY_GID         5

static const struct {
    const char *path;
    unsigned major, minor;
    gid_t gid;
} nodes[INSIDE_DEVICES_USUAL] = {
    {"dev/null", 1, 3, 0},   {"dev/zero", 1, 5, 0},    {"dev/full", 1, 7, 0},
    {"dev/random", 1, 8, 0}, {"dev/urandom", 1, 9, 0}, {"dev/tty", 5, 0, TTY_GID},
};

/* The names are new, in a tree that no other process can see. */
static int make_nodes(int fd, uint32_t uid)
{
    for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
        if (mknodat(fd, nodes[i].path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) <
                0 ||
            fchownat(fd, nodes[i].path, uid, uid + nodes[i].gid, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
    return 0;
}

/* Its size is what /dev/shm may hold, its inodes what that many small files take; the kernel's own
 * maximum of both would be a part of the host's memory, and tell its size (statfs). */
static int new_tmpfs(uint64_t memory_bytes)
{
    uint64_t bytes = MAX(memory_bytes / 2, SHM_MIN);
    char size[32], inodes[32];

    snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
    snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)(bytes / BYTES_PER_INODE));
    const struct mnt_option options[] = {
        {"mode", "0700"}, {"size", size}, {"nr_inodes", inodes}, {NULL, NULL}};
    return mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID);
}

int stage_make(uint32_t uid, uint64_t memory_bytes)
{
    CLEANUP_CLOSE int fd = new_tmpfs(memory_bytes);
    int rc = fd < 0 ? fd : 0;
    mode_t before = umask(0);

    if (rc == 0 && (mkdirat(fd, "dev", 0755) < 0 || fchownat(fd, "dev", uid, uid, 0) < 0))
        rc = -errno;
    if (rc == 0 && !TEST_BYPASS(OWN_NODES))
        rc = make_nodes(fd, uid);
    /* Last: from here on the sandbox's root can write to it. */
    if (rc == 0 && fchownat(fd, "", uid, uid, AT_EMPTY_PATH) < 0)
        rc = -errno;
    umask(before);
    return rc < 0 ? rc : TAKE_FD(fd);
}
