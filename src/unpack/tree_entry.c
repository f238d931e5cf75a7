#include "unpack/tree_entry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

/* -- names ------------------------------------------------------------------------------------- */

static enum err_code check_part(const char *part, size_t len, const char *raw, struct err *e)
{
    if (len == 2 && part[0] == '.' && part[1] == '.')
        return err_set(e, ERR_INVALID, "the name %.100s leads upwards", raw);
    if (len > TREE_ENTRY_NAME_MAX)
        return err_set(e, ERR_INVALID, "the name %.100s has a part of over %u bytes", raw,
                       TREE_ENTRY_NAME_MAX);
    return ERR_OK;
}

enum err_code tree_entry_clean(const char *raw, char out[static TREE_ENTRY_PATH_MAX + 1],
                               struct err *e)
{
    size_t used = 0;
    unsigned depth = 0;

    if (raw[0] == '/')
        return err_set(e, ERR_INVALID, "the name %.100s is absolute", raw);
    if (strlen(raw) > TREE_ENTRY_PATH_MAX)
        return err_set(e, ERR_INVALID, "the name %.100s... has over %u bytes", raw,
                       TREE_ENTRY_PATH_MAX);
    for (const char *at = raw; *at;) {
        size_t len = strcspn(at, "/");

        if (len > 0 && !(len == 1 && at[0] == '.')) {
            if (check_part(at, len, raw, e) != ERR_OK)
                return e->code;
            if (++depth > TREE_ENTRY_DEPTH_MAX)
                return err_set(e, ERR_INVALID, "the name %.100s... is over %u folders deep", raw,
                               TREE_ENTRY_DEPTH_MAX);
            if (used > 0)
                out[used++] = '/';
            memcpy(out + used, at, len);
            used += len;
        }
        at += len + (at[len] == '/');
    }
    out[used] = '\0';
    return ERR_OK;
}

/* -- entries ----------------------------------------------------------------------------------- */

/* The kernel itself refuses what leads out: no test of ours is between look and use. */
static int open_beneath(int dir_fd, const char *path)
{
    struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    int fd = (int)syscall(SYS_openat2, dir_fd, path[0] ? path : ".", &how, sizeof(how));

    return fd < 0 ? -errno : fd;
}

/* Folder by folder, each made where it is not there. */
static int make_parents(int root_fd, char *parents, unsigned *made)
{
    CLEANUP_CLOSE int fd = open_beneath(root_fd, "");

    for (char *at = parents, *rest; fd >= 0 && at; at = rest) {
        int down;

        rest = strchr(at, '/');
        if (rest)
            *rest++ = '\0';
        down = open_beneath(fd, at);
        if (down == -ENOENT) {
            down = mkdirat(fd, at, 0755) < 0 ? -errno : open_beneath(fd, at);
            ++*made;
        }
        close(fd);
        fd = down;
    }
    return TAKE_FD(fd);
}

enum err_code tree_entry_open(int root_fd, const char *path, bool make, struct tree_entry *out,
                              struct err *e)
{
    char parents[TREE_ENTRY_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    unsigned made = 0;
    int fd;

    snprintf(parents, sizeof(parents), "%.*s", (int)(slash ? slash - path : 0), path);
    fd = open_beneath(root_fd, parents);
    if (fd == -ENOENT && make)
        fd = make_parents(root_fd, parents, &made);
    if (fd == -ENOENT)
        return err_set(e, ERR_NOT_FOUND, "%.100s: there is no such folder", path);
    if (fd == -ELOOP || fd == -ENOTDIR || fd == -EXDEV)
        return err_set(e, ERR_INVALID, "%.100s goes through what is no folder but a %s", path,
                       fd == -ENOTDIR ? "file" : "link");
    if (fd < 0)
        return err_set_sys(e, err_code_from_errno(fd), fd, "%.100s", path);
    *out = (struct tree_entry){fd, slash ? slash + 1 : path, made};
    return ERR_OK;
}

void tree_entry_close(struct tree_entry *p)
{
    util_close(&p->dir_fd);
}

int tree_entry_stat(const struct tree_entry *p, struct stat *out)
{
    return fstatat(p->dir_fd, p->name, out, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

/* -- removing ---------------------------------------------------------------------------------- */

/* As deep as names go, which tree_entry_clean bounds: each level holds one descriptor. */
static int empty_dir(int parent_fd, const char *name)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (!dir) {
        r = -errno;
        util_close(&fd);
        return r;
    }
    for (struct dirent *d; r == 0 && (d = readdir(dir)) != NULL;) {
        struct tree_entry p = {.dir_fd = fd, .name = d->d_name};

        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
            r = tree_entry_remove(&p);
    }
    closedir(dir);
    return r;
}

int tree_entry_empty(const struct tree_entry *p)
{
    return empty_dir(p->dir_fd, p->name);
}

int tree_entry_remove(const struct tree_entry *p)
{
    struct stat st;
    int r = tree_entry_stat(p, &st);

    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (S_ISDIR(st.st_mode))
        r = empty_dir(p->dir_fd, p->name);
    if (r == 0 && unlinkat(p->dir_fd, p->name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
        r = -errno;
    return r;
}
