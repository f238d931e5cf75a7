#include "runtime/command_mount.h"

#include "base/test_bypass.h"
#include "runtime/rootfs_proc.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

/* Mounts that hide files of the sandbox's /proc are copied to the command sandbox's. A file that is
 * not covered there (it came later) is not covered here. */
struct covers {
    int fds[ROOTFS_PROC_MASKED + 1];
};

static const char *cover_path(size_t i)
{
    return i < ROOTFS_PROC_MASKED ? rootfs_proc_masked[i] : ROOTFS_PROC_BOOT_ID;
}

static int take_covers(int proc_fd, struct covers *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(c->fds); i++) {
        c->fds[i] = mnt_clone(proc_fd, cover_path(i), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
        if (c->fds[i] < 0 && c->fds[i] != -ENOENT && c->fds[i] != -EACCES)
            return c->fds[i];
    }
    return 0;
}

static int put_covers(int proc_fd, const struct covers *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(c->fds); i++) {
        if (c->fds[i] < 0 || (TEST_BYPASS(MASKS) && i < ROOTFS_PROC_MASKED))
            continue;
        CLEANUP_CLOSE int target = mnt_open_beneath(proc_fd, cover_path(i), O_PATH, 0);
        int rc = target < 0 ? target : mnt_attach(c->fds[i], target, "");
        if (rc < 0 && rc != -ENOENT && rc != -EACCES)
            return rc;
    }
    return 0;
}

/* Puts a detached tree in the place of what is mounted there. The names are mount points in this
 * mount namespace as they were in the sandbox's, so no tenant could have moved or replaced them;
 * links are not followed all the same. */
static int replace_mount(int tree_fd, const char *path)
{
    CLEANUP_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
        return -errno;
    CLEANUP_CLOSE int target = mnt_open_beneath(root, path + 1, O_PATH | O_DIRECTORY, 0);
    return target < 0 ? target : mnt_attach(tree_fd, target, "");
}

/* The kernel makes a /proc only where one is to be seen already, so the old one goes after. */
static int renew_proc(void)
{
    struct covers covers;
    CLEANUP_CLOSE int old = open("/proc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (old < 0)
        return -errno;
    CLEANUP_CLOSE int fresh = mnt_new("proc", NULL, ROOTFS_STRICT);
    int rc = fresh < 0 ? fresh : take_covers(old, &covers);
    if (rc == 0)
        rc = replace_mount(fresh, "/proc");
    if (rc == 0)
        rc = rootfs_proc_set_sysctls(fresh, true);
    for (size_t i = 0; rc == 0 && i < ROOTFS_PROC_READ_ONLY; i++)
        rc = rootfs_proc_make_read_only(fresh, rootfs_proc_read_only[i]);
    return rc == 0 ? put_covers(fresh, &covers) : rc;
}

/* Takes the sandbox's own terminals away, below which are those of its command sandboxes
 * (rootfs_dev.c). */
static int uncover_terminals(void)
{
    return umount2("/dev/pts", MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

int command_mount(void)
{
    int rc = mnt_make_private();
    if (rc == 0)
        rc = renew_proc();
    return rc == 0 ? uncover_terminals() : rc;
}
