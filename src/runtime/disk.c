/* disk_open chooses a storage at the start of privd, once, and everything else goes through its
 * table. A layer lives by slot and generation: made, limited, used by one sandbox, destroyed;
 * or kept under a number of its own (a rename, after a commit), and taken back or dropped by
 * that number. After a crash disk_scan tells which layers there are, and recover.c decides.
 * Work that walks trees or may take long runs in a task or a job, never in privd's loop. */

#include "runtime/disk.h"

#include "base/io.h"
#include "base/log.h"
#include "contract/archive.h"
#include "runtime/disk_btrfs.h"
#include "runtime/disk_memory.h"
#include "runtime/disk_name.h"
#include "runtime/image.h"
#include "runtime/sysfs_stub.h"
#include "sys/btrfs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#define FULL_BYTES (UINT64_C(1) << 20) /* with less left, a new sandbox does not come to life */

/* --- choosing --------------------------------------------------------------------------------- */

static int make_dir(int dir_fd, const char *name)
{
    if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    return mnt_open_beneath(dir_fd, name, O_RDONLY | O_DIRECTORY, 0);
}

/* And the directories in it. */
static int make_making_dir(int root_fd)
{
    CLEANUP_CLOSE int making_fd = make_dir(root_fd, RUNTIME_MAKING_DIR);
    char name[DISK_NAME_SIZE];

    for (uint32_t i = 0; making_fd >= 0 && i < DISK_MAKING_DIRS; i++)
        if (mkdirat(making_fd, disk_name_number(name, i), 0700) < 0 && errno != EEXIST)
            return -errno;
    return TAKE_FD(making_fd);
}

/* root_fd is taken over only on success. */
static int fill(const struct disk_backend *backend, int root_fd, struct disk *out)
{
    CLEANUP_CLOSE int templates_fd = make_dir(root_fd, RUNTIME_TEMPLATES_DIR);
    if (templates_fd < 0)
        return templates_fd;
    CLEANUP_CLOSE int layers_fd = make_dir(root_fd, RUNTIME_LAYERS_DIR);
    if (layers_fd < 0)
        return layers_fd;
    CLEANUP_CLOSE int kept_fd = make_dir(root_fd, RUNTIME_KEPT_DIR);
    if (kept_fd < 0)
        return kept_fd;
    CLEANUP_CLOSE int volumes_fd = make_dir(root_fd, RUNTIME_VOLUMES_DIR);
    if (volumes_fd < 0)
        return volumes_fd;
    CLEANUP_CLOSE int recycled_fd = make_dir(root_fd, RUNTIME_RECYCLED_DIR);
    if (recycled_fd < 0)
        return recycled_fd;
    CLEANUP_CLOSE int archiving_fd = make_dir(root_fd, ARCHIVING_DIR);
    if (archiving_fd < 0)
        return archiving_fd;
    CLEANUP_CLOSE int making_fd = make_making_dir(root_fd);
    if (making_fd < 0)
        return making_fd;
    int view_fd = sysfs_stub_open(root_fd);
    if (view_fd < 0)
        log_warn("disk: sandboxes will have an empty /sys: %s", strerror(-view_fd));
    *out = (struct disk){.backend = backend,
                         .view_fd = view_fd,
                         .root_fd = root_fd,
                         .kept_fd = TAKE_FD(kept_fd),
                         .volumes_fd = TAKE_FD(volumes_fd),
                         .recycled_fd = TAKE_FD(recycled_fd),
                         .archiving_fd = TAKE_FD(archiving_fd),
                         .making_fd = TAKE_FD(making_fd),
                         .templates_fd = TAKE_FD(templates_fd),
                         .layers_fd = TAKE_FD(layers_fd)};
    return 0;
}

static int open_btrfs(const struct runtime_config *config, int state_fd, struct disk *out)
{
    bool mounted = false;
    CLEANUP_CLOSE int root_fd = make_dir(state_fd, RUNTIME_DISK_DIR);
    if (root_fd < 0)
        return root_fd;
    /* The host's own btrfs is used as it is, or not at all: turning quotas on changes how fast and
     * how strict all of it is, which is not ours to decide. */
    if (!btrfs_is(root_fd) || btrfs_quota_is_on(root_fd) != 1) {
        util_close(&root_fd);
        root_fd = image_mount(config, state_fd);
        if (root_fd < 0)
            return root_fd;
        mounted = true;
    }
    int rc = fill(&disk_btrfs_backend, root_fd, out);
    if (rc < 0)
        return rc;
    out->mounted = mounted;
    (void)TAKE_FD(root_fd);
    log_info("disk: btrfs, %s", mounted ? "a loop image in the state directory"
                                        : "the state directory's own file system");
    return 0;
}

static int open_memory(int state_fd, struct disk *out)
{
    int rc = disk_memory_probe();
    if (rc < 0) {
        log_error("disk: tmpfs of this kernel has no user attributes (Linux 6.6 has): %s",
                  strerror(-rc));
        return rc;
    }
    CLEANUP_CLOSE int root_fd = make_dir(state_fd, RUNTIME_DISK_DIR);
    if (root_fd < 0)
        return root_fd;
    rc = fill(&disk_memory_backend, root_fd, out);
    if (rc == 0)
        (void)TAKE_FD(root_fd);
    return rc;
}

/* Templates and files of sandboxes are in it: to go on without it would lose them in silence. */
static void hint_image(int rc)
{
    char why[160];

    if (log_last_error(why, sizeof(why)) == 0)
        snprintf(why, sizeof(why), "disk: %s", strerror(-rc));
    log_error("%s; move " RUNTIME_DISK_IMAGE " (in the state directory) away to start afresh, or "
              "repair it (btrfs check)",
              why);
}

int disk_open(const struct runtime_config *config, int state_fd, struct disk *out)
{
    int rc = -EOPNOTSUPP;
    if (config->disk != RUNTIME_DISK_MEMORY) {
        rc = open_btrfs(config, state_fd, out);
        if (rc == 0)
            out->layer_inodes = config->layer_inodes;
        if (rc == 0 || config->disk == RUNTIME_DISK_BTRFS)
            return rc;
        if (image_exists(state_fd)) {
            hint_image(rc);
            return rc;
        }
        log_warn(
            "disk: btrfs is not usable here (%s): sandboxes keep their files IN MEMORY, within "
            "their memory limit, and lose them when they end",
            strerror(-rc));
    } else {
        log_info("disk: memory, as configured: files of a sandbox count as its memory");
    }
    return open_memory(state_fd, out);
}

void disk_close(struct disk *d)
{
    util_close(&d->view_fd);
    util_close(&d->making_fd);
    util_close(&d->archiving_fd);
    util_close(&d->recycled_fd);
    util_close(&d->volumes_fd);
    util_close(&d->kept_fd);
    util_close(&d->layers_fd);
    util_close(&d->templates_fd);
    util_close(&d->root_fd);
}

int disk_unmount(struct disk *d, int state_fd)
{
    bool mounted = d->mounted;
    disk_close(d);
    d->mounted = false;
    return mounted ? image_unmount(state_fd) : 0;
}

int disk_space(const struct disk *d, uint64_t *total_bytes, uint64_t *free_bytes)
{
    struct statfs fs;
    if (fstatfs(d->root_fd, &fs) < 0)
        return -errno;
    *total_bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    *free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    return 0;
}

struct scan {
    void (*found)(void *arg, uint32_t slot, uint32_t gen);
    void *arg;
};

static bool scan_name(void *arg, const char *name)
{
    const struct scan *s = arg;
    char *dot, *end;
    unsigned long slot = strtoul(name, &dot, 10), gen;

    if (dot == name || *dot != '.' || slot > UINT32_MAX)
        return true;
    gen = strtoul(dot + 1, &end, 10);
    if (end != dot + 1 && *end == '\0' && gen <= UINT32_MAX)
        s->found(s->arg, (uint32_t)slot, (uint32_t)gen);
    return true;
}

int disk_trouble(const struct disk *d)
{
    struct statvfs fs;
    if (fstatvfs(d->root_fd, &fs) < 0)
        return 0;
    if (fs.f_flag & ST_RDONLY)
        return -EROFS;
    return (uint64_t)fs.f_bavail * fs.f_frsize < FULL_BYTES ? -ENOSPC : 0;
}

int disk_scan(const struct disk *d, void (*found)(void *arg, uint32_t slot, uint32_t gen),
              void *arg)
{
    struct scan scan = {found, arg};
    int rc = io_each_name_at(d->layers_fd, ".", scan_name, &scan);
    char name[DISK_NAME_SIZE];

    for (uint32_t i = 0; rc == 0 && i < DISK_MAKING_DIRS; i++)
        rc = io_each_name_at(d->making_fd, disk_name_number(name, i), scan_name, &scan);
    return rc;
}
