/* The order of a receive: begin with a temporary name beside the destination; receive_file or
 * receive_folder says what comes; bytes or entries are put below it, by descriptor; receive_end
 * puts the whole in place by a rename (or merges it into a folder that was there), or removes
 * it. Until then nothing under the destination's name has changed. */

#include "cli/receive.h"

#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEPTH_MAX  256u /* of folders in folders that are merged: each holds two descriptors */
#define TRIES      16
#define TREE       "tree"
#define DIR_FLAGS  (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define FILE_FLAGS (O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC)

static enum err_code fail(struct err *e, int number, const char *what, const char *name)
{
    return err_set_sys(e, err_code_from_errno(number), number, "%s %s", what, name);
}

/* -- the place --------------------------------------------------------------------------------- */

/* The folder that path's last name is in; "." and ".." mean the folder itself. */
static enum err_code open_parent(struct receive *r, const char *path, struct err *e)
{
    CLEANUP_FREE char *dir = strdup(path);
    size_t len = dir ? strlen(dir) : 0;
    const char *name;
    char *slash;

    if (!dir)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = '\0';
    slash = strrchr(dir, '/');
    name = slash ? slash + 1 : dir;
    if (strlen(name) >= sizeof(r->name))
        return fail(e, ENAMETOOLONG, "cannot write", path);
    if (name[0] && strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
        snprintf(r->name, sizeof(r->name), "%s", name);
        dir[name - dir] = '\0';
    }
    r->dir_fd = open(dir[0] ? dir : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return r->dir_fd < 0 ? fail(e, errno, "cannot write", path) : ERR_OK;
}

static int choose_temp(struct receive *r)
{
    uint64_t random;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return -EIO;
    snprintf(r->temp, sizeof(r->temp), ".cay-cp-%016llx", (unsigned long long)random);
    return 0;
}

static void begin(struct receive *r)
{
    *r = (struct receive){.dir_fd = -1, .fd = -1, .temp_fd = -1};
}

static void close_all(struct receive *r)
{
    util_close(&r->fd);
    util_close(&r->temp_fd);
    util_close(&r->dir_fd);
}

/* -- one file ---------------------------------------------------------------------------------- */

static int make_temp_file(struct receive *r)
{
    for (int i = 0; i < TRIES && r->fd < 0; i++) {
        if (choose_temp(r) < 0)
            return -EIO;
        r->fd = openat(r->dir_fd, r->temp, FILE_FLAGS, 0600);
        if (r->fd < 0 && errno != EEXIST)
            break;
    }
    if (r->fd >= 0)
        return 0;
    r->temp[0] = '\0';
    return -errno;
}

/* A device or a FIFO is meant as one, and renaming over it would remove it: what the caller names
 * by a link, as /dev/stdout, is refused for the same reason. */
static enum err_code open_special(struct receive *r, const char *path, const struct stat *st,
                                  struct err *e)
{
    struct stat meant;

    if (S_ISLNK(st->st_mode)) {
        if (fstatat(r->dir_fd, r->name, &meant, 0) < 0 || S_ISREG(meant.st_mode))
            return ERR_OK; /* the link is replaced */
        err_set(e, ERR_INVALID, "%s is a link to something that is no file", path);
        err_hint(e, "Write to standard output with `-`, or name what the link points to.");
        return e->code;
    }
    if (S_ISDIR(st->st_mode))
        return fail(e, EISDIR, "cannot write", path);
    r->fd = openat(r->dir_fd, r->name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return r->fd < 0 ? fail(e, errno, "cannot write", path) : ERR_OK;
}

/* Set-id bits and others beyond 0777 are never taken over. */
static int set_mode(struct receive *r, const struct stat *there, unsigned mode)
{
    mode_t mask;

    if (there && S_ISREG(there->st_mode)) {
        if (fchown(r->fd, there->st_uid, there->st_gid) < 0 && errno != EPERM)
            return -errno;
        return fchmod(r->fd, there->st_mode & 0777) < 0 ? -errno : 0;
    }
    mask = umask(0);
    umask(mask);
    return fchmod(r->fd, (0600 | (mode & 0777)) & ~mask) < 0 ? -errno : 0;
}

enum err_code receive_file(struct receive *r, const char *path, unsigned mode, struct err *e)
{
    struct stat st;
    bool exists;
    int rc;

    begin(r);
    if (open_parent(r, path, e) != ERR_OK)
        return e->code;
    if (!r->name[0]) {
        close_all(r);
        return fail(e, EISDIR, "cannot write", path);
    }
    exists = fstatat(r->dir_fd, r->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && !S_ISREG(st.st_mode) && open_special(r, path, &st, e) != ERR_OK) {
        close_all(r);
        return e->code;
    }
    if (r->fd >= 0)
        return ERR_OK;
    rc = make_temp_file(r);
    if (rc == 0)
        rc = set_mode(r, exists ? &st : NULL, mode);
    if (rc == 0)
        return ERR_OK;
    receive_end(r, false, NULL);
    return fail(e, -rc, "cannot write", path);
}

/* -- folders ----------------------------------------------------------------------------------- */

static int make_temp_folder(struct receive *r)
{
    int rc = -EEXIST;

    for (int i = 0; i < TRIES && rc == -EEXIST; i++) {
        if (choose_temp(r) < 0)
            return -EIO;
        rc = mkdirat(r->dir_fd, r->temp, 0700) < 0 ? -errno : 0;
    }
    if (rc < 0) {
        r->temp[0] = '\0';
        return rc;
    }
    r->temp_fd = openat(r->dir_fd, r->temp, DIR_FLAGS);
    if (r->temp_fd < 0 || mkdirat(r->temp_fd, TREE, 0777) < 0)
        return -errno;
    r->fd = openat(r->temp_fd, TREE, DIR_FLAGS);
    return r->fd < 0 ? -errno : 0;
}

/* Into a folder that exists all is merged; the temporary one is in it then, on its file system. */
static int enter_existing(struct receive *r)
{
    int fd = openat(r->dir_fd, r->name[0] ? r->name : ".", DIR_FLAGS);

    if (fd < 0)
        return r->name[0] && errno == ENOENT ? 0 : -errno;
    util_close(&r->dir_fd);
    r->dir_fd = fd;
    r->name[0] = '\0';
    return 0;
}

enum err_code receive_folder(struct receive *r, const char *path, struct err *e)
{
    int rc;

    begin(r);
    if (open_parent(r, path, e) != ERR_OK)
        return e->code;
    rc = enter_existing(r);
    if (rc == -ENOTDIR || rc == -ELOOP) {
        close_all(r);
        return err_set(e, ERR_CONFLICT, "%s exists and is no folder: remove it, or name another",
                       path);
    }
    if (rc == 0)
        rc = make_temp_folder(r);
    if (rc == 0)
        return ERR_OK;
    receive_end(r, false, NULL);
    return fail(e, -rc, "cannot make", path);
}

/* A folder of the sandbox's mode, opened. It lies in one with mode 0700, where no other writes:
 * between the look at what it is and the change of its mode nothing replaces it. */
static int open_received(int dir_fd, const char *name, mode_t *mode)
{
    struct stat st;
    int fd;

    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    *mode = st.st_mode & 0777;
    if ((*mode & 0700) != 0700 && fchmodat(dir_fd, name, *mode | 0700, 0) < 0)
        return -errno;
    fd = openat(dir_fd, name, DIR_FLAGS);
    return fd < 0 ? -errno : fd;
}

/* rename(2) of a folder writes into it (".."): without the right to, its mode is set after that. */
static int move_folder(int from_fd, const char *name, int to_fd, const char *to)
{
    CLEANUP_CLOSE int fd = -1;
    mode_t mode = 0;

    fd = open_received(from_fd, name, &mode);
    if (fd < 0)
        return fd;
    if (renameat(from_fd, name, to_fd, to) < 0)
        return -errno;
    return fchmod(fd, mode) < 0 ? -errno : 0;
}

static int open_below(int dir_fd, const char *name)
{
    struct open_how how = {
        .flags = DIR_FLAGS,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, dir_fd, name, &how, sizeof(how));

    return fd < 0 ? -errno : fd;
}

static int merge(int from_fd, int to_fd, unsigned depth, char failed[256]);

static int merge_folder(int from_fd, int to_fd, const char *name, unsigned depth, char failed[256])
{
    CLEANUP_CLOSE int from = -1;
    CLEANUP_CLOSE int to = open_below(to_fd, name);
    mode_t mode;

    if (to == -ENOENT)
        return move_folder(from_fd, name, to_fd, name);
    if (to < 0)
        return to == -ELOOP ? -ENOTDIR : to;
    from = open_received(from_fd, name, &mode);
    return from < 0 ? from : merge(from, to, depth + 1, failed);
}

static int merge_entry(int from_fd, int to_fd, const struct dirent *d, unsigned depth,
                       char failed[256])
{
    struct stat st;

    if (fstatat(from_fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return merge_folder(from_fd, to_fd, d->d_name, depth, failed);
    return renameat(from_fd, d->d_name, to_fd, d->d_name) < 0 ? -errno : 0;
}

static DIR *open_list(int dir_fd)
{
    int fd = openat(dir_fd, ".", DIR_FLAGS);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (!list)
        util_close(&fd);
    return list;
}

static const struct dirent *next_entry(DIR *list)
{
    const struct dirent *d;

    do
        d = readdir(list);
    while (d && (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0));
    return d;
}

/* Goes on after a failure, as cp does, and returns the first; failed is its name. */
static int merge(int from_fd, int to_fd, unsigned depth, char failed[256])
{
    const struct dirent *d;
    int first = 0;
    DIR *list;

    if (depth >= DEPTH_MAX)
        return -ENAMETOOLONG;
    list = open_list(from_fd);
    if (!list)
        return -errno;
    while ((d = next_entry(list))) {
        int rc = merge_entry(from_fd, to_fd, d, depth, failed);

        if (rc < 0 && first == 0) {
            first = rc;
            if (!failed[0])
                snprintf(failed, 256, "%s", d->d_name);
        }
    }
    closedir(list);
    return first;
}

/* -- the end ----------------------------------------------------------------------------------- */

/* Deeper than DEPTH_MAX it stops; the folder with the temporary name stays then. */
static void remove_below(int dir_fd, unsigned depth)
{
    const struct dirent *d;
    DIR *list = depth < DEPTH_MAX ? open_list(dir_fd) : NULL;

    while (list && (d = next_entry(list))) {
        CLEANUP_CLOSE int fd = -1;
        mode_t mode;

        if (unlinkat(dir_fd, d->d_name, 0) == 0)
            continue;
        fd = open_received(dir_fd, d->d_name, &mode);
        if (fd < 0)
            continue;
        remove_below(fd, depth + 1);
        (void)!unlinkat(dir_fd, d->d_name, AT_REMOVEDIR);
    }
    if (list)
        closedir(list);
}

static void remove_temp(struct receive *r)
{
    if (!r->temp[0])
        return;
    if (r->temp_fd >= 0)
        remove_below(r->temp_fd, 0);
    (void)!unlinkat(r->dir_fd, r->temp, r->temp_fd >= 0 ? AT_REMOVEDIR : 0);
}

static enum err_code put_folder(struct receive *r, struct err *e)
{
    char failed[256] = "";
    mode_t mode;
    int rc;

    if (r->name[0]) {
        rc = move_folder(r->temp_fd, TREE, r->dir_fd, r->name);
        return rc < 0 ? fail(e, -rc, "cannot make", r->name) : ERR_OK;
    }
    util_close(&r->fd);
    r->fd = open_received(r->temp_fd, TREE, &mode);
    rc = r->fd < 0 ? r->fd : merge(r->fd, r->dir_fd, 0, failed);
    if (rc == -ENOTDIR)
        return err_set(e, ERR_CONFLICT,
                       "%s is a folder in the sandbox and exists here as something else: it stays",
                       failed);
    return rc < 0 ? fail(e, -rc, "cannot replace", failed) : ERR_OK;
}

enum err_code receive_end(struct receive *r, bool keep, struct err *e)
{
    enum err_code code = ERR_OK;

    if (keep && r->temp_fd >= 0)
        code = put_folder(r, e);
    else if (keep && r->temp[0] && renameat(r->dir_fd, r->temp, r->dir_fd, r->name) < 0)
        code = fail(e, errno, "cannot write", r->name);
    else if (keep)
        r->temp[0] = '\0';
    remove_temp(r);
    close_all(r);
    return code;
}
