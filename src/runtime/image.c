/* The state disk as a file: a btrfs image on a loop device, where the host's own file system is
 * not btrfs. disk.c calls image_mount once at cay-privd's start. Order: an image that is mounted
 * already is used as it is (a restart); else it is made beside its name and renamed when it is
 * whole, or checked for having been cut off and grown to the configured size; then attached,
 * mounted nosuid and nodev, and quotas are switched on. Names are opened beneath the state
 * directory without following links. disk_unmount undoes it at a stop that leaves nothing. */

#include "runtime/image.h"

#include "base/log.h"
#include "sys/btrfs.h"
#include "sys/loopdev.h"
#include "sys/mnt.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#define NEW_NAME  RUNTIME_DISK_IMAGE ".new"
#define BYTES_MIN (UINT64_C(256) << 20)
#define MKFS      "mkfs.btrfs"

/* The space of ended sandboxes is free after a commit or two; until then nothing can be written on
 * a full disk. */
#define OPTIONS "commit=5"
#define FLAGS   (MS_NOSUID | MS_NODEV | MS_NOATIME)

#define SUPERBLOCK_MAGIC_AT (0x10000 + 0x40) /* its total_bytes are at 0x70 */

/* The file is the child's descriptor 3, so that no path of ours has to be spelled out. */
static int run_mkfs(int file_fd)
{
    char *argv[] = {
        (char *)MKFS, (char *)"-q",     (char *)"-L",          (char *)"cay",
        (char *)"-m", (char *)"single", (char *)"--nodiscard", (char *)"/proc/self/fd/3",
        NULL};
    char *envp[] = {(char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    static const char *const where[] = {"/usr/sbin/" MKFS, "/sbin/" MKFS, "/usr/bin/" MKFS};
    posix_spawn_file_actions_t actions;
    int status, rc = ENOENT;
    pid_t pid = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, file_fd, 3);
    for (size_t i = 0; i < ARRAY_SIZE(where) && rc == ENOENT; i++)
        rc = posix_spawn(&pid, where[i], &actions, NULL, argv, envp);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return -rc;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

/* A sparse file promises room that the host may not have, and running out of it looks like a broken
 * disk inside: never more than four fifths of what is free now. */
static uint64_t affordable(int state_fd, uint64_t wanted)
{
    struct statfs fs;
    if (fstatfs(state_fd, &fs) < 0)
        return wanted;
    uint64_t most = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / 5 * 4;
    if (wanted <= most)
        return wanted;
    log_warn("disk: only %llu MiB are free for the image, not the %llu configured",
             (unsigned long long)(most >> 20), (unsigned long long)(wanted >> 20));
    return most;
}

static int make_image(const struct runtime_config *config, int state_fd)
{
    uint64_t bytes = affordable(state_fd, config->disk_bytes) & ~UINT64_C(0xfffff);
    if (bytes < BYTES_MIN) {
        log_error("disk: an image needs at least %llu MiB", (unsigned long long)(BYTES_MIN >> 20));
        return -ENOSPC;
    }
    CLEANUP_CLOSE int fd = mnt_open_beneath(state_fd, NEW_NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        return fd;
    int flags =
        FS_NOCOW_FL; /* copy-on-write below copy-on-write only fragments; ignored elsewhere */
    if (btrfs_is(fd))
        (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
    if (ftruncate(fd, (off_t)bytes) < 0)
        return -errno;
    int rc = run_mkfs(fd);
    if (rc < 0) {
        log_error("disk: " MKFS " of the image failed: %s (package btrfs-progs)", strerror(-rc));
        unlinkat(state_fd, NEW_NAME, 0);
        return rc;
    }
    /* Its name appears only when it is whole: a crash in between leaves nothing that looks
     * usable. */
    if (fsync(fd) < 0 || renameat(state_fd, NEW_NAME, state_fd, RUNTIME_DISK_IMAGE) < 0)
        return -errno;
    log_info("disk: made an image of %llu MiB (sparse)", (unsigned long long)(bytes >> 20));
    return TAKE_FD(fd);
}

/* Grows the file; the device and the file system follow once they are there. */
static bool grow_file(const struct runtime_config *config, int state_fd, int file_fd)
{
    struct stat st;
    if (fstat(file_fd, &st) < 0 || (uint64_t)st.st_size >= config->disk_bytes)
        return false;
    uint64_t more = config->disk_bytes - (uint64_t)st.st_size;
    uint64_t bytes = ((uint64_t)st.st_size + affordable(state_fd, more)) & ~UINT64_C(0xfffff);
    return bytes > (uint64_t)st.st_size && ftruncate(file_fd, (off_t)bytes) == 0;
}

/* A file that is shorter than the file system in it was cut off: mounted, it would lose what it is
 * asked for bit by bit. The place and form of the superblock are btrfs' own
 * (fs/btrfs/accessors.h). */
static int check_whole(int file_fd)
{
    struct {
        char magic[8];
        uint8_t between[40];
        uint64_t total_bytes;
    } part;
    struct stat st;

    if (fstat(file_fd, &st) < 0)
        return -errno;
    if (pread(file_fd, &part, sizeof(part), SUPERBLOCK_MAGIC_AT) != (ssize_t)sizeof(part) ||
        memcmp(part.magic, "_BHRfS_M", sizeof(part.magic)) != 0) {
        log_error("disk: " RUNTIME_DISK_IMAGE " is damaged: there is no btrfs in it");
        return -EUCLEAN;
    }
    if (le64toh(part.total_bytes) <= (uint64_t)st.st_size)
        return 0;
    log_error("disk: " RUNTIME_DISK_IMAGE " was cut off: %llu of its %llu MiB are there",
              (unsigned long long)st.st_size >> 20,
              (unsigned long long)le64toh(part.total_bytes) >> 20);
    return -EUCLEAN;
}

static int attach(int state_fd, int file_fd, const char *dir)
{
    char name[32];
    CLEANUP_CLOSE int device = loopdev_find(file_fd, name);
    if (device == -ENOENT)
        device = loopdev_attach(file_fd, name);
    if (device < 0) {
        log_error("disk: no loop device: %s", strerror(-device));
        return device;
    }
    (void)loopdev_grow(device);
    /* nosuid and nodev: whatever a tenant writes is only data to the host. Set-uid programs work
     * inside a sandbox, as there it is the overlay's own flags that count. */
    if (mount(name, dir, "btrfs", FLAGS, OPTIONS ",discard=async") < 0 &&
        mount(name, dir, "btrfs", FLAGS, OPTIONS) < 0) {
        int rc = -errno;
        log_error("disk: the image on %s cannot be mounted: %s", name, strerror(errno));
        return rc;
    }
    return 0;
}

static int open_root(int state_fd)
{
    return mnt_open_beneath(state_fd, RUNTIME_DISK_DIR, O_RDONLY | O_DIRECTORY, 0);
}

static bool is_mounted(int state_fd)
{
    struct stat a, b;
    CLEANUP_CLOSE int fd = open_root(state_fd);
    return fd >= 0 && fstat(fd, &a) == 0 && fstat(state_fd, &b) == 0 && a.st_dev != b.st_dev &&
           btrfs_is(fd);
}

static void disk_path(int state_fd, char out[static 64])
{
    snprintf(out, 64, "/proc/self/fd/%d/" RUNTIME_DISK_DIR, state_fd);
}

static int mount_image(const struct runtime_config *config, int state_fd, bool *grown)
{
    char dir[64];
    int rc = 0;
    CLEANUP_CLOSE int file = mnt_open_beneath(state_fd, RUNTIME_DISK_IMAGE, O_RDWR, 0);
    if (file == -ENOENT)
        file = make_image(config, state_fd);
    else if (file >= 0 && (rc = check_whole(file)) == 0)
        *grown = grow_file(config, state_fd, file);
    if (rc < 0)
        return rc;
    if (file < 0)
        return file;
    disk_path(state_fd, dir);
    return attach(state_fd, file, dir);
}

int image_mount(const struct runtime_config *config, int state_fd)
{
    bool grown = false;
    int rc = is_mounted(state_fd) ? 0 : mount_image(config, state_fd, &grown);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int root = open_root(state_fd);
    if (root < 0)
        return root;
    if (grown && (rc = btrfs_grow(root)) < 0)
        log_warn("disk: the image has grown, its file system has not: %s", strerror(-rc));
    if (btrfs_quota_is_on(root) != 1 && (rc = btrfs_quota_on(root)) < 0) {
        log_error("disk: no quotas on the image: %s", strerror(-rc));
        return rc;
    }
    return TAKE_FD(root);
}

bool image_exists(int state_fd)
{
    struct stat st;

    return fstatat(state_fd, RUNTIME_DISK_IMAGE, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int image_unmount(int state_fd)
{
    char dir[64];
    disk_path(state_fd, dir);
    return umount2(dir, 0) < 0 ? -errno : 0;
}
