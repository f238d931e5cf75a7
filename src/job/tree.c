#include "job/tree.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

/* -- walking ----------------------------------------------------------------------------------- */

static FTS *walk(const char *path, int *r)
{
    char *const paths[] = {(char *)(uintptr_t)path, NULL};
    FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);

    *r = fts ? 0 : -errno;
    return fts;
}

static bool is_missing(const FTSENT *e)
{
    return (e->fts_info == FTS_NS || e->fts_info == FTS_DNR) && e->fts_errno == ENOENT;
}

static int remove_entry(const FTSENT *e)
{
    switch (e->fts_info) {
    case FTS_D: return 0; /* again after what is in it */
    case FTS_NS:
    case FTS_DNR: return is_missing(e) ? 0 : -e->fts_errno;
    case FTS_ERR: return -e->fts_errno;
    case FTS_DP: return rmdir(e->fts_accpath) < 0 && errno != ENOENT ? -errno : 0;
    default: return unlink(e->fts_accpath) < 0 && errno != ENOENT ? -errno : 0;
    }
}

int tree_remove(const char *path)
{
    int r;
    FTS *fts = walk(path, &r);

    if (!fts)
        return r;
    for (FTSENT *e; (e = fts_read(fts)) != NULL;) {
        int one = remove_entry(e);

        if (one < 0 && r == 0)
            r = one; /* go on: as much as can be removed is */
    }
    fts_close(fts);
    return r;
}

int tree_size(const char *path, uint64_t *out_bytes)
{
    uint64_t bytes = 0;
    int r;
    FTS *fts = walk(path, &r);

    if (!fts)
        return r;
    for (FTSENT *e; (e = fts_read(fts)) != NULL;)
        if (e->fts_info != FTS_DP && e->fts_info != FTS_NS && e->fts_info != FTS_ERR)
            bytes += (uint64_t)e->fts_statp->st_blocks * 512;
    fts_close(fts);
    *out_bytes = bytes;
    return 0;
}

int tree_length(const char *path, uint64_t max, uint64_t *out_bytes)
{
    uint64_t bytes = 0;
    int r;
    FTS *fts = walk(path, &r);

    if (!fts)
        return r;
    for (FTSENT *e; r == 0 && bytes <= max && (e = fts_read(fts)) != NULL;) {
        if (e->fts_info == FTS_F) /* a length is below 2^63: no overflow after one over max */
            bytes += (uint64_t)e->fts_statp->st_size / MAX(e->fts_statp->st_nlink, 1u);
        else if (e->fts_info == FTS_NS || e->fts_info == FTS_DNR || e->fts_info == FTS_ERR)
            r = -e->fts_errno;
    }
    fts_close(fts);
    *out_bytes = bytes;
    return r;
}

/* -- building blocks --------------------------------------------------------------------------- */

int tree_put_text(const char *path, mode_t mode, const char *text)
{
    CLEANUP_CLOSE int fd = -1;

    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, mode) < 0)
        return -errno;
    return io_write_full(fd, text, strlen(text));
}

int tree_put_dir(const char *path, mode_t mode, uid_t uid, gid_t gid)
{
    CLEANUP_CLOSE int fd = -1;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = open(path, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
        return -errno;
    return 0;
}

int tree_put_link(const char *path, const char *target)
{
    (void)unlink(path);
    return symlink(target, path) < 0 ? -errno : 0;
}

/* -- copying ----------------------------------------------------------------------------------- */

struct copy {
    unsigned files;
    uint64_t bytes;
};

static int copy_bytes(int in, int out, struct copy *c)
{
    for (;;) {
        ssize_t n = sendfile(out, in, NULL, 1 << 20);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        c->bytes += (uint64_t)n;
        if (c->bytes > TREE_COPY_MAX_BYTES)
            return -EFBIG;
    }
}

static int copy_file(const char *from, const char *to, mode_t mode, struct copy *c)
{
    CLEANUP_CLOSE int in = open(from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    CLEANUP_CLOSE int out = -1;

    if (in < 0)
        return errno == ENOENT ? 0 : -errno;
    (void)unlink(to);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0 || fchmod(out, mode & 0755) < 0)
        return -errno;
    return copy_bytes(in, out, c);
}

static int copy_link(const char *from, const char *to)
{
    char target[PATH_MAX];
    ssize_t n = readlink(from, target, sizeof(target) - 1);

    if (n < 0)
        return errno == ENOENT ? 0 : -errno;
    target[n] = '\0';
    return tree_put_link(to, target);
}

static int copy_entry(FTS *fts, FTSENT *e, const char *to, struct copy *c)
{
    switch (e->fts_info) {
    case FTS_D:
        if ((e->fts_statp->st_mode & 05) != 05)
            return fts_set(fts, e, FTS_SKIP) < 0 ? -errno : 0;
        return tree_put_dir(to, e->fts_statp->st_mode & 0755, 0, 0);
    case FTS_F:
        return e->fts_statp->st_mode & 04 ? copy_file(e->fts_accpath, to, e->fts_statp->st_mode, c)
                                          : 0;
    case FTS_SL:
    case FTS_SLNONE: return copy_link(e->fts_accpath, to);
    case FTS_NS:
    case FTS_DNR: return is_missing(e) ? 0 : -e->fts_errno;
    case FTS_ERR: return -e->fts_errno;
    default: return 0; /* sockets, devices */
    }
}

int tree_copy(const char *from, const char *to)
{
    struct copy c = {0};
    size_t skip = strlen(from);
    int r;
    FTS *fts = walk(from, &r);

    if (!fts)
        return r;
    for (FTSENT *e; r == 0 && (e = fts_read(fts)) != NULL;) {
        char path[PATH_MAX];

        if (snprintf(path, sizeof(path), "%s%s", to, e->fts_path + skip) >= (int)sizeof(path))
            r = -ENAMETOOLONG;
        else if (++c.files > TREE_COPY_MAX_FILES)
            r = -EFBIG;
        else
            r = copy_entry(fts, e, path, &c);
    }
    fts_close(fts);
    return r;
}
