#include "job/usr.h"

#include "job/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define DEPTH_MAX 64
#define ID_MAX    65535 /* of a sandbox */

/* Of /usr/local: where `make install` and the archives of Node, Python and Go put what they bring.
 * All else is the host's own: etc, src, var, whole programs with their settings. */
static const char *const shown_local[] = {
    "bin", "games", "go", "include", "lib", "lib32", "lib64", "libexec", "man", "sbin", "share",
};

struct walk {
    usr_hidden_cb found;
    void *arg;
    char path[PATH_MAX]; /* below /usr */
    unsigned entries, hidden;
};

/* Names of links are no secret, where they lead to is looked at by itself. A file that is neither
 * is of no use inside. */
static bool is_for_everybody(const struct stat *st)
{
    mode_t dir = S_IROTH | S_IXOTH;

    if (S_ISLNK(st->st_mode))
        return true;
    if (S_ISDIR(st->st_mode))
        return (st->st_mode & dir) == dir;
    return S_ISREG(st->st_mode) && (st->st_mode & S_IROTH);
}

static bool is_shown_local(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(shown_local); i++)
        if (strcmp(name, shown_local[i]) == 0)
            return true;
    return false;
}

static int report(struct walk *w)
{
    return ++w->hidden > USR_HIDDEN_MAX ? -E2BIG : w->found(w->arg, w->path);
}

static int walk_dir(struct walk *w, int dir_fd, size_t len, unsigned depth);

/* w->path names it; its first len bytes are the directory's. A file that vanishes meanwhile is
 * passed over. */
static int walk_entry(struct walk *w, int dir_fd, const char *name, unsigned char type,
                      size_t path_len, unsigned depth)
{
    struct stat st;

    if (type == DT_LNK)
        return 0;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!is_for_everybody(&st) || (S_ISDIR(st.st_mode) && depth == DEPTH_MAX))
        return report(w);
    if (!S_ISDIR(st.st_mode))
        return 0;
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    return walk_dir(w, fd, path_len, depth + 1);
}

static int walk_name(struct walk *w, int dir_fd, const struct dirent *e, size_t len, unsigned depth)
{
    size_t n = strlen(e->d_name), slash = len > 0;

    if (++w->entries > USR_ENTRIES_MAX || len + slash + n >= sizeof(w->path))
        return -E2BIG;
    if (slash)
        w->path[len] = '/';
    memcpy(w->path + len + slash, e->d_name, n + 1);
    if (len == strlen("local") && memcmp(w->path, "local", len) == 0 && !is_shown_local(e->d_name))
        return report(w);
    return walk_entry(w, dir_fd, e->d_name, e->d_type, len + slash + n, depth);
}

static int walk_dir(struct walk *w, int dir_fd, size_t len, unsigned depth)
{
    int own = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0), rc = 0;
    DIR *d = own < 0 ? NULL : fdopendir(own);

    if (!d) {
        util_close(&own);
        return -errno;
    }
    errno = 0;
    for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL; errno = 0)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = walk_name(w, dir_fd, e, len, depth);
    if (rc == 0 && errno != 0)
        rc = -errno;
    closedir(d);
    return rc;
}

int usr_each_hidden(const char *usr, bool only_local, usr_hidden_cb found, void *arg)
{
    struct walk w = {.found = found, .arg = arg};
    CLEANUP_CLOSE int fd = open(usr, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (!only_local)
        return walk_dir(&w, fd, 0, 0);
    memcpy(w.path, "local", sizeof("local"));
    return walk_entry(&w, fd, "local", DT_UNKNOWN, strlen("local"), 0);
}

/* -- the layer --------------------------------------------------------------------------------- */

struct mask {
    const char *usr, *dir;
};

/* A directory of the layer covers the mode and owner of the one below it. */
static int put_dir(const struct mask *m, const char *path)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct stat st;

    if ((size_t)snprintf(from, sizeof(from), "%s/%s", m->usr, path) >= sizeof(from) ||
        (size_t)snprintf(to, sizeof(to), "%s/%s", m->dir, path) >= sizeof(to))
        return -ENAMETOOLONG;
    if (lstat(from, &st) < 0)
        return -errno;
    return tree_put_dir(to, st.st_mode & 07777, st.st_uid <= ID_MAX ? st.st_uid : 0,
                        st.st_gid <= ID_MAX ? st.st_gid : 0);
}

static int put_whiteout(void *arg, const char *path)
{
    const struct mask *m = arg;
    char part[PATH_MAX], to[PATH_MAX];
    int rc = 0;

    for (const char *slash = strchr(path, '/'); slash && rc == 0; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        rc = put_dir(m, part);
    }
    if (rc < 0)
        return rc;
    if ((size_t)snprintf(to, sizeof(to), "%s/%s", m->dir, path) >= sizeof(to))
        return -ENAMETOOLONG;
    return mknod(to, S_IFCHR, makedev(0, 0)) < 0 ? -errno : 0;
}

int usr_put_mask(const char *usr, const char *mask)
{
    struct mask m = {usr, mask};
    return usr_each_hidden(usr, false, put_whiteout, &m);
}
