/* filesystem.Filesystem, the calls that need a few system calls each: Stat, MakeDir and (where it
 * need not copy) Move. Source: E2B's filesystem.proto and envd. */
#include "agent/fs/fs_service.h"

#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/fs/fs_open.h"

#include <errno.h>
#include <string.h>

/* The calls of this file are unary. Takes request over on failure. */
static bool is_unary(struct http_exchange *x, bool stream, json_t *request)
{
    if (!stream)
        return true;
    json_decref(request);
    connect_fail(x, CONNECT_UNIMPLEMENTED, "this method is not a stream");
    return false;
}

static void stat_requested(struct http_exchange *x, json_t *request, bool stream)
{
    const struct agent *a = http_exchange_get(x);
    char path[AGENT_PATH_SIZE];
    struct user u;

    if (!is_unary(x, stream, request))
        return;
    if (fs_begin(x, request, a, "path", &u, path)) {
        CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(&u);

        fs_reply_entry(x, path);
    }
    json_decref(request);
}

void fs_stat(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, stat_requested);
}

static void make_dir(struct http_exchange *x, const struct user *u, const char *path)
{
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(u);
    struct stat st;
    int r;

    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            connect_fail(x, CONNECT_ALREADY_EXISTS, "directory already exists: %s", path);
        else
            connect_fail(x, CONNECT_INVALID_ARGUMENT,
                         "path already exists but it is not a directory: %s", path);
        return;
    }
    r = errno == ENOENT ? fs_make_dirs(path, u) : -errno;
    if (r < 0)
        fs_fail(x, r, "cannot make directory", path);
    else
        fs_reply_entry(x, path);
}

static void make_dir_requested(struct http_exchange *x, json_t *request, bool stream)
{
    const struct agent *a = http_exchange_get(x);
    char path[AGENT_PATH_SIZE];
    struct user u;

    if (!is_unary(x, stream, request))
        return;
    if (fs_begin(x, request, a, "path", &u, path))
        make_dir(x, &u, path);
    json_decref(request);
}

void fs_make_dir(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, make_dir_requested);
}

/* As os.Rename: a directory at the destination is never replaced, not even an empty one. */
static int rename_checked(const char *from, const char *to, const struct user *u)
{
    CLEANUP_CLOSE int from_fd = -1;
    CLEANUP_CLOSE int to_fd = -1;
    struct stat a, b;
    int r = fs_make_parents(to, u);

    if (r < 0)
        return r;
    if (lstat(from, &a) < 0)
        return -errno;
    if (lstat(to, &b) == 0 && S_ISDIR(b.st_mode) && (a.st_dev != b.st_dev || a.st_ino != b.st_ino))
        return -EEXIST;
    r = from_fd = fs_open_parent(from);
    if (r >= 0)
        r = to_fd = fs_open_parent(to);
    if (r < 0)
        return r;
    return renameat(from_fd, path_base(from), to_fd, path_base(to)) < 0 ? -errno : 0;
}

static void move(struct http_exchange *x, struct agent *a, const struct user *u, const char *from,
                 const char *to)
{
    CLEANUP_FS_CRED struct fs_cred cred UNUSED = fs_as_user(u);
    int r = rename_checked(from, to, u);

    if (r == 0)
        fs_reply_entry(x, to);
    else if (r == -EXDEV)
        fs_move_by_copy(x, a, u, from, to);
    else
        fs_fail(x, r, "cannot rename", r == -EEXIST ? to : from);
}

static void move_requested(struct http_exchange *x, json_t *request, bool stream)
{
    struct agent *a = http_exchange_get(x);
    char from[AGENT_PATH_SIZE], to[AGENT_PATH_SIZE];
    struct user u;

    if (!is_unary(x, stream, request))
        return;
    if (fs_begin(x, request, a, "source", &u, from) &&
        fs_begin(x, request, a, "destination", &u, to))
        move(x, a, &u, from, to);
    json_decref(request);
}

void fs_move(struct http_exchange *x, struct agent *a)
{
    connect_read(x, FS_REQUEST_MAX, move_requested);
}
