/* The file system tree of a sandbox, built inside its mount namespace by its own root.
 *
 * All of it happens below one tmpfs ("the stage") that is attached over the working directory; /dev
 * and /run are directories of it, as each file system costs an entry in a table of each control
 * group there is. Layers come as detached, idmapped trees; the only names that are looked up are
 * ours, relative to held descriptors, and inside the new root with openat2 that follows no link: a
 * template may be hostile. */

#include "runtime/rootfs.h"

#include "base/io.h"
#include "contract/agent_boot.h"
#include "runtime/disk.h"
#include "runtime/inside.h"
#include "runtime/rootfs_attach.h"
#include "runtime/rootfs_dev.h"
#include "runtime/rootfs_proc.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* --- layers ----------------------------------------------------------------------------------- */

/* A single tmpfs for the mount points, /dev, /run and /dev/shm: each file system costs every memory
 * control group of the host an entry in a table, whosever they are, so that at thousands of
 * sandboxes those tables are most of what they take. A sandbox that fills it does so to itself. It
 * came with /dev and its nodes (stage.c). */
static int open_stage(struct rootfs *b)
{
    static const struct {
        const char *name;
        mode_t mode;
    } dirs[] = {
        {"lower", 0755}, {"mask", 0755},  {"usr", 0755}, {"upper", 0755}, {"root", 0755},
        {"view", 0755},  {"empty", 0755}, {"run", 0755}, {"shm", 01777},  {"run/lock", 01777},
    };
    b->stage_fd = b->in->stage_fd;
    int rc = mnt_attach(b->stage_fd, AT_FDCWD, "");
    if (rc < 0)
        return rc;
    if (fchdir(b->stage_fd) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (mkdir(dirs[i].name, dirs[i].mode) < 0 || chmod(dirs[i].name, dirs[i].mode) < 0)
            return -errno;
    return 0;
}

/* The writable layer as a tmpfs of the sandbox's own, where there is no disk. */
static int memory_upper(const struct inside *in)
{
    char size[32];
    snprintf(size, sizeof(size), "%llu", (unsigned long long)in->start->limits.disk_bytes);
    const struct mnt_option options[] = {{"mode", "0755"}, {"size", size}, {NULL, NULL}};
    int fd = mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    for (const char *const *dir = disk_layer_dirs; fd >= 0 && *dir; dir++) {
        if (mkdirat(fd, *dir, 0755) < 0) {
            int rc = -errno;
            close(fd);
            return rc;
        }
    }
    return fd;
}

static int attach_layers(const struct rootfs *b)
{
    const struct inside *in = b->in;
    int upper = in->upper_fd >= 0 ? in->upper_fd : memory_upper(in);
    int rc = upper < 0 ? upper : mnt_attach(upper, b->stage_fd, "upper");
    if (rc == 0)
        rc = mnt_attach(in->lower_fd, b->stage_fd, "lower");
    if (rc == 0 && in->view_fd >= 0)
        rc = mnt_attach(in->view_fd, b->stage_fd, "view");
    if (rc == 0 && in->archive_fd >= 0)
        rc = rootfs_attach_at(in->archive_fd, b->stage_fd, "archive");
    if (rc == 0 && in->usr_fd >= 0) {
        rc = mnt_attach(in->mask_fd, b->stage_fd, "mask");
        if (rc == 0)
            rc = mnt_attach(in->usr_fd, b->stage_fd, "usr");
    }
    return rc;
}

/* Mounted by the sandbox's root, whose ids the layers have through their maps. `userxattr`: marks
 * are kept in user.* attributes, as trusted.* is the host's. Relative names are all that mountinfo
 * shows later. `volatile`: the file system below is one for all sandboxes, and without this each
 * sync, fsync and end of a sandbox commits all of it (milliseconds, for all). Writes of a sandbox
 * are thereby on disk when the kernel gets to them; a caller that wants it there (a pause that is
 * to survive the host) calls syncfs on the layer. A layer is mounted so only once in its life: the
 * kernel leaves work/incompat behind and refuses it then. */
static int overlay(const char *lower, const char *upper, const char *work, uint64_t attr)
{
    const struct mnt_option options[] = {
        {"lowerdir", lower}, {"upperdir", upper}, {"workdir", work},
        {"userxattr", NULL}, {"volatile", NULL},  {NULL, NULL},
    };
    int rc = mnt_new("overlay", options, MOUNT_ATTR_NODEV | attr);
    if (rc != -EIO)
        return rc;
    /* A write that failed on the disk, of any process, has not been reported yet: the kernel wants
     * it taken note of. Once; one that fails again fails. */
    CLEANUP_CLOSE int fd = mnt_open_beneath(AT_FDCWD, upper, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || (syncfs(fd) < 0 && errno != EIO && errno != ENOSPC && errno != EDQUOT))
        return rc;
    return mnt_new("overlay", options, MOUNT_ATTR_NODEV | attr);
}

static int make_file(int dir_fd, const char *name, mode_t mode)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, name,
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    return fd < 0 ? -errno : 0;
}

/* The agent writes into them once the sandbox has a name. They are made before the layer is an
 * overlay's, and so hide what the template has by these names, a link too; to remove and make them
 * anew through the overlay costs the work of a whole rename. The layer is new: nothing in it
 * belongs to a tenant. */
static int make_name_files(const struct rootfs *b)
{
    struct stat st;

    if (b->in->start->image) /* those of before, which a program may have open */
        return 0;
    if (mkdirat(b->stage_fd, "upper/root/etc", 0755) < 0) {
        if (errno != EEXIST || !b->in->start->kept ||
            fstatat(b->stage_fd, "upper/root/etc", &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        /* The tenant of a layer that was kept has put something else there: it stays, and the
         * sandbox starts without these files. Where it is a directory, disk_btrfs.c has made
         * room. */
        if (!S_ISDIR(st.st_mode))
            return 0;
    }
    int rc = make_file(b->stage_fd, "upper/root" AGENT_NAMES_DIR "/" AGENT_HOSTS_NAME, 0644);
    if (rc == 0)
        rc = make_file(b->stage_fd, "upper/root" AGENT_NAMES_DIR "/" AGENT_HOSTNAME_NAME, 0644);
    if (rc == 0)
        rc = make_file(b->stage_fd, "upper/root" AGENT_NAMES_DIR "/" AGENT_MACHINE_ID_NAME, 0444);
    return rc;
}

static int mount_root(struct rootfs *b)
{
    char lower[40];
    int rc = attach_layers(b);
    if (rc == 0)
        rc = make_name_files(b);
    if (rc < 0)
        return rc;
    snprintf(lower, sizeof(lower), "%slower%s", b->in->archive_fd >= 0 ? "archive/root:" : "",
             b->in->view_fd >= 0 ? ":view" : "");
    b->root_fd = overlay(lower, "upper/root", "upper/root.work", 0);
    if (b->root_fd < 0)
        return b->root_fd;
    rc = mnt_attach(b->root_fd, b->stage_fd, "root");
    if (rc < 0 || b->in->usr_fd < 0)
        return rc;
    CLEANUP_CLOSE int usr = overlay(b->in->archive_fd >= 0 ? "archive/usr:mask:usr" : "mask:usr",
                                    "upper/usr", "upper/usr.work", 0);
    return usr < 0 ? usr : rootfs_attach_at(usr, b->root_fd, "usr");
}

/* --- the rest --------------------------------------------------------------------------------- */

static int mount_run(const struct rootfs *b)
{
    CLEANUP_CLOSE int fd = mnt_clone(b->stage_fd, "run", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? fd : rootfs_attach_at(fd, b->root_fd, "run");
}

/* As an overlay of its own, like the sandbox's root, and for the same reasons: calls on its files
 * (ioctl, fsync, sockets, locks, leases) are answered by this sandbox's overlay, not by the disk
 * that all share, nor by an inode that another sandbox has too. Set-id programs work on no volume:
 * another sandbox made them. A directory of the host is one that is only read: without the overlay
 * a socket or queue in it would connect the sandbox to the host's program behind it, as these do
 * not heed that a mount is read-only. Tests: test_volumes_privd.py, test_host_dirs.py. */
static int overlay_volume(const char *volume_dir, const struct privsep_mount *v)
{
    bool read_only = v->flags & PRIVSEP_MOUNT_READ_ONLY;
    const char *top = v->flags == PRIVSEP_MOUNT_HOST_DIR ? "" : "/root";
    char lower[48], upper[32], work[48];

    snprintf(lower, sizeof(lower), "%s%s:empty", volume_dir, top);
    snprintf(upper, sizeof(upper), "%s/root", volume_dir);
    snprintf(work, sizeof(work), "%s/root.work", volume_dir);
    if (!read_only)
        return overlay("empty", upper, work, MOUNT_ATTR_NOSUID);
    const struct mnt_option options[] = {{"lowerdir", lower}, {"userxattr", NULL}, {NULL, NULL}};
    return mnt_new("overlay", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY);
}

_Static_assert(AGENT_VOLUMES_MAX == PRIVSEP_CREATE_VOLUMES, "places of volumes");

static int mount_volume(const struct rootfs *b, size_t i, int volumes_fd)
{
    char volume_dir[16], name[16];

    snprintf(volume_dir, sizeof(volume_dir), "volume%zu", i);
    snprintf(name, sizeof(name), "%zu", i);
    int rc = rootfs_attach_at(b->in->volume_fds[i], b->stage_fd, volume_dir);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int tree = overlay_volume(volume_dir, &b->in->start->volumes[i]);
    return tree < 0 ? tree : rootfs_attach_at(tree, volumes_fd, name);
}

/* At places of cay's own, in /run, which is new with each start: none of a tenant's names is looked
 * up. cay-init, which has no right on the host, makes links to them where they are wanted. */
static int mount_volumes(const struct rootfs *b)
{
    CLEANUP_CLOSE int dir = -1;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < PRIVSEP_CREATE_VOLUMES; i++) {
        if (b->in->volume_fds[i] < 0)
            continue;
        if (dir < 0)
            dir = rootfs_target_dir(b->root_fd, &AGENT_VOLUMES_DIR[1], 0755);
        rc = dir < 0 ? dir : mount_volume(b, i, dir);
    }
    return rc;
}

static int open_tmp(const struct rootfs *b)
{
    struct stat st;
    CLEANUP_CLOSE int fd = rootfs_target_dir(b->root_fd, "tmp", 0777);
    /* A template, or the tenant of a layer that was kept, may have put a link or a file there: it
     * stays so. */
    if (fd == -ELOOP || fd == -ENOTDIR)
        return 0;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((st.st_mode & 07777) == 01777)
        return 0;
    return fchmodat(b->root_fd, "tmp", 01777, 0) < 0 ? -errno : 0;
}

int rootfs_build(const struct inside *in)
{
    struct rootfs b = {
        .in = in, .stage_fd = -1, .root_fd = -1, .proc_fd = -1, .sys_fd = -1, .dev_fd = -1};
    int (*const steps[])(struct rootfs * b) = {open_stage, mount_root, rootfs_dev_mount,
                                               rootfs_proc_mount, rootfs_proc_mount_sys};
    int rc = mnt_make_private();
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(steps); i++)
        rc = steps[i](&b);
    if (rc == 0)
        rc = mount_run(&b);
    if (rc == 0)
        rc = mount_volumes(&b);
    if (rc == 0)
        rc = open_tmp(&b);
    return rc < 0 ? rc : b.root_fd;
}

/* --- another root ----------------------------------------------------------------------------- */

/* Mounts with all that is mounted below them go from the old root to the new one. In the old one
 * the names are mount points, which no program could have moved or replaced. */
static int move_mounts(const struct rootfs *b, int old_fd)
{
    static const char *const names[] = {"dev", "proc", "run"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        CLEANUP_CLOSE int mount = mnt_open_beneath(old_fd, names[i], O_PATH | O_DIRECTORY, 0);
        int rc = mount < 0 ? mount : rootfs_attach_at(mount, b->root_fd, names[i]);

        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The mount points of the new layers are on a file system of their own, as that of the start is
 * mounted nowhere any more. It is attached over the old /sys, which does not move, and goes with
 * it: not over the old root itself, where mnt_pivot would take it away instead of the root. */
static int make_stage(struct inside *in, int old_fd)
{
    const struct mnt_option options[] = {{"mode", "0700"}, {"nr_inodes", "64"}, {NULL, NULL}};
    CLEANUP_CLOSE int sys = mnt_open_beneath(old_fd, "sys", O_PATH | O_DIRECTORY, 0);

    if (sys < 0)
        return sys;
    if (fchdir(sys) < 0)
        return -errno;
    in->stage_fd = mnt_new("tmpfs", options, ROOTFS_STRICT);
    return in->stage_fd < 0 ? in->stage_fd : 0;
}

int rootfs_change(struct inside *in)
{
    struct rootfs b = {
        .in = in, .stage_fd = -1, .root_fd = -1, .proc_fd = -1, .sys_fd = -1, .dev_fd = -1};
    CLEANUP_CLOSE int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = old < 0 ? -errno : make_stage(in, old);

    if (rc == 0)
        rc = open_stage(&b);
    if (rc == 0)
        rc = mount_root(&b);
    if (rc == 0)
        rc = move_mounts(&b, old);
    if (rc == 0)
        rc = rootfs_proc_mount_sys(&b);
    if (rc == 0)
        rc = open_tmp(&b);
    return rc < 0 ? rc : b.root_fd;
}
