#include "agent/fs/fs_entry.h"

#include "agent/common/path.h"
#include "agent/fs/fs_json.h"
#include "agent/fs/fs_open.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <time.h>

#define LIST_MAX      (64u * 1024u)  /* XATTR_LIST_MAX */
#define VALUE_MAX     (64u * 1024u)  /* XATTR_SIZE_MAX */
#define FIRST_SECOND  (-62135596800) /* 0001-01-01: what a protobuf Timestamp can say */
#define LAST_SECOND   253402300799   /* 9999-12-31T23:59:59 */
#define TIME_SIZE     48
#define NANOS_PER_SEC 1000000000L

void fs_entry_permissions(mode_t mode, char out[static FS_ENTRY_PERMISSIONS_SIZE])
{
    static const char rwx[] = "rwxrwxrwx";
    char *p = out;

    if (S_ISDIR(mode))
        *p++ = 'd';
    if (S_ISLNK(mode))
        *p++ = 'L';
    if (S_ISBLK(mode) || S_ISCHR(mode))
        *p++ = 'D';
    if (S_ISFIFO(mode))
        *p++ = 'p';
    if (S_ISSOCK(mode))
        *p++ = 'S';
    if (mode & S_ISUID)
        *p++ = 'u';
    if (mode & S_ISGID)
        *p++ = 'g';
    if (S_ISCHR(mode))
        *p++ = 'c';
    if (mode & S_ISVTX)
        *p++ = 't';
    if (p == out)
        *p++ = '-';
    for (int i = 0; i < 9; i++)
        *p++ = mode & (0400u >> i) ? rwx[i] : '-';
    *p = '\0';
}

static const char *type_name(mode_t mode)
{
    return S_ISREG(mode)   ? "FILE_TYPE_FILE"
           : S_ISDIR(mode) ? "FILE_TYPE_DIRECTORY"
           : S_ISLNK(mode) ? "FILE_TYPE_SYMLINK"
                           : NULL;
}

/* RFC 3339 in UTC with 0, 3, 6 or 9 digits of a fraction, as protobuf's JSON has it. */
static void format_time(struct timespec t, char out[static TIME_SIZE])
{
    struct tm tm;
    size_t n;

    gmtime_r(&t.tv_sec, &tm);
    n = (size_t)snprintf(out, TIME_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900,
                         tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec);
    if (t.tv_nsec % 1000 != 0)
        n += (size_t)snprintf(out + n, TIME_SIZE - n, ".%09ld", t.tv_nsec);
    else if (t.tv_nsec % 1000000 != 0)
        n += (size_t)snprintf(out + n, TIME_SIZE - n, ".%06ld", t.tv_nsec / 1000);
    else if (t.tv_nsec != 0)
        n += (size_t)snprintf(out + n, TIME_SIZE - n, ".%03ld", t.tv_nsec / 1000000);
    snprintf(out + n, TIME_SIZE - n, "Z");
}

static int append_time(struct buf *out, struct timespec t)
{
    char text[TIME_SIZE];

    if ((t.tv_sec == 0 && t.tv_nsec == 0) || t.tv_sec < FIRST_SECOND || t.tv_sec > LAST_SECOND ||
        t.tv_nsec < 0 || t.tv_nsec >= NANOS_PER_SEC)
        return 0;
    format_time(t, text);
    return fs_json_field(out, "modifiedTime", text);
}

/* Appends an attribute of the metadata. Values that are not UTF-8 are skipped: they were not set by
 * an upload, and a protobuf string cannot carry them. *budget goes down by what was added. */
static int append_attribute(struct buf *out, const char *path, const char *name, bool *any,
                            size_t *budget)
{
    static const size_t prefix = sizeof(FS_ENTRY_METADATA_PREFIX) - 1;
    CLEANUP_FREE char *value = malloc(VALUE_MAX);
    ssize_t n = value ? getxattr(path, name, value, VALUE_MAX) : -1;
    size_t cost = strlen(name) + (size_t)MAX(n, 0);
    int r;

    if (n < 0 || cost > *budget || !utf8_is_valid(name, strlen(name)) ||
        !utf8_is_valid(value, (size_t)n))
        return 0;
    r = buf_append_str(out, *any ? "," : ",\"metadata\":{");
    if (r == 0)
        r = fs_json_string(out, name + prefix, strlen(name + prefix));
    if (r == 0)
        r = buf_append(out, ":", 1);
    if (r == 0)
        r = fs_json_string(out, value, (size_t)n);
    *any = true;
    *budget -= cost;
    return r;
}

int fs_entry_append_metadata(struct buf *out, const char *path)
{
    CLEANUP_FREE char *list = NULL;
    size_t budget = FS_ENTRY_METADATA_MAX;
    bool any = false;
    ssize_t n = listxattr(path, NULL, 0);

    /* Best effort, as with upstream: most files have none, some file systems know none. */
    if (n <= 0)
        return 0;
    list = malloc(LIST_MAX);
    n = list ? listxattr(path, list, LIST_MAX) : -1;
    for (char *name = list; n > 0 && name < list + n; name += strlen(name) + 1) {
        int r;

        if (strncmp(name, FS_ENTRY_METADATA_PREFIX, strlen(FS_ENTRY_METADATA_PREFIX)) != 0)
            continue;
        r = append_attribute(out, path, name, &any, &budget);
        if (r < 0)
            return r;
    }
    return any ? buf_append(out, "}", 1) : 0;
}

struct entry {
    struct stat st;
    mode_t mode; /* of the target; 0 when there is none */
    bool is_link;
    char target[AGENT_PATH_SIZE];
};

static int stat_path(const char *path, struct entry *e)
{
    struct stat target;

    if (lstat(path, &e->st) < 0)
        return -errno;
    e->mode = e->st.st_mode;
    e->is_link = S_ISLNK(e->st.st_mode);
    if (!e->is_link)
        return 0;
    if (fs_eval_links(path, e->target) < 0)
        snprintf(e->target, sizeof(e->target), "%s", path);
    e->mode = stat(e->target, &target) == 0 ? target.st_mode : 0;
    return 0;
}

/* btrfs says 0 for an empty directory; clients take a directory's size to be above 0, as on
 * ext4. */
static off_t shown_size(const struct stat *st)
{
    return S_ISDIR(st->st_mode) && st->st_size == 0 ? st->st_blksize : st->st_size;
}

static int append_fields(struct buf *out, const struct entry *e, const char *shown,
                         struct user_names *names)
{
    char permissions[FS_ENTRY_PERMISSIONS_SIZE];
    const char *type = type_name(e->mode);
    int r = fs_json_field(out, "name", path_base(shown));

    fs_entry_permissions(e->st.st_mode, permissions);
    if (r == 0 && type)
        r = fs_json_field(out, "type", type);
    if (r == 0)
        r = fs_json_field(out, "path", shown);
    if (r == 0 && shown_size(&e->st) != 0)
        r = buf_printf(out, ",\"size\":\"%lld\"", (long long)shown_size(&e->st));
    if (r == 0 && (e->mode & 0777) != 0)
        r = buf_printf(out, ",\"mode\":%u", e->mode & 0777);
    if (r == 0)
        r = fs_json_field(out, "permissions", permissions);
    if (r == 0)
        r = fs_json_field(out, "owner", user_names_uid(names, e->st.st_uid));
    if (r == 0)
        r = fs_json_field(out, "group", user_names_gid(names, e->st.st_gid));
    if (r == 0)
        r = append_time(out, e->st.st_mtim);
    if (r == 0 && e->is_link)
        r = fs_json_field(out, "symlinkTarget", e->target);
    return r;
}

int fs_entry_append(struct buf *out, const char *path, const char *shown, struct user_names *names)
{
    size_t before = out->len;
    struct entry e;
    int r = stat_path(path, &e);

    if (r < 0)
        return r;
    r = buf_append(out, "{", 1);
    if (r == 0)
        r = append_fields(out, &e, shown ? shown : path, names);
    if (r == 0)
        r = fs_entry_append_metadata(out, path);
    if (r == 0)
        r = buf_append(out, "}", 1);
    if (r < 0)
        buf_truncate(out, before);
    return r;
}
