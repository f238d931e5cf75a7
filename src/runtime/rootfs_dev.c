/* /dev is a directory of the stage, without a right to devices: each node that a sandbox has
 * came with the stage (stage.c) and is mounted over itself, the only way that it is one.
 * Terminals come from two instances of devpts, one for the sandbox and one for all its command
 * sandboxes, each with a maximum; /dev/shm is the stage's too. */

#include "runtime/rootfs_dev.h"

#include "base/test_bypass.h"
#include "contract/proto.h"
#include "runtime/inside.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const inside_devices[INSIDE_DEVICES] = {
    "null", "zero", "full", "random", "urandom",      "tty",
#ifdef CAY_TEST_SWITCHES
    "kmsg", "mem",  "kvm",  "fuse",   "loop-control", "net/tun", "vsock",
#endif
};

/* Each over itself: no program can then remove it or put another in its place, and it alone is a
 * device there, as /dev is nodev. The copy is of the stage, which is not. */
static int attach_own_device(const struct rootfs *b, const char *name)
{
    char path[32];
    snprintf(path, sizeof(path), "dev/%s", name);
    CLEANUP_CLOSE int node = mnt_clone(b->stage_fd, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    return node < 0 ? node : mnt_attach(node, b->dev_fd, name);
}

/* Only in test builds. */
static int attach_host_device(const struct rootfs *b, size_t i)
{
    CLEANUP_CLOSE int node = openat(b->dev_fd, inside_devices[i],
                                    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    return node < 0 ? -errno : mnt_attach(b->in->device_fds[i], b->dev_fd, inside_devices[i]);
}

static int make_devices(const struct rootfs *b)
{
    if (TEST_BYPASS(DEVICES) && mkdirat(b->dev_fd, "net", 0755) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(inside_devices); i++) {
        int rc = b->in->device_fds[i] >= 0  ? attach_host_device(b, i)
                 : i < INSIDE_DEVICES_USUAL ? attach_own_device(b, inside_devices[i])
                                            : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int make_links(const struct rootfs *b)
{
    static const char *const links[][2] = {
        {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
        {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlinkat(links[i][0], b->dev_fd, links[i][1]) < 0)
            return -errno;
    return 0;
}

static int mount_shm(const struct rootfs *b)
{
    CLEANUP_CLOSE int fd = mnt_clone(b->stage_fd, "shm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? fd : rootfs_attach_at(fd, b->dev_fd, "shm");
}

/* Two instances, one over the other: below is that of all command sandboxes, who take the upper one
 * away (command_sandbox.c). An instance for each of them would bound nothing: a terminal that one
 * of them hands on, by a socket that is a file, outlives it, and its successor would have as many
 * again. Test: test_pools_kept.py. */
static int mount_terminals(const struct rootfs *b)
{
    CLEANUP_CLOSE int commands = mnt_new_terminals(PRIVSEP_COMMAND_TERMINALS_MAX);
    int rc = commands < 0 ? commands : rootfs_attach_at(commands, b->dev_fd, "pts");
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int own = mnt_new_terminals(PRIVSEP_TERMINALS_MAX);
    return own < 0 ? own : rootfs_attach_at(own, b->dev_fd, "pts");
}

int rootfs_dev_mount(struct rootfs *b)
{
    b->dev_fd = mnt_clone(b->stage_fd, "dev", ROOTFS_STRICT);
    int rc = b->dev_fd < 0 ? b->dev_fd : rootfs_attach_at(b->dev_fd, b->root_fd, "dev");
    if (rc == 0)
        rc = make_devices(b);
    if (rc == 0)
        rc = make_links(b);
    if (rc < 0)
        return rc;
    rc = mount_terminals(b);
    return rc == 0 ? mount_shm(b) : rc;
}
