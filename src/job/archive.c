#include "job/archive.h"

#include "base/util.h"
#include "contract/archive.h"
#include "contract/exchange.h"
#include "job/archive_walls.h"
#include "job/run.h"
#include "job/say.h"
#include "job/tree.h"
#include "sys/btrfs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define MKSQUASHFS  "/usr/bin/mksquashfs"
#define MARKS       "user.overlay." /* the kernel's, about the layer below */
#define NAMES_BYTES 65536
#define VALUE_BYTES 65536
#define SPARE_BYTES (UINT64_C(64) << 20)
#define LENGTH_MAX  (32ull * 1024 * 1024 * 1024) /* mksquashfs reads holes, a GiB a second */

struct archiving {
    char name[16];      /* of the one that is made */
    const char *layers; /* where the layer that is read is */
    int all_fd;         /* ARCHIVING_DIR */
    int kept_fd;        /* the layer that is read */
    int new_fd;         /* the one that is made; -1: not yet */
};

/* -- whether it can be ------------------------------------------------------------------------- */

static int refuse_parts(const struct archiving *a)
{
    struct stat st;

    if (fstatat(a->kept_fd, ARCHIVE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return say_failure(EALREADY, "it was archived before: its archive lies below what it wrote "
                                     "since, and stays");
    /* Names of the sandbox are put there at each start (runtime/rootfs.c). */
    if (fstatat(a->kept_fd, "root/etc", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return say_failure(EOPNOTSUPP, "its /etc is no directory");
    return 0;
}

/* A file of as many bytes as the layer, at the worst. */
static int refuse_space(const struct archiving *a)
{
    uint64_t id, used = 0, most;
    struct statvfs fs;
    int rc = btrfs_subvolume_id(a->kept_fd, &id);

    if (rc == 0)
        rc = btrfs_usage(a->kept_fd, id, &used, &most);
    if (rc < 0 || fstatvfs(a->kept_fd, &fs) < 0)
        return say_failure(rc < 0 ? -rc : errno, "its size cannot be told");
    if ((uint64_t)fs.f_bavail * fs.f_frsize < used + SPARE_BYTES)
        return say_failure(ENOSPC, "the state disk has less room than the %llu MiB that it takes",
                           (unsigned long long)(used >> 20));
    return 0;
}

/* Holes take none of the sandbox's disk, and all of them are read while others wait. */
static int refuse_length(const struct archiving *a)
{
    static const char *const trees[] = {"root", "usr"};
    uint64_t bytes = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && bytes <= LENGTH_MAX && i < ARRAY_SIZE(trees); i++) {
        char path[40];
        uint64_t more = 0;

        snprintf(path, sizeof(path), "../%s/%s/%s", a->layers, a->name, trees[i]);
        rc = tree_length(path, LENGTH_MAX - bytes, &more);
        bytes += more;
    }
    if (rc < 0)
        return say_failure(EOPNOTSUPP, "the length of its files cannot be told: %s", strerror(-rc));
    if (bytes > LENGTH_MAX)
        return say_failure(EOPNOTSUPP,
                           "its files are longer than %llu GiB together, with their holes",
                           (unsigned long long)(LENGTH_MAX >> 30));
    return 0;
}

/* -- the directories above the file ------------------------------------------------------------ */

static int copy_attribute(int from_fd, int to_fd, const char *name)
{
    static char value[VALUE_BYTES];
    ssize_t n = fgetxattr(from_fd, name, value, sizeof(value));

    return n < 0 || fsetxattr(to_fd, name, value, (size_t)n, 0) < 0 ? -errno : 0;
}

static int copy_attributes(int from_fd, int to_fd)
{
    static char names[NAMES_BYTES];
    ssize_t n = flistxattr(from_fd, names, sizeof(names));
    int rc = n < 0 ? -errno : 0;

    for (const char *name = names; rc == 0 && name < names + n; name += strlen(name) + 1)
        if (strncmp(name, MARKS, strlen(MARKS)) != 0)
            rc = copy_attribute(from_fd, to_fd, name);
    return rc;
}

/* Inside, it is the mode and owner of the directory in the highest layer that count. */
static int make_dir_like(const struct archiving *a, const char *path)
{
    struct stat st;
    CLEANUP_CLOSE int from = mnt_open_beneath(a->kept_fd, path, O_RDONLY | O_DIRECTORY, 0);

    if (from < 0)
        return from;
    if (fstat(from, &st) < 0 || mkdirat(a->new_fd, path, 0700) < 0)
        return -errno;
    CLEANUP_CLOSE int to = mnt_open_beneath(a->new_fd, path, O_RDONLY | O_DIRECTORY, 0);
    if (to < 0)
        return to;
    if (fchown(to, st.st_uid, st.st_gid) < 0 || fchmod(to, st.st_mode & 07777) < 0)
        return -errno;
    int rc = copy_attributes(from, to);
    const struct timespec times[] = {st.st_atim, st.st_mtim};
    return rc < 0 ? rc : futimens(to, times) < 0 ? -errno : 0;
}

static int make_work_dir(const struct archiving *a, const char *name)
{
    return mkdirat(a->new_fd, name, 0755) < 0 || fchmodat(a->new_fd, name, 0755, 0) < 0 ? -errno
                                                                                        : 0;
}

static int make_layer(struct archiving *a)
{
    int rc = btrfs_subvolume_destroy(a->all_fd, a->name);

    if (rc == 0 || rc == -ENOENT)
        rc = btrfs_subvolume_create(a->all_fd, a->name);
    if (rc < 0)
        return rc;
    a->new_fd = mnt_open_beneath(a->all_fd, a->name, O_RDONLY | O_DIRECTORY, 0);
    if (a->new_fd < 0)
        return a->new_fd;
    rc = make_dir_like(a, "root");
    if (rc == 0)
        rc = make_dir_like(a, "root/etc");
    if (rc == 0)
        rc = make_dir_like(a, "usr");
    if (rc == 0)
        rc = make_work_dir(a, "root.work");
    return rc == 0 ? make_work_dir(a, "usr.work") : rc;
}

/* -- the file ---------------------------------------------------------------------------------- */

/* It says nothing where all of the layer is in the file: a word about one that was left out is a
 * failure, whatever its status. */
static void on_line(void *arg, const char *line)
{
    char *said = arg;

    if (!said[0] && line[0])
        snprintf(said, RUN_LINE_MAX, "%s", line);
}

static int make_file(const struct archiving *a, uint64_t bytes_max)
{
    static const char out_file[] = "/out/" ARCHIVE_FILE;
    static const char *const argv[] = {MKSQUASHFS,
                                       "/layer/root",
                                       "/layer/usr",
                                       out_file,
                                       "-comp",
                                       "zstd",
                                       "-Xcompression-level",
                                       "3",
                                       "-noappend",
                                       "-no-progress",
                                       "-quiet",
                                       "-no-recovery",
                                       "-exit-on-error",
                                       "-xattrs",
                                       "-processors",
                                       "1",
                                       "-mem",
                                       "256M",
                                       NULL};
    const struct archive_walls walls = {.layer_fd = a->kept_fd,
                                        .out_fd = a->new_fd,
                                        .in_fd = -1,
                                        .data_fd = -1,
                                        .bytes_max = bytes_max};
    char said[RUN_LINE_MAX] = "";

    if (access(MKSQUASHFS, X_OK) < 0)
        return say_failure(EOPNOTSUPP, "mksquashfs is not there (package squashfs-tools)");
    int status = run_program_within((char *const *)argv, archive_walls_enter, &walls, on_line,
                                    said);
    if (status != 0 || said[0])
        return say_failure(strstr(said, "No space") || strstr(said, "quota") ? ENOSPC : EOPNOTSUPP,
                           "it cannot be archived: %s (status %d)", said[0] ? said : "mksquashfs",
                           status);
    CLEANUP_CLOSE int file = mnt_open_beneath(a->new_fd, ARCHIVE_FILE, O_RDWR, 0);
    if (file < 0 || fchown(file, 0, 0) < 0 || fchmod(file, 0600) < 0)
        return say_failure(EIO, "the archive is not there");
    return 0;
}

static int build(struct archiving *a)
{
    int rc = refuse_parts(a);

    if (rc == 0)
        rc = refuse_space(a);
    if (rc == 0)
        rc = refuse_length(a);
    if (rc < 0)
        return rc;
    rc = make_layer(a);
    if (rc < 0)
        return say_failure(-rc, "no layer for the archive: %s", strerror(-rc));
    return make_file(a, ARCHIVE_BYTES_MAX);
}

static void undo(struct archiving *a)
{
    if (btrfs_subvolume_destroy(a->all_fd, a->name) < 0)
        say_progress(100, "the new layer is left for the next start");
}

static void close_all(struct archiving *a)
{
    util_close(&a->new_fd);
    util_close(&a->kept_fd);
    util_close(&a->all_fd);
}

static int open_kept(struct archiving *a, uint32_t number)
{
    char path[40];

    snprintf(path, sizeof(path), "../kept/%u", number);
    a->all_fd = open("../" ARCHIVING_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    a->kept_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return a->all_fd < 0 || a->kept_fd < 0 ? say_failure(ENOENT, "there are no such files") : 0;
}

int archive_build(uint32_t number)
{
    struct archiving a = {.layers = "kept", .new_fd = -1};

    snprintf(a.name, sizeof(a.name), "%u", number);
    int rc = open_kept(&a, number);

    if (rc == 0)
        rc = build(&a);
    if (rc < 0 && a.new_fd >= 0)
        undo(&a);
    close_all(&a);
    return rc;
}

/* -- for other servers ------------------------------------------------------------------------- */

/* The header has of these directories what stat tells. Attributes of the kernel's, about the layer
 * below, are made anew by the next overlay. */
static int refuse_attributes(const struct archiving *a)
{
    static char names[NAMES_BYTES];

    for (size_t i = 0; i < EXCHANGE_DIRS; i++) {
        const char *dir = exchange_dir_names[i];
        CLEANUP_CLOSE int fd = mnt_open_beneath(a->kept_fd, dir, O_RDONLY | O_DIRECTORY, 0);
        ssize_t n = fd < 0 ? fd : flistxattr(fd, names, sizeof(names));

        if (n < 0)
            return say_failure(fd < 0 ? -fd : errno, "its %s cannot be read", dir);
        for (const char *name = names; name < names + n; name += strlen(name) + 1)
            if (strncmp(name, MARKS, strlen(MARKS)) != 0)
                return say_failure(EOPNOTSUPP, "its /%s has extended attributes",
                                   i == 0   ? ""
                                   : i == 1 ? "etc"
                                            : dir);
    }
    return 0;
}

static int refuse_export(const struct archiving *a)
{
    struct stat st;

    if (fstatat(a->kept_fd, ARCHIVE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return say_failure(EALREADY, "a part of its files lies in a file below them already, as "
                                     "it began with an archive or an import");
    int rc = refuse_parts(a);
    return rc == 0 ? refuse_attributes(a) : rc;
}

/* The kept layer is read once, in a call of the file system: it may go, or be taken, after that. */
static int take_snapshot(struct archiving *a)
{
    int rc = btrfs_subvolume_destroy(a->all_fd, a->name);

    if (rc == 0 || rc == -ENOENT)
        rc = btrfs_snapshot(a->kept_fd, a->all_fd, a->name, false);
    if (rc < 0)
        return say_failure(-rc, "no copy of the layer: %s", strerror(-rc));
    a->new_fd = mnt_open_beneath(a->all_fd, a->name, O_RDONLY | O_DIRECTORY, 0);
    int copy = a->new_fd < 0 ? -1 : fcntl(a->new_fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return say_failure(EIO, "the copy of the layer is not there");
    util_close(&a->kept_fd);
    a->kept_fd = copy;
    return 0;
}

int archive_export(uint32_t number)
{
    struct archiving a = {.layers = ARCHIVING_DIR, .new_fd = -1};

    snprintf(a.name, sizeof(a.name), "%u", EXCHANGE_EXPORT_NUMBER);
    int rc = open_kept(&a, number);

    if (rc == 0)
        rc = refuse_export(&a);
    if (rc == 0)
        rc = refuse_space(&a);
    if (rc == 0)
        rc = take_snapshot(&a);
    if (rc == 0)
        rc = refuse_length(&a);
    if (rc == 0)
        rc = make_file(&a, EXCHANGE_BYTES_MAX);
    if (rc < 0 && a.new_fd >= 0)
        undo(&a);
    close_all(&a);
    return rc;
}
