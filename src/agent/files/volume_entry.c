#include "agent/files/volume_entry.h"

#include "agent/common/path.h"
#include "agent/fs/fs_json.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIRST_SECOND (-62135596800) /* 0001-01-01: what clients' dates can say */
#define LAST_SECOND  253402300799   /* 9999-12-31T23:59:59 */

static const char *type_name(mode_t mode)
{
    return S_ISREG(mode)   ? "file"
           : S_ISDIR(mode) ? "directory"
           : S_ISLNK(mode) ? "symlink"
                           : "unknown";
}

/* RFC 3339 in UTC, to the microsecond: clients' dates have no more. */
static int append_time(struct buf *out, const char *name, struct timespec t)
{
    char day[32], text[96];
    struct tm tm;

    t.tv_sec = MIN(MAX(t.tv_sec, (time_t)FIRST_SECOND), (time_t)LAST_SECOND);
    gmtime_r(&t.tv_sec, &tm);
    (void)strftime(day, sizeof(day), "%H:%M:%S", &tm);
    (void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%s.%06ldZ", tm.tm_year + 1900, tm.tm_mon + 1,
                   tm.tm_mday, day, t.tv_nsec / 1000 % 1000000);
    return fs_json_field(out, name, text);
}

static int append_target(struct buf *out, const char *path, mode_t mode)
{
    char target[AGENT_PATH_SIZE];
    ssize_t n = S_ISLNK(mode) ? readlink(path, target, sizeof(target) - 1) : -1;

    if (n < 0)
        return 0;
    target[n] = '\0';
    return fs_json_field(out, "target", target);
}

static int append_fields(struct buf *out, const struct stat *st, const char *path,
                         const char *shown)
{
    int r = fs_json_field(out, "name", path_base(shown));

    if (r == 0)
        r = fs_json_field(out, "type", type_name(st->st_mode));
    if (r == 0)
        r = fs_json_field(out, "path", shown);
    if (r == 0)
        r = buf_printf(out, ",\"size\":%lld,\"mode\":%u,\"uid\":%u,\"gid\":%u",
                       (long long)st->st_size, st->st_mode & 07777u, st->st_uid, st->st_gid);
    if (r == 0)
        r = append_time(out, "atime", st->st_atim);
    if (r == 0)
        r = append_time(out, "mtime", st->st_mtim);
    if (r == 0)
        r = append_time(out, "ctime", st->st_ctim);
    return r == 0 ? append_target(out, path, st->st_mode) : r;
}

int volume_entry_append(struct buf *out, const char *path, const char *shown)
{
    size_t before = out->len;
    struct stat st;
    int r = lstat(path, &st) < 0 ? -errno : buf_append(out, "{", 1);

    if (r == 0)
        r = append_fields(out, &st, path, shown);
    if (r == 0)
        r = buf_append(out, "}", 1);
    if (r < 0)
        buf_truncate(out, before);
    return r;
}
