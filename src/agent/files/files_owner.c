#include "agent/files/files_owner.h"

#include "agent/files/files.h"
#include "agent/fs/fs_open.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* -- the query --------------------------------------------------------------------------------- */

/* A decimal number of at most `max`. */
static bool read_number(struct http_exchange *x, const char *name, uint32_t max, bool *has,
                        uint32_t *out)
{
    const char *text;
    unsigned long n;

    if (!files_query(x, name, &text))
        return false;
    *has = text != NULL;
    if (!text)
        return true;
    n = strlen(text) <= 9 && text[0] && strspn(text, "0123456789") == strlen(text)
            ? strtoul(text, NULL, 10)
            : (unsigned long)max + 1;
    *out = (uint32_t)n;
    if (n <= max)
        return true;
    http_respond_error(x, 400, "query parameter '%s' is a whole number of 0 to %u", name, max);
    return false;
}

bool files_owner_query(struct http_exchange *x, struct files_owner *out, bool *force)
{
    const char *text;

    *out = (struct files_owner){0};
    if (!read_number(x, "uid", FILES_OWNER_MAX, &out->has_uid, &out->uid) ||
        !read_number(x, "gid", FILES_OWNER_MAX, &out->has_gid, &out->gid) ||
        !read_number(x, "mode", FILES_MODE_MAX, &out->has_mode, &out->mode) ||
        !files_query(x, "force", &text))
        return false;
    *force = text && strcasecmp(text, "true") == 0;
    out->exclusive = text && strcasecmp(text, "false") == 0;
    if (!text || *force || out->exclusive)
        return true;
    http_respond_error(x, 400, "query parameter 'force' is true or false");
    return false;
}

/* -- the file ---------------------------------------------------------------------------------- */

int files_owner_apply(const char *path, const struct files_owner *o, bool made)
{
    uid_t uid = o->has_uid ? o->uid : made ? FILES_OWNER_DEFAULT : (uid_t)-1;
    gid_t gid = o->has_gid ? o->gid : made ? FILES_OWNER_DEFAULT : (gid_t)-1;
    struct stat st;

    if (lstat(path, &st) < 0 || lchown(path, uid, gid) < 0)
        return -errno;
    if (!o->has_mode)
        return 0;
    if (S_ISLNK(st.st_mode))
        return -EOPNOTSUPP;
    return chmod(path, o->mode) < 0 ? -errno : 0;
}

static int make(const char *path, const struct files_owner *o, struct stat *st)
{
    CLEANUP_CLOSE int fd = fs_open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    int r;

    if (fd < 0)
        return fd;
    r = files_owner_apply(path, o, true);
    if (r < 0)
        return r;
    return fstat(fd, st) < 0 ? -errno : TAKE_FD(fd);
}

int files_owner_open(const char *path, const struct files_owner *o, struct stat *st)
{
    CLEANUP_CLOSE int fd = -1;

    if (stat(path, st) < 0)
        return errno == ENOENT ? make(path, o, st) : -errno;
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
    if (o->exclusive)
        return -EEXIST;
    fd = fs_open(path, O_WRONLY, 0);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0)
        return -errno;
    if (fchown(fd, o->has_uid ? o->uid : (uid_t)-1, o->has_gid ? o->gid : (gid_t)-1) < 0 ||
        (o->has_mode && fchmod(fd, o->mode) < 0))
        return -errno;
    return TAKE_FD(fd);
}
