/* First the directory is measured, so that one that is too large stays untouched. Then the volume
 * gets a mark, each entry is moved into it (fs_move.c: a copy under a name of its own, renamed when
 * it is whole), and the mark goes. A volume that has the mark is taken for new: what it has of a
 * call that was cut off is whole, and the rest follows. The directory goes last, with all that is
 * left in it. */

#include "agent/volume_place.h"

#include "agent/common/agent.h"
#include "agent/common/path.h"
#include "agent/fs/fs_move.h"
#include "agent/fs/fs_remove.h"
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MARK      ".cay-filling"
#define DEPTH_MAX 32u
#define OPEN_DIR  (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

/* -- which directories ------------------------------------------------------------------------- */

static bool is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Without these no program starts, and cay has files of its own there. */
static bool is_of_the_system(const char *path)
{
    static const char *const with_all_below[] = {"/etc",   "/usr",   "/bin",    "/sbin", "/lib",
                                                 "/lib32", "/lib64", "/libx32", "/boot"};

    for (size_t i = 0; i < ARRAY_SIZE(with_all_below); i++)
        if (is_below(path, with_all_below[i]))
            return true;
    return strcmp(path, "/var") == 0 || strcmp(path, "/run") == 0;
}

struct measure {
    int dir_fd;
    unsigned depth;
    uint64_t *entries, *bytes;
    int rc;
};

static int measure_dir(int dir_fd, unsigned depth, uint64_t *entries, uint64_t *bytes);

static bool measure_one(void *arg, const char *name)
{
    struct measure *m = arg;
    struct stat st;

    if (fstatat(m->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return true;
    *m->bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    if (++*m->entries > VOLUME_PLACE_ENTRIES_MAX || *m->bytes > VOLUME_PLACE_BYTES_MAX) {
        m->rc = -EEXIST;
    } else if (S_ISDIR(st.st_mode)) {
        CLEANUP_CLOSE int fd = openat(m->dir_fd, name, OPEN_DIR);

        m->rc = fd < 0 ? -errno : measure_dir(fd, m->depth + 1, m->entries, m->bytes);
    }
    return m->rc == 0;
}

static int measure_dir(int dir_fd, unsigned depth, uint64_t *entries, uint64_t *bytes)
{
    struct measure m = {.dir_fd = dir_fd, .depth = depth, .entries = entries, .bytes = bytes};
    int rc = depth < DEPTH_MAX ? io_each_name_at(dir_fd, ".", measure_one, &m) : -EEXIST;

    return rc < 0 ? rc : m.rc;
}

/* -- the volume -------------------------------------------------------------------------------- */

static bool note_one(void *arg, const char *name UNUSED)
{
    *(bool *)arg = true;
    return false;
}

/* 1: what the template has goes into it; 0: it has files of its own, or is only read. */
static int is_new(int volume_fd)
{
    bool has_any = false;
    struct statvfs fs;
    int rc;

    if (fstatvfs(volume_fd, &fs) < 0)
        return -errno;
    if (fs.f_flag & ST_RDONLY)
        return 0;
    if (faccessat(volume_fd, MARK, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    rc = io_each_name_at(volume_fd, ".", note_one, &has_any);
    return rc < 0 ? rc : !has_any;
}

/* -- filling it -------------------------------------------------------------------------------- */

struct fill {
    const char *path, *volume;
    int volume_fd;
    int rc;
};

static int move_entry(const char *from, const char *to)
{
    struct fs_mover *m;
    int rc = fs_mover_new(from, to, &m);

    if (rc < 0)
        return rc;
    do
        rc = fs_mover_step(m);
    while (rc > 0);
    fs_mover_free(m);
    return rc;
}

static bool fill_one(void *arg, const char *name)
{
    char from[AGENT_PATH_SIZE], to[AGENT_PATH_SIZE];
    struct fill *f = arg;

    if (faccessat(f->volume_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return true; /* it was moved by a call that was cut off */
    f->rc = path_join(f->path, name, from);
    if (f->rc == 0)
        f->rc = path_join(f->volume, name, to);
    if (f->rc == 0)
        f->rc = move_entry(from, to);
    return f->rc == 0;
}

/* The volume's own directory gets the owner and mode of the one whose place it takes. */
static int fill(int dir_fd, const char *path, int volume_fd, const char *volume)
{
    struct fill f = {.path = path, .volume = volume, .volume_fd = volume_fd};
    CLEANUP_CLOSE int mark = openat(volume_fd, MARK,
                                    O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;
    int rc;

    if (mark < 0 || fstat(dir_fd, &st) < 0)
        return -errno;
    rc = io_each_name_at(dir_fd, ".", fill_one, &f);
    if (rc == 0)
        rc = f.rc;
    if (rc < 0)
        return rc;
    if (fchown(volume_fd, st.st_uid, st.st_gid) < 0 || fchmod(volume_fd, st.st_mode & 07777) < 0 ||
        unlinkat(volume_fd, MARK, 0) < 0)
        return -errno;
    return 0;
}

static int remove_all(const char *path)
{
    struct fs_remover *r;
    int rc = fs_remover_new(path, &r);

    if (rc < 0)
        return rc;
    do
        rc = fs_remover_step(r);
    while (rc > 0);
    fs_remover_free(r);
    return rc;
}

int volume_place_clear(const char *path, const char *volume)
{
    CLEANUP_CLOSE int dir = open(path, OPEN_DIR);
    CLEANUP_CLOSE int volume_fd = open(volume, OPEN_DIR);
    uint64_t entries = 0, bytes = 0;
    int rc;

    if (dir < 0)
        return errno == ENOTDIR || errno == ELOOP ? -EEXIST : -errno;
    if (volume_fd < 0)
        return -errno;
    rc = is_of_the_system(path) ? -EEXIST : measure_dir(dir, 0, &entries, &bytes);
    if (rc == 0)
        rc = is_new(volume_fd);
    if (rc == 1)
        rc = fill(dir, path, volume_fd, volume);
    return rc < 0 ? rc : remove_all(path);
}
