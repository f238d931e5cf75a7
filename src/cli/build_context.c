#include "cli/build_context.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IGNORE_NAME ".dockerignore"

static int open_below(int dir_fd, const char *name)
{
    struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};

    return (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));
}

static enum err_code read_all(int fd, const char *what, struct buf *text, struct err *e)
{
    struct stat st;
    ssize_t n;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is not a file", what);
    if ((uint64_t)st.st_size > text->max || buf_reserve(text, (size_t)st.st_size) < 0)
        return err_set(e, ERR_TOO_LARGE, "%s is over %zu KiB", what, text->max >> 10);
    n = pread(fd, text->data, (size_t)st.st_size, 0);
    if (n < 0)
        return err_set_sys(e, err_code_from_errno(errno), errno, "cannot read %s", what);
    buf_commit(text, (size_t)n);
    return ERR_OK;
}

enum err_code build_context_open(struct build_context *c, const char *path, struct buf *text,
                                 struct err *e)
{
    char folder[PATH_MAX], name[PATH_MAX];
    CLEANUP_CLOSE int fd = -1;
    struct stat st;

    c->dir_fd = -1;
    if (strlen(path) >= sizeof(folder) || stat(path, &st) < 0)
        return err_set_sys(e, ERR_NOT_FOUND, strlen(path) < sizeof(folder) ? errno : ENAMETOOLONG,
                           "cannot build from %.200s", path);
    strcpy(folder, path);
    strcpy(name, S_ISDIR(st.st_mode) ? BUILD_FILE_NAME : path);
    c->dir_fd = open(S_ISDIR(st.st_mode) ? folder : dirname(folder),
                     O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->dir_fd >= 0)
        fd = open_below(c->dir_fd, basename(name));
    if (fd < 0)
        return err_set_sys(e, err_code_from_errno(errno), errno, "cannot read %s of %.200s",
                           BUILD_FILE_NAME, path);
    return read_all(fd, path, text, e);
}

void build_context_close(struct build_context *c)
{
    util_close(&c->dir_fd);
}

int build_context_source(const struct build_context *c, const char *name, struct stat *st,
                         struct err *e)
{
    CLEANUP_CLOSE int fd = -1;

    name += strspn(name, "/"); /* as in Docker: / is the folder of the build */
    fd = open_below(c->dir_fd, name[0] ? name : ".");
    if (fd < 0 && (errno == EXDEV || errno == ELOOP)) {
        err_set(e, ERR_DENIED, "COPY %.200s: it leads out of the folder of the build", name);
        err_hint(e, "Only what is below that folder can be copied; a link in it may not leave it.");
        return -1;
    }
    if (fd < 0 || fstat(fd, st) < 0) {
        err_set_sys(e, err_code_from_errno(errno), errno, "COPY %.200s", name);
        return -1;
    }
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)) {
        err_set(e, ERR_INVALID, "COPY %.200s: it is neither a file nor a folder", name);
        return -1;
    }
    /* The list is not understood here, and the files that it excludes must not be in a template. */
    if (S_ISDIR(st->st_mode) && faccessat(c->dir_fd, IGNORE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        err_set(e, ERR_UNIMPLEMENTED,
                "COPY %.200s: folders are not copied where there is a " IGNORE_NAME
                ", which is not understood here",
                name);
        err_hint(e, "Name the files one by one, or build from a folder without that list.");
        return -1;
    }
    return TAKE_FD(fd);
}
