/* disk_open chooses a storage at the start of privd, once, and everything else goes through its
 * table. A layer lives by slot and generation: made, limited, used by one sandbox, destroyed;
 * or kept under a number of its own (a rename, after a commit), and taken back or dropped by
 * that number. After a crash disk_scan tells which layers there are, and recover.c decides.
 * What walks trees or may take long runs in a task or a job, never in privd's loop. */

#include "runtime/disk.h"

#include "base/io.h"
#include "base/log.h"
#include "runtime/image.h"
#include "runtime/recycled_layer.h"
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
#include <sys/xattr.h>

#define NAME_SIZE  32
#define ASIDE_MAX  64u                 /* names that are tried */
#define FULL_BYTES (UINT64_C(1) << 20) /* with less left, a new sandbox does not come to life */

/* The names that forget_volatile knows, as of a layer. */
#define VOLUME_ROOT "root"
#define VOLUME_WORK "root.work"
#define VOLUME_UID  1000

const char *const disk_layer_dirs[] = {"root", "root.work", "usr", "usr.work", NULL};

static const char *layer_name(char name[static NAME_SIZE], uint32_t slot, uint32_t gen)
{
    snprintf(name, NAME_SIZE, "%u.%u", slot, gen);
    return name;
}

static int open_layer(const struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[NAME_SIZE];
    return mnt_open_beneath(d->layers_fd, layer_name(name, slot, gen), O_RDONLY | O_DIRECTORY, 0);
}

/* --- btrfs ------------------------------------------------------------------------------------ */

static int btrfs_layer_make(struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[NAME_SIZE];
    if (recycled_layer_take(d->recycled_fd, d->layers_fd, layer_name(name, slot, gen)) == 0)
        return 0;
    int rc = btrfs_subvolume_create(d->layers_fd, name);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    return fd < 0 ? fd : recycled_layer_make_dirs(fd);
}

/* The kernel drops its account once its blocks are free. Not earlier, and not by us: with an
 * account removed while blocks are still being freed, simple quotas abort the transaction, and the
 * disk is read-only. */
static int btrfs_layer_destroy(struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[NAME_SIZE];
    layer_name(name, slot, gen);
    if (recycled_layer_make_new(d->root_fd, d->layers_fd, name) &&
        recycled_layer_put(d->recycled_fd, d->layers_fd, name) == 0)
        return 0;
    int rc = btrfs_subvolume_destroy(d->layers_fd, name);

    return rc == -ENOENT ? 0 : rc;
}

static int btrfs_layer_limit(struct disk *d, uint32_t slot, uint32_t gen, uint64_t bytes)
{
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    return fd < 0 ? fd : btrfs_limit(fd, bytes);
}

static int btrfs_layer_usage(const struct disk *d, uint32_t slot, uint32_t gen,
                             uint64_t *used_bytes, uint64_t *limit_bytes)
{
    uint64_t id;
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    if (fd < 0)
        return fd;
    int rc = btrfs_subvolume_id(fd, &id);
    return rc < 0 ? rc : btrfs_usage(d->root_fd, id, used_bytes, limit_bytes);
}

static int btrfs_layer_tree(struct disk *d, uint32_t slot, uint32_t gen, int userns_fd)
{
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    if (fd < 0)
        return fd;
    return mnt_clone_idmapped(fd, "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME,
                              userns_fd);
}

static const char *kept_name(char name[static NAME_SIZE], uint32_t n)
{
    snprintf(name, NAME_SIZE, "%u", n);
    return name;
}

/* What tells the kernel that a volatile overlay may have lost writes: with the layer synced, it has
 * not. The work directories are the kernel's own; no name of a tenant's is followed. */
static int forget_volatile(int layer_fd)
{
    static const struct {
        const char *dir, *name;
        int flags;
    } names[] = {
        {"root.work/work/incompat/volatile", "dirty", 0},
        {"root.work/work/incompat", "volatile", AT_REMOVEDIR},
        {"usr.work/work/incompat/volatile", "dirty", 0},
        {"usr.work/work/incompat", "volatile", AT_REMOVEDIR},
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        CLEANUP_CLOSE int dir = mnt_open_beneath(layer_fd, names[i].dir, O_PATH | O_DIRECTORY, 0);

        if (dir == -ENOENT)
            continue;
        if (dir < 0)
            return dir;
        if (unlinkat(dir, names[i].name, names[i].flags) < 0 && errno != ENOENT)
            return -errno;
    }
    return 0;
}

/* One commit of the file system has both the files and the new name. */
static int btrfs_layer_keep(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n)
{
    char from[NAME_SIZE], to[NAME_SIZE];
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);

    if (fd == -ENOENT)
        return disk_is_kept(d, n) ? (syncfs(d->kept_fd) < 0 ? -errno : 0) : -ENOENT;
    if (fd < 0)
        return fd;
    if (syncfs(fd) < 0)
        return -errno;
    int rc = forget_volatile(fd);
    if (rc < 0)
        return rc;
    if (renameat2(d->layers_fd, layer_name(from, slot, gen), d->kept_fd, kept_name(to, n),
                  RENAME_NOREPLACE) < 0)
        return -errno;
    return syncfs(d->kept_fd) < 0 ? -errno : 0;
}

/* A directory that holds something is not walked: it gets another name beside its own. */
static int move_aside(int dir_fd, const char *name)
{
    char aside[NAME_SIZE];

    for (unsigned i = 1; i <= ASIDE_MAX; i++) {
        snprintf(aside, sizeof(aside), "%s.%u", name, i);
        if (renameat2(dir_fd, name, dir_fd, aside, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

/* The two files that carry the sandbox's name are made anew by the next start (rootfs.c). What else
 * a tenant has put in their place goes, or gets out of the way. Where its /etc is a link, a file or
 * removed, there is nothing of cay's to remove, and nothing is made: links are never followed. */
static int forget_names(int layer_fd)
{
    static const char *const names[] = {"hosts", "hostname"};
    CLEANUP_CLOSE int etc = mnt_open_beneath(layer_fd, "root/etc", O_PATH | O_DIRECTORY, 0);

    if (etc < 0)
        return etc == -ENOENT || etc == -ELOOP || etc == -ENOTDIR ? 0 : etc;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (unlinkat(etc, names[i], 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR)
            return -errno;
        if (unlinkat(etc, names[i], AT_REMOVEDIR) == 0)
            continue;
        int rc = errno == ENOTEMPTY ? move_aside(etc, names[i]) : -errno;
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int btrfs_layer_take(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n)
{
    char from[NAME_SIZE], to[NAME_SIZE];

    if (renameat2(d->kept_fd, kept_name(from, n), d->layers_fd, layer_name(to, slot, gen),
                  RENAME_NOREPLACE) < 0)
        return -errno;
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    return fd < 0 ? fd : forget_names(fd);
}

static int open_kept(const struct disk *d, uint32_t n)
{
    char name[NAME_SIZE];

    return mnt_open_beneath(d->kept_fd, kept_name(name, n), O_RDONLY | O_DIRECTORY, 0);
}

static int btrfs_layer_copy(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n)
{
    char name[NAME_SIZE];
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);

    return fd < 0 ? fd : btrfs_snapshot(fd, d->kept_fd, kept_name(name, n), false);
}

static int btrfs_kept_settle(const struct disk *d, uint32_t n)
{
    CLEANUP_CLOSE int fd = open_kept(d, n);

    return fd < 0 ? fd : forget_volatile(fd);
}

/* The marks again: a loss of power may have brought them back. */
static int btrfs_layer_from(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n)
{
    char name[NAME_SIZE];
    CLEANUP_CLOSE int kept = open_kept(d, n);

    if (kept < 0)
        return kept;
    int rc = btrfs_snapshot(kept, d->layers_fd, layer_name(name, slot, gen), false);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    rc = fd < 0 ? fd : forget_volatile(fd);
    return rc < 0 ? rc : forget_names(fd);
}

static int btrfs_kept_drop(const struct disk *d, uint32_t n)
{
    char name[NAME_SIZE];
    int rc = btrfs_subvolume_destroy(d->kept_fd, kept_name(name, n));

    return rc == -ENOENT ? 0 : rc;
}

bool disk_is_kept(const struct disk *d, uint32_t number)
{
    char name[NAME_SIZE];

    return faccessat(d->kept_fd, kept_name(name, number), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int open_volume(const struct disk *d, uint32_t n)
{
    char name[NAME_SIZE];

    return mnt_open_beneath(d->volumes_fd, kept_name(name, n), O_RDONLY | O_DIRECTORY, 0);
}

/* Its root belongs to the ordinary user of the built-in templates, and everyone inside may write
 * there: which users a template has is not known here. The umask must not decide. */
static int fill_volume(int fd, uint64_t bytes)
{
    int rc = btrfs_limit(fd, bytes);

    if (rc < 0)
        return rc;
    if (mkdirat(fd, VOLUME_ROOT, 0755) < 0 || fchmodat(fd, VOLUME_ROOT, 0777, 0) < 0 ||
        fchownat(fd, VOLUME_ROOT, VOLUME_UID, VOLUME_UID, AT_SYMLINK_NOFOLLOW) < 0 ||
        mkdirat(fd, VOLUME_WORK, 0755) < 0 || fchmodat(fd, VOLUME_WORK, 0755, 0) < 0 ||
        syncfs(fd) < 0)
        return -errno;
    return 0;
}

static int btrfs_volume_remove(const struct disk *d, uint32_t n)
{
    char name[NAME_SIZE];
    int rc = btrfs_subvolume_destroy(d->volumes_fd, kept_name(name, n));

    return rc == -ENOENT ? 0 : rc;
}

static int btrfs_volume_make(const struct disk *d, uint32_t n, uint64_t bytes)
{
    char name[NAME_SIZE];
    int rc = btrfs_subvolume_create(d->volumes_fd, kept_name(name, n));

    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int fd = open_volume(d, n);
    rc = fd < 0 ? fd : fill_volume(fd, bytes);
    if (rc < 0)
        (void)btrfs_volume_remove(d, n);
    return rc;
}

/* The mark of the overlay that had it last, where it has not been forgotten: after a sync it may
 * go, as of a kept layer. */
static int settle_volume(int fd)
{
    CLEANUP_CLOSE int mark = mnt_open_beneath(fd, VOLUME_WORK "/work/incompat/volatile",
                                              O_PATH | O_DIRECTORY, 0);

    if (mark < 0)
        return mark == -ENOENT ? 0 : mark;
    return syncfs(fd) < 0 ? -errno : forget_volatile(fd);
}

static int btrfs_volume_tree(const struct disk *d, uint32_t n, bool read_only, int userns_fd)
{
    CLEANUP_CLOSE int fd = open_volume(d, n);
    int rc = fd < 0 ? fd : read_only ? 0 : settle_volume(fd);

    return rc < 0 ? rc
                  : mnt_clone_idmapped(fd, "",
                                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME |
                                           (read_only ? MOUNT_ATTR_RDONLY : 0),
                                       userns_fd);
}

bool disk_is_volume(const struct disk *d, uint32_t number)
{
    char name[NAME_SIZE];

    return faccessat(d->volumes_fd, kept_name(name, number), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static const struct disk_backend btrfs_backend = {
    .name = "btrfs",
    .layer_make = btrfs_layer_make,
    .layer_destroy = btrfs_layer_destroy,
    .layer_keep = btrfs_layer_keep,
    .layer_take = btrfs_layer_take,
    .kept_drop = btrfs_kept_drop,
    .layer_copy = btrfs_layer_copy,
    .kept_settle = btrfs_kept_settle,
    .layer_from = btrfs_layer_from,
    .volume_make = btrfs_volume_make,
    .volume_remove = btrfs_volume_remove,
    .volume_tree = btrfs_volume_tree,
    .layer_limit = btrfs_layer_limit,
    .layer_usage = btrfs_layer_usage,
    .layer_tree = btrfs_layer_tree,
};

/* --- memory ----------------------------------------------------------------------------------- */

static int memory_nothing(struct disk *d, uint32_t slot, uint32_t gen)
{
    return 0;
}

static int memory_layer_limit(struct disk *d, uint32_t slot, uint32_t gen, uint64_t bytes)
{
    return 0; /* it is the size of the tmpfs */
}

static int memory_layer_usage(const struct disk *d, uint32_t slot, uint32_t gen,
                              uint64_t *used_bytes, uint64_t *limit_bytes)
{
    return -EOPNOTSUPP; /* process_stat asks the mounted file system */
}

static int memory_layer_tree(struct disk *d, uint32_t slot, uint32_t gen, int userns_fd)
{
    return -EOPNOTSUPP;
}

static const struct disk_backend memory_backend = {
    .name = "memory",
    .layer_make = memory_nothing,
    .layer_destroy = memory_nothing,
    .layer_limit = memory_layer_limit,
    .layer_usage = memory_layer_usage,
    .layer_tree = memory_layer_tree,
};

/* An overlay in a user namespace keeps its marks in user.* attributes: tmpfs has them since 6.6. */
static int probe_memory(void)
{
    CLEANUP_CLOSE int fd = mnt_new("tmpfs", NULL, 0);
    if (fd < 0)
        return fd;
    CLEANUP_CLOSE int dir = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    return fsetxattr(dir, "user.cay", "1", 1, 0) < 0 ? -errno : 0;
}

/* --- choosing --------------------------------------------------------------------------------- */

static int make_dir(int dir_fd, const char *name)
{
    if (mkdirat(dir_fd, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    return mnt_open_beneath(dir_fd, name, O_RDONLY | O_DIRECTORY, 0);
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
    int view_fd = sysfs_stub_open(root_fd);
    if (view_fd < 0)
        log_warn("disk: sandboxes will have an empty /sys: %s", strerror(-view_fd));
    *out = (struct disk){.backend = backend,
                         .view_fd = view_fd,
                         .root_fd = root_fd,
                         .kept_fd = TAKE_FD(kept_fd),
                         .volumes_fd = TAKE_FD(volumes_fd),
                         .recycled_fd = TAKE_FD(recycled_fd),
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
    int rc = fill(&btrfs_backend, root_fd, out);
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
    int rc = probe_memory();
    if (rc < 0) {
        log_error("disk: tmpfs of this kernel has no user attributes (Linux 6.6 has): %s",
                  strerror(-rc));
        return rc;
    }
    CLEANUP_CLOSE int root_fd = make_dir(state_fd, RUNTIME_DISK_DIR);
    if (root_fd < 0)
        return root_fd;
    rc = fill(&memory_backend, root_fd, out);
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

    return io_each_name_at(d->layers_fd, ".", scan_name, &scan);
}
