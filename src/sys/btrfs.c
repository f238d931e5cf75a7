#include "sys/btrfs.h"

#include "base/ids.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4
#endif

#define SYSFS_PATH_SIZE 128

bool btrfs_is(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

/* /sys/fs/btrfs/<uuid>/qgroups<rest> */
static int sysfs_path(int fd, const char *rest, char path[static SYSFS_PATH_SIZE])
{
    struct btrfs_ioctl_fs_info_args info = {0};
    char hex[33];

    if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) < 0)
        return -errno;
    ids_hex(info.fsid, sizeof(info.fsid), hex);
    snprintf(path, SYSFS_PATH_SIZE, "/sys/fs/btrfs/%.8s-%.4s-%.4s-%.4s-%.12s/qgroups%s", hex,
             hex + 8, hex + 12, hex + 16, hex + 20, rest);
    return 0;
}

int btrfs_quota_is_on(int fd)
{
    char path[SYSFS_PATH_SIZE];
    int rc = sysfs_path(fd, "", path);
    return rc < 0 ? rc : access(path, F_OK) == 0;
}

int btrfs_quota_on(int fd)
{
    struct btrfs_ioctl_quota_ctl_args args = {.cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA};
    if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) == 0)
        return 0;
    args.cmd = BTRFS_QUOTA_CTL_ENABLE;
    return ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) < 0 ? -errno : 0;
}

int btrfs_subvolume_create(int dir_fd, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    if (strlen(name) >= sizeof(args.name))
        return -ENAMETOOLONG;
    snprintf(args.name, sizeof(args.name), "%s", name);
    return ioctl(dir_fd, BTRFS_IOC_SUBVOL_CREATE, &args) < 0 ? -errno : 0;
}

int btrfs_snapshot(int source_fd, int dir_fd, const char *name, bool read_only)
{
    struct btrfs_ioctl_vol_args_v2 args = {.fd = source_fd,
                                           .flags = read_only ? BTRFS_SUBVOL_RDONLY : 0};
    if (strlen(name) >= sizeof(args.name))
        return -ENAMETOOLONG;
    snprintf(args.name, sizeof(args.name), "%s", name);
    return ioctl(dir_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0 ? -errno : 0;
}

int btrfs_subvolume_destroy(int dir_fd, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    if (strlen(name) >= sizeof(args.name))
        return -ENAMETOOLONG;
    snprintf(args.name, sizeof(args.name), "%s", name);
    return ioctl(dir_fd, BTRFS_IOC_SNAP_DESTROY, &args) < 0 ? -errno : 0;
}

int btrfs_subvolume_id(int fd, uint64_t *id)
{
    struct btrfs_ioctl_ino_lookup_args args = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
    if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
        return -errno;
    *id = args.treeid;
    return 0;
}

int btrfs_limit(int fd, uint64_t bytes)
{
    /* With both, what a subvolume shares with a snapshot counts, and what it alone holds. qgroupid
     * 0 is the subvolume of fd itself. */
    struct btrfs_ioctl_qgroup_limit_args args = {
        .lim = {.flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes ? bytes : UINT64_MAX}};
    return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0 ? -errno : 0;
}

static int read_number(const char *dir, uint64_t id, const char *file, uint64_t *out)
{
    char path[SYSFS_PATH_SIZE * 2], text[32];
    snprintf(path, sizeof(path), "%s/0_%llu/%s", dir, (unsigned long long)id, file);
    ssize_t n = io_read_text_at(AT_FDCWD, path, text, sizeof(text));
    if (n < 0)
        return (int)n;
    *out = strtoull(text, NULL, 10);
    return 0;
}

int btrfs_usage(int fd, uint64_t id, uint64_t *used_bytes, uint64_t *limit_bytes)
{
    char dir[SYSFS_PATH_SIZE];
    uint64_t used = 0, limit = 0;
    int rc = sysfs_path(fd, "", dir);
    if (rc == 0)
        rc = read_number(dir, id, "referenced", &used);
    if (rc == 0)
        rc = read_number(dir, id, "max_referenced", &limit);
    if (rc < 0)
        return rc;
    *used_bytes = used;
    *limit_bytes = limit == UINT64_MAX ? 0 : limit;
    return 0;
}

int btrfs_grow(int fd)
{
    struct btrfs_ioctl_vol_args args = {.name = "max"};
    return ioctl(fd, BTRFS_IOC_RESIZE, &args) < 0 ? -errno : 0;
}
