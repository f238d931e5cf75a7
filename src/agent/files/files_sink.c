#include "agent/files/files_sink.h"

#include "agent/common/path.h"
#include "agent/common/user.h"
#include "agent/files/files.h"
#include "agent/fs/fs_entry.h"
#include "agent/fs/fs_json.h"
#include "agent/fs/fs_open.h"
#include "base/io.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void files_sink_init(struct files_sink *s, const struct user *u, const char *workdir,
                     const struct files_meta *meta, uint64_t announced)
{
    *s = (struct files_sink){
        .user = u, .workdir = workdir, .meta = meta, .announced = announced, .fd = -1};
    buf_init(&s->answer, FILES_SINK_ANSWER_MAX);
}

void files_sink_free(struct files_sink *s)
{
    util_close(&s->fd);
    tdestroy(s->done, free);
    buf_free(&s->answer);
}

int files_sink_fail(struct files_sink *s, int status, const char *fmt, ...)
{
    char text[sizeof(s->error.text)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    err_set(&s->error, ERR_INTERNAL, "%s", text);
    s->status = status;
    return -ECANCELED;
}

static int fail_errno(struct files_sink *s, int error, const char *what)
{
    if (error == -EISDIR)
        return files_sink_fail(s, 400, "path is a directory: %s", s->path);
    if (error == -EINVAL)
        return files_sink_fail(s, 400, "path is a device, FIFO or socket, not a file: %s", s->path);
    if ((error == -ENOSPC || error == -EDQUOT) && s->announced > 0)
        return files_sink_fail(
            s, 507, "attempted to write %" PRIu64 " bytes: not enough disk space available",
            s->announced);
    if (error == -ENOSPC || error == -EDQUOT)
        return files_sink_fail(s, 507, "not enough disk space available");
    if (error == -ETXTBSY) /* the status is upstream's */
        return files_sink_fail(s, 500,
                               "%s: text file busy: a program runs from '%s'; end the program, or "
                               "remove the file first",
                               what, s->path);
    /* A directory that does not exist here was removed meanwhile, or is in /proc. */
    return files_sink_fail(s, error == -ENOENT ? 500 : files_status(error), "%s '%s': %s", what,
                           s->path, strerror(-error));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int check_new(struct files_sink *s)
{
    if (tfind(s->path, &s->done, by_text))
        return files_sink_fail(s, 400,
                               "you cannot upload multiple files to the same path '%s' in one "
                               "upload request, only the first specified file was uploaded",
                               s->path);
    if (s->done_count == FILES_SINK_FILES_MAX)
        return files_sink_fail(s, 400, "more than %u files in one request", FILES_SINK_FILES_MAX);
    return 0;
}

/* A volume's: the directories above it are not made. */
static int open_owned(struct files_sink *s, struct stat *st)
{
    int r = files_owner_open(s->path, s->owner, st);

    if (r == -ENOENT || r == -ENOTDIR)
        return files_sink_fail(s, 404, "there is no directory for '%s'", s->path);
    if (r == -EEXIST)
        return files_sink_fail(s, 409, "'%s' is there already", s->path);
    return r < 0 ? fail_errno(s, r, "error opening file") : r;
}

static int open_users(struct files_sink *s, struct stat *st)
{
    int r = fs_make_parents(s->path, s->user);

    if (r < 0)
        return fail_errno(s, r, "error ensuring directories of");
    r = fs_open_for_write(s->path, s->user, st);
    if (r == -ETXTBSY && s->user->own_rights)
        r = fs_open_for_replacement(s->path, s->user, st);
    return r < 0 ? fail_errno(s, r, "error opening file") : r;
}

int files_sink_open(struct files_sink *s, const char *path)
{
    struct stat st;
    struct err e;
    int r;

    if (path_resolve(path, s->user, s->workdir, s->path, &e) != ERR_OK)
        return files_sink_fail(s, 400, "error resolving path: %s", e.text);
    r = check_new(s);
    if (r < 0)
        return r;
    r = s->owner ? open_owned(s, &st) : open_users(s, &st);
    if (r < 0)
        return r;
    s->fd = r;
    /* An empty file is left alone: btrfs starts writing to the disk at the close of a file that was
     * cut to nothing (BTRFS_INODE_FLUSH_ON_CLOSE), new or not, and an upload would wait for it. */
    if (st.st_size > 0 && ftruncate(s->fd, 0) < 0)
        return fail_errno(s, -errno, "error emptying file");
    return 0;
}

int files_sink_write(struct files_sink *s, const void *bytes, size_t n)
{
    int r = io_write_full(s->fd, bytes, n);

    return r < 0 ? fail_errno(s, r, "error writing file") : 0;
}

/* The entry of the answer, and the path for check_new. */
static int describe(struct files_sink *s)
{
    char *path;
    int r = buf_append_str(&s->answer, s->done_count == 0 ? "[{" : ",{");

    if (r == 0)
        r = fs_json_field(&s->answer, "path", s->path);
    if (r == 0)
        r = fs_json_field(&s->answer, "name", path_base(s->path));
    if (r == 0)
        r = fs_json_field(&s->answer, "type", "file");
    if (r == 0)
        r = fs_entry_append_metadata(&s->answer, s->path);
    if (r == 0)
        r = buf_append(&s->answer, "}", 1);
    if (r < 0)
        return r;
    path = strdup(s->path);
    if (!path || !tsearch(path, &s->done, by_text)) {
        free(path);
        return -ENOMEM;
    }
    s->done_count++;
    return 0;
}

/* By the descriptor: whatever the path means by now, it is the file that was written. A request
 * with a user's own rights changes only that user's files, as chmod(2) has it. */
static int set_mode(const struct files_sink *s)
{
    struct stat st;

    if (s->mode == 0)
        return 0;
    if (fstat(s->fd, &st) < 0)
        return -errno;
    if (s->user->own_rights && st.st_uid != s->user->uid)
        return -EPERM;
    return fchmod(s->fd, s->mode) < 0 ? -errno : 0;
}

int files_sink_close(struct files_sink *s)
{
    int r = files_meta_write(s->fd, s->meta);

    if (r < 0)
        return fail_errno(s, r, "error writing metadata of");
    r = set_mode(s);
    if (r < 0)
        return fail_errno(s, r, "error setting the mode of");
    util_close(&s->fd);
    return describe(s) < 0 ? files_sink_fail(s, 500, "out of memory in the agent") : 0;
}
