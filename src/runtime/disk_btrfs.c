/* Layers, kept files and volumes as subvolumes. A layer lives by slot and generation until it is
 * destroyed, recycled, or kept: forgotten by the kernel as a volatile overlay's, renamed to a
 * number, and on the disk when keep returns. take, from and tree are the ways back, and each
 * forgets again what the next mount or start must not find: the kernel's marks of the last overlay,
 * and the two files with the name of the last sandbox. Files of a tenant are neither followed nor
 * walked there. Called through disk.h's table only; functions that may take long, in a task, never
 * in privd's loop. */

#include "runtime/disk_btrfs.h"

#include "base/util.h"
#include "contract/archive.h"
#include "contract/bucket.h"
#include "runtime/copies_ahead.h"
#include "runtime/disk_name.h"
#include "runtime/recycled_layer.h"
#include "sys/btrfs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ASIDE_MAX 64u /* names that are tried */

/* The names that forget_volatile knows, as of a layer. */
#define VOLUME_ROOT "root"
#define VOLUME_WORK "root.work"
#define VOLUME_UID  1000

static int open_layer(const struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[DISK_NAME_SIZE];
    return mnt_open_beneath(d->layers_fd, disk_name_layer(name, slot, gen), O_RDONLY | O_DIRECTORY,
                            0);
}

static int btrfs_layer_make(struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[DISK_NAME_SIZE];
    if (recycled_layer_take(d->recycled_fd, d->layers_fd, disk_name_layer(name, slot, gen)) == 0)
        return 0;
    int rc = btrfs_subvolume_create(d->layers_fd, name);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    return fd < 0 ? fd : recycled_layer_make_dirs(fd);
}

/* A layer that nothing was put into is kept to be used again. The kernel drops the account of any
 * other once its blocks are free. Not earlier, and not by us: with an account removed while blocks
 * are still being freed, simple quotas abort the transaction, and the disk is read-only. */
static int recycle_or_destroy(const struct disk *d, int dir_fd, const char *name)
{
    if (recycled_layer_make_new(d->root_fd, dir_fd, name, d->layer_inodes) &&
        recycled_layer_put(d->recycled_fd, dir_fd, name) == 0)
        return 0;
    return btrfs_subvolume_destroy(dir_fd, name);
}

static int btrfs_layer_destroy(struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[DISK_NAME_SIZE];
    int rc = recycle_or_destroy(d, d->layers_fd, disk_name_layer(name, slot, gen));
    if (rc == -ENOENT) { /* the task that made it may have ended before it was moved */
        CLEANUP_CLOSE int dir = copies_ahead_dir(d, slot);
        rc = dir < 0 ? dir : btrfs_subvolume_destroy(dir, name);
    }
    return rc == -ENOENT ? 0 : rc;
}

static int btrfs_layer_give_back(struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[DISK_NAME_SIZE];
    int rc = recycled_layer_put(d->recycled_fd, d->layers_fd, disk_name_layer(name, slot, gen));

    return rc < 0 ? btrfs_layer_destroy(d, slot, gen) : 0;
}

/* Beside copies that are being made, which a start of privd removes, too: a '+' in its name. */
static const char *aside_name(char name[static DISK_NAME_SIZE], uint32_t slot, uint32_t gen)
{
    snprintf(name, DISK_NAME_SIZE, "%u.%u+", slot, gen);
    return name;
}

static int btrfs_layer_put_aside(const struct disk *d, uint32_t slot, uint32_t gen)
{
    char from[DISK_NAME_SIZE], to[DISK_NAME_SIZE];
    CLEANUP_CLOSE int dir = copies_ahead_dir(d, slot);

    if (dir < 0)
        return dir;
    return renameat2(d->layers_fd, disk_name_layer(from, slot, gen), dir, aside_name(to, slot, gen),
                     RENAME_NOREPLACE) < 0
               ? -errno
               : 0;
}

static int btrfs_layer_aside_end(const struct disk *d, uint32_t slot, uint32_t gen)
{
    char name[DISK_NAME_SIZE];
    CLEANUP_CLOSE int dir = copies_ahead_dir(d, slot);

    if (dir < 0)
        return dir;
    aside_name(name, slot, gen);
    if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    int rc = recycle_or_destroy(d, dir, name);
    return rc == -ENOENT ? 0 : rc;
}

static int btrfs_layer_limit(struct disk *d, uint32_t slot, uint32_t gen, uint64_t bytes,
                             struct disk_rooms *rooms)
{
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    return fd < 0 ? fd : disk_room_limit(rooms, d->root_fd, fd, bytes);
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

/* Removes the kernel's mark that a volatile overlay may have lost writes: the layer is synced, so
 * none is lost. And the directories above it: the next overlay would empty and remove them, in each
 * copy of the layer. They are the kernel's own; no name of a tenant's is followed, and where more
 * is left in them that overlay removes it. */
static int forget_volatile(int layer_fd)
{
    static const struct {
        const char *dir, *name;
        int flags, may_fail_with;
    } names[] = {
        {"root.work/work/incompat/volatile", "dirty", 0, ENOENT},
        {"root.work/work/incompat", "volatile", AT_REMOVEDIR, ENOENT},
        {"root.work/work", "incompat", AT_REMOVEDIR, ENOTEMPTY},
        {"root.work", "work", AT_REMOVEDIR, ENOTEMPTY},
        {"usr.work/work/incompat/volatile", "dirty", 0, ENOENT},
        {"usr.work/work/incompat", "volatile", AT_REMOVEDIR, ENOENT},
        {"usr.work/work", "incompat", AT_REMOVEDIR, ENOTEMPTY},
        {"usr.work", "work", AT_REMOVEDIR, ENOTEMPTY},
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        CLEANUP_CLOSE int dir = mnt_open_beneath(layer_fd, names[i].dir, O_PATH | O_DIRECTORY, 0);

        if (dir == -ENOENT)
            continue;
        if (dir < 0)
            return dir;
        if (unlinkat(dir, names[i].name, names[i].flags) < 0 && errno != ENOENT &&
            errno != names[i].may_fail_with)
            return -errno;
    }
    return 0;
}

static int remove_image(int layer_fd)
{
    return unlinkat(layer_fd, DISK_IMAGE_NAME, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int btrfs_image_remove(const struct disk *d, uint32_t slot, uint32_t gen)
{
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);

    return fd < 0 ? fd : remove_image(fd);
}

/* The directory is root's, and no mount shows it: the name is cay's own. */
static int btrfs_image_open(const struct disk *d, uint32_t slot, uint32_t gen, bool make)
{
    int rc = make ? btrfs_image_remove(d, slot, gen) : 0;
    CLEANUP_CLOSE int fd = rc < 0 ? rc : open_layer(d, slot, gen);

    return fd < 0 ? fd
                  : mnt_open_beneath(fd, DISK_IMAGE_NAME,
                                     make ? O_RDWR | O_CREAT | O_EXCL : O_RDONLY, make ? 0600 : 0);
}

/* A single commit of the file system has both the files and the new name. */
static int btrfs_layer_keep(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n)
{
    char from[DISK_NAME_SIZE], to[DISK_NAME_SIZE];
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
    if (renameat2(d->layers_fd, disk_name_layer(from, slot, gen), d->kept_fd,
                  disk_name_number(to, n), RENAME_NOREPLACE) < 0)
        return -errno;
    return syncfs(d->kept_fd) < 0 ? -errno : 0;
}

/* A directory that holds something is not walked: it gets another name beside its own. */
static int move_aside(int dir_fd, const char *name)
{
    char aside[DISK_NAME_SIZE];

    for (unsigned i = 1; i <= ASIDE_MAX; i++) {
        snprintf(aside, sizeof(aside), "%s.%u", name, i);
        if (renameat2(dir_fd, name, dir_fd, aside, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

/* The three files that carry the sandbox's name are made anew by the next start (rootfs.c). Other
 * files that a tenant has put in their place are removed or renamed. Where its /etc is a link, a
 * file or removed, there is nothing of cay's to remove, and nothing is made: links are never
 * followed. */
static int forget_names(int layer_fd)
{
    static const char *const names[] = {"hosts", "hostname", "machine-id"};
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

/* Memory beside the files is of the moment in which they were kept: it ends where they go on. */
static int forget_last(int layer_fd)
{
    int rc = remove_image(layer_fd);

    return rc < 0 ? rc : forget_names(layer_fd);
}

static int btrfs_layer_forget(const struct disk *d, uint32_t slot, uint32_t gen)
{
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);

    return fd < 0 ? fd : forget_last(fd);
}

static int btrfs_layer_take(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n)
{
    char from[DISK_NAME_SIZE], to[DISK_NAME_SIZE];

    return renameat2(d->kept_fd, disk_name_number(from, n), d->layers_fd,
                     disk_name_layer(to, slot, gen), RENAME_NOREPLACE) < 0
               ? -errno
               : 0;
}

static int open_kept(const struct disk *d, uint32_t n)
{
    char name[DISK_NAME_SIZE];

    return mnt_open_beneath(d->kept_fd, disk_name_number(name, n), O_RDONLY | O_DIRECTORY, 0);
}

static int btrfs_layer_copy(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n)
{
    char name[DISK_NAME_SIZE];
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);

    return fd < 0 ? fd : btrfs_snapshot(fd, d->kept_fd, disk_name_number(name, n), false);
}

static int btrfs_kept_settle(const struct disk *d, uint32_t n)
{
    CLEANUP_CLOSE int fd = open_kept(d, n);

    return fd < 0 ? fd : forget_volatile(fd);
}

/* Once, and not in each copy: no other start has what is kept for these. None of it outlives privd,
 * nor a loss of power. */
static int btrfs_kept_copies_ahead(const struct disk *d, uint32_t n, uint32_t count)
{
    CLEANUP_CLOSE int fd = open_kept(d, n);
    int rc = fd < 0 ? fd : forget_volatile(fd);

    if (rc == 0)
        rc = forget_last(fd);
    return rc < 0 ? rc : copies_ahead_make(d, fd, n, count);
}

/* A directory that few others use, as of copies that are made ahead; then it gets its name. */
static int copy_kept(const struct disk *d, uint32_t slot, uint32_t n, const char *name)
{
    CLEANUP_CLOSE int kept = open_kept(d, n);
    CLEANUP_CLOSE int dir = copies_ahead_dir(d, slot);

    if (kept < 0 || dir < 0)
        return kept < 0 ? kept : dir;
    int rc = btrfs_snapshot(kept, dir, name, false);
    if (rc == 0 && renameat2(dir, name, d->layers_fd, name, RENAME_NOREPLACE) < 0)
        rc = -errno;
    if (rc < 0 && btrfs_subvolume_destroy(dir, name) < 0)
        return rc; /* the end of the slot tries it again */
    return rc;
}

/* The marks again: a loss of power may have brought them back. */
static int btrfs_layer_from(const struct disk *d, uint32_t slot, uint32_t gen, uint32_t n,
                            uint32_t ahead)
{
    char name[DISK_NAME_SIZE];
    int rc = copies_ahead_take(d, n, ahead, slot, disk_name_layer(name, slot, gen));

    if (rc == 0)
        return DISK_FORGOT;
    if (rc == -ENOENT)
        rc = copy_kept(d, slot, n, name);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);
    return fd < 0 ? fd : forget_volatile(fd);
}

static int btrfs_kept_drop(const struct disk *d, uint32_t n, uint32_t ahead)
{
    char name[DISK_NAME_SIZE];
    int rc = btrfs_subvolume_destroy(d->kept_fd, disk_name_number(name, n));

    return rc < 0 && rc != -ENOENT ? rc : copies_ahead_drop(d, n, ahead);
}

static int btrfs_archive_open(const struct disk *d, uint32_t slot, uint32_t gen)
{
    CLEANUP_CLOSE int fd = open_layer(d, slot, gen);

    return fd < 0 ? fd : mnt_open_beneath(fd, ARCHIVE_FILE, O_RDONLY, 0);
}

static int btrfs_archive_open_kept(const struct disk *d, uint32_t n)
{
    CLEANUP_CLOSE int fd = open_kept(d, n);

    return fd < 0 ? fd : mnt_open_beneath(fd, ARCHIVE_FILE, O_RDONLY, 0);
}

/* Where that cannot be told, it is taken to be. */
static bool btrfs_archive_is_away(const struct disk *d, uint32_t n)
{
    CLEANUP_CLOSE int fd = open_kept(d, n);

    return fd >= 0 &&
           (faccessat(fd, BUCKET_MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT);
}

static int btrfs_archive_open_new(const struct disk *d, uint32_t n)
{
    char path[DISK_NAME_SIZE + sizeof(ARCHIVE_FILE)], name[DISK_NAME_SIZE];

    snprintf(path, sizeof(path), "%s/" ARCHIVE_FILE, disk_name_number(name, n));
    return mnt_open_beneath(d->archiving_fd, path, O_RDWR, 0);
}

static int btrfs_archive_undo(const struct disk *d, uint32_t n)
{
    char name[DISK_NAME_SIZE];
    int rc = btrfs_subvolume_destroy(d->archiving_fd, disk_name_number(name, n));

    return rc == -ENOENT ? 0 : rc;
}

/* Both names change in one step, so that at every moment the number has a whole layer. */
static int btrfs_archive_swap(const struct disk *d, uint32_t n)
{
    char name[DISK_NAME_SIZE];

    disk_name_number(name, n);
    if (syncfs(d->archiving_fd) < 0 ||
        renameat2(d->archiving_fd, name, d->kept_fd, name, RENAME_EXCHANGE) < 0 ||
        syncfs(d->kept_fd) < 0)
        return -errno;
    return btrfs_archive_undo(d, n);
}

/* A single commit of the file system has all of it and the name. */
static int btrfs_archive_put(const struct disk *d, uint32_t n)
{
    char name[DISK_NAME_SIZE];

    disk_name_number(name, n);
    return syncfs(d->archiving_fd) < 0 ||
                   renameat2(d->archiving_fd, name, d->kept_fd, name, RENAME_NOREPLACE) < 0 ||
                   syncfs(d->kept_fd) < 0
               ? -errno
               : 0;
}

static int open_volume(const struct disk *d, uint32_t n)
{
    char name[DISK_NAME_SIZE];

    return mnt_open_beneath(d->volumes_fd, disk_name_number(name, n), O_RDONLY | O_DIRECTORY, 0);
}

/* Its root belongs to the ordinary user of the built-in templates, and all users inside may write
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
    char name[DISK_NAME_SIZE];
    int rc = btrfs_subvolume_destroy(d->volumes_fd, disk_name_number(name, n));

    return rc == -ENOENT ? 0 : rc;
}

static int btrfs_volume_make(const struct disk *d, uint32_t n, uint64_t bytes)
{
    char name[DISK_NAME_SIZE];
    int rc = btrfs_subvolume_create(d->volumes_fd, disk_name_number(name, n));

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

static int btrfs_volume_tree(const struct disk *d, const struct disk_volume *v, int userns_fd)
{
    CLEANUP_CLOSE int fd = open_volume(d, v->number);
    int rc = fd < 0 ? fd : v->read_only ? 0 : settle_volume(fd);

    if (rc == 0 && !v->read_only && v->bytes > 0)
        rc = disk_room_limit(v->rooms, d->root_fd, fd, v->bytes);
    return rc < 0 ? rc
                  : mnt_clone_idmapped(fd, "",
                                       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME |
                                           (v->read_only ? MOUNT_ATTR_RDONLY : 0),
                                       userns_fd);
}

const struct disk_backend disk_btrfs_backend = {
    .name = "btrfs",
    .layer_make = btrfs_layer_make,
    .layer_destroy = btrfs_layer_destroy,
    .layer_give_back = btrfs_layer_give_back,
    .layer_put_aside = btrfs_layer_put_aside,
    .layer_aside_end = btrfs_layer_aside_end,
    .layer_keep = btrfs_layer_keep,
    .layer_take = btrfs_layer_take,
    .kept_drop = btrfs_kept_drop,
    .layer_copy = btrfs_layer_copy,
    .kept_settle = btrfs_kept_settle,
    .layer_from = btrfs_layer_from,
    .kept_copies_ahead = btrfs_kept_copies_ahead,
    .image_open = btrfs_image_open,
    .image_remove = btrfs_image_remove,
    .layer_forget = btrfs_layer_forget,
    .archive_open = btrfs_archive_open,
    .archive_open_kept = btrfs_archive_open_kept,
    .archive_is_away = btrfs_archive_is_away,
    .archive_open_new = btrfs_archive_open_new,
    .archive_swap = btrfs_archive_swap,
    .archive_undo = btrfs_archive_undo,
    .archive_put = btrfs_archive_put,
    .volume_make = btrfs_volume_make,
    .volume_remove = btrfs_volume_remove,
    .volume_tree = btrfs_volume_tree,
    .layer_limit = btrfs_layer_limit,
    .layer_usage = btrfs_layer_usage,
    .layer_tree = btrfs_layer_tree,
};
