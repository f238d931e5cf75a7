/* Two passes over a layer: white-outs first, then its own entries, since a white-out holds for
 * lower layers alone, in whatever order the archive has them. The first layer has nothing below
 * it. */

#include "unpack/layer.h"

#include "contract/agent_boot.h"
#include "unpack/source.h"
#include "unpack/tree_entry.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define SPACE_CHECK_BYTES (64ull * 1024 * 1024) /* written between two looks at the disk */
#define NAME_BYTES        4096u                 /* that a file takes beside its contents, at most */
#define WHITEOUT          ".wh."
#define OPAQUE            ".wh..wh..opq"

#define ALL_ACLS \
    (ARCHIVE_ENTRY_ACL_TYPE_ACCESS | ARCHIVE_ENTRY_ACL_TYPE_DEFAULT | ARCHIVE_ENTRY_ACL_TYPE_NFS4)

struct entry {
    struct source *source;
    struct archive_entry *head;
    char path[TREE_ENTRY_PATH_MAX + 1];
    const char *base; /* the last part of path */
};

typedef enum err_code take_fn(struct unpack *u, const struct entry *n, struct err *e);

static enum err_code fail_on(struct err *e, int r, const char *what, const char *path)
{
    return err_set_sys(e, err_code_from_errno(r), r, "%s %.100s", what, path);
}

/* -- limits ------------------------------------------------------------------------------------ */

static enum err_code check_space(const struct unpack *u, struct err *e)
{
    struct statvfs fs;

    if (fstatvfs(u->root_fd, &fs) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "looking at the disk");
    /* f_files is 0 where a file system does not bound them */
    if (fs.f_bavail >= fs.f_blocks / 100 * UNPACK_FREE_PERCENT &&
        fs.f_favail >= fs.f_files / 100 * UNPACK_FREE_PERCENT)
        return ERR_OK;
    return err_set(e, ERR_NO_SPACE, "the disk would be left with less than %u %% free",
                   UNPACK_FREE_PERCENT);
}

/* Holes count: a sandbox that copies such a file would fill them. */
static enum err_code count_bytes(struct unpack *u, const struct entry *n, int64_t size,
                                 struct err *e)
{
    if (size < 0 || (uint64_t)size > UNPACK_BYTES_MAX - u->bytes)
        return err_set(e, ERR_TOO_LARGE, "%.100s: the image has over %llu GiB", n->path,
                       UNPACK_BYTES_MAX >> 30);
    u->bytes += (uint64_t)size;
    return ERR_OK;
}

static enum err_code count_written(struct unpack *u, size_t n, struct err *e)
{
    uint64_t before = u->written / SPACE_CHECK_BYTES;

    u->written += n;
    return u->written / SPACE_CHECK_BYTES == before ? ERR_OK : check_space(u, e);
}

/* Names that an archive has, or that its paths imply: a path makes up to TREE_ENTRY_DEPTH_MAX
 * directories, and a file without contents takes room too. */
static enum err_code count_entries(struct unpack *u, unsigned n, struct err *e)
{
    u->entries += n;
    if (u->entries > UNPACK_ENTRIES_MAX)
        return err_set(e, ERR_TOO_LARGE, "the image has over %u entries", UNPACK_ENTRIES_MAX);
    return count_written(u, (size_t)n * NAME_BYTES, e);
}

/* An entry that is passed over is read, too: all its contents count before the next entry is looked
 * for. */
static enum err_code check_read(const struct unpack *u, const struct entry *n, struct err *e)
{
    int64_t done = archive_filter_bytes(n->source->tar, 0), size = archive_entry_size(n->head);
    uint64_t left = UNPACK_READ_MAX - MIN(u->read, UNPACK_READ_MAX);

    if (done < 0 || size < 0 || (uint64_t)done > left || (uint64_t)size > left - (uint64_t)done)
        return err_set(e, ERR_TOO_LARGE, "%.100s: over %llu GiB of archives would have to be read",
                       n->path, UNPACK_READ_MAX >> 30);
    return ERR_OK;
}

/* ACLs and extended attributes are not taken, but read: each costs time, an ACL the more the more
 * there are. */
static enum err_code count_notes(struct unpack *u, const struct entry *n, struct err *e)
{
    int acls = archive_entry_acl_count(n->head, ALL_ACLS),
        others = archive_entry_xattr_count(n->head);
    unsigned all = (unsigned)MAX(acls, 0) + (unsigned)MAX(others, 0);

    if (all > UNPACK_NOTES_MAX)
        return err_set(e, ERR_TOO_LARGE,
                       "%.100s has %u ACLs and extended attributes, allowed are %u", n->path, all,
                       UNPACK_NOTES_MAX);
    return count_entries(u, all / UNPACK_NOTES_PER_ENTRY, e);
}

/* -- contents ---------------------------------------------------------------------------------- */

static enum err_code write_at(int fd, const char *bytes, size_t n, int64_t at,
                              const struct entry *entry, struct err *e)
{
    while (n > 0) {
        ssize_t put = pwrite(fd, bytes, n, at);

        if (put < 0)
            return fail_on(e, errno, "writing", entry->path);
        bytes += put;
        n -= (size_t)put;
        at += put;
    }
    return ERR_OK;
}

static enum err_code write_contents(struct unpack *u, const struct entry *n, int fd, struct err *e)
{
    int64_t size = archive_entry_size(n->head), at;
    const void *bytes;
    size_t len;
    int r;

    while ((r = archive_read_data_block(n->source->tar, &bytes, &len, &at)) == ARCHIVE_OK) {
        if (at < 0 || at > size || (uint64_t)len > (uint64_t)(size - at))
            return err_set(e, ERR_INVALID, "%.100s has more contents than it says", n->path);
        if (write_at(fd, bytes, len, at, n, e) != ERR_OK || count_written(u, len, e) != ERR_OK)
            return e->code;
        u->contents += len;
    }
    if (r != ARCHIVE_EOF)
        return source_failed(n->source, n->path, e);
    return ftruncate(fd, size) < 0 ? fail_on(e, errno, "sizing", n->path) : ERR_OK;
}

/* -- attributes -------------------------------------------------------------------------------- */

static enum err_code read_owner(const struct entry *n, uid_t *uid, gid_t *gid, struct err *e)
{
    int64_t user = archive_entry_uid(n->head), group = archive_entry_gid(n->head);

    if (user < 0 || user > UNPACK_ID_MAX || group < 0 || group > UNPACK_ID_MAX)
        return err_set(e, ERR_INVALID, "%.100s belongs to %lld:%lld; ids go up to %u", n->path,
                       (long long)user, (long long)group, UNPACK_ID_MAX);
    *uid = (uid_t)user;
    *gid = (gid_t)group;
    return ERR_OK;
}

/* In a sandbox a set-id program yields one of the sandbox's own ids, within its bounding set; but
 * cay-init's id is not for programs. On the host the disk is mounted nosuid, below a directory of
 * root's alone. */
static mode_t mode_for(struct unpack *u, const struct entry *n, uid_t uid, gid_t gid, bool is_dir)
{
    mode_t mode = archive_entry_perm(n->head) & 07777;

    if (is_dir)
        return mode & ~(mode_t)S_ISUID;
    if (mode & (S_ISUID | S_ISGID) && (uid == AGENT_UID || gid == AGENT_UID)) {
        u->set_id_dropped++;
        mode &= ~(mode_t)(S_ISUID | S_ISGID);
    }
    return mode & ~(mode_t)S_ISVTX;
}

/* Owner first: a change of owner clears set-id bits. */
static enum err_code set_attributes(struct unpack *u, const struct entry *n,
                                    const struct tree_entry *p, mode_t type, struct err *e)
{
    struct timespec times[2] = {
        {.tv_nsec = UTIME_NOW},
        {.tv_sec = archive_entry_mtime(n->head), .tv_nsec = archive_entry_mtime_nsec(n->head)}};
    uid_t uid = 0;
    gid_t gid = 0;

    if (read_owner(n, &uid, &gid, e) != ERR_OK)
        return e->code;
    if (fchownat(p->dir_fd, p->name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_on(e, errno, "giving away", n->path);
    /* fchmodat follows links: the file of that name was made here, and is none */
    if (type != S_IFLNK &&
        fchmodat(p->dir_fd, p->name, mode_for(u, n, uid, gid, type == S_IFDIR), 0) < 0)
        return fail_on(e, errno, "setting the mode of", n->path);
    if (archive_entry_mtime_is_set(n->head) && times[1].tv_nsec >= 0 &&
        times[1].tv_nsec < 1000000000)
        (void)utimensat(p->dir_fd, p->name, times, AT_SYMLINK_NOFOLLOW);
    return ERR_OK;
}

/* -- one entry --------------------------------------------------------------------------------- */

static enum err_code make_dir(const struct entry *n, const struct tree_entry *p, struct err *e)
{
    struct stat st;
    int r = tree_entry_stat(p, &st);

    if (r == 0 && S_ISDIR(st.st_mode))
        return ERR_OK;
    r = r == 0 ? tree_entry_remove(p) : 0;
    if (r == 0 && mkdirat(p->dir_fd, p->name, 0700) < 0)
        r = -errno;
    return r < 0 ? fail_on(e, r, "making", n->path) : ERR_OK;
}

static enum err_code make_file(struct unpack *u, const struct entry *n, const struct tree_entry *p,
                               struct err *e)
{
    CLEANUP_CLOSE int fd = -1;

    if (count_bytes(u, n, archive_entry_size(n->head), e) != ERR_OK)
        return e->code;
    fd = openat(p->dir_fd, p->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? fail_on(e, errno, "making", n->path) : write_contents(u, n, fd, e);
}

static enum err_code make_symlink(const struct entry *n, const struct tree_entry *p, struct err *e)
{
    const char *target = archive_entry_symlink(n->head);

    if (!target || !target[0] || strlen(target) > TREE_ENTRY_PATH_MAX)
        return err_set(e, ERR_INVALID, "%.100s is a link without a target, or with a long one",
                       n->path);
    return symlinkat(target, p->dir_fd, p->name) < 0 ? fail_on(e, errno, "making", n->path)
                                                     : ERR_OK;
}

/* To a file or a link that is in the tree, of this layer or a lower one. */
static enum err_code make_hard_link(const struct unpack *u, const struct entry *n,
                                    const struct tree_entry *p, struct err *e)
{
    CLEANUP(tree_entry_close) struct tree_entry to = TREE_ENTRY_NONE;
    char path[TREE_ENTRY_PATH_MAX + 1];
    struct stat st, own;

    if (tree_entry_clean(archive_entry_hardlink(n->head), path, e) != ERR_OK)
        return e->code;
    if (!path[0] || tree_entry_open(u->root_fd, path, false, &to, e) != ERR_OK ||
        tree_entry_stat(&to, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
        return err_set(e, ERR_INVALID, "%.80s is a hard link to %.80s, which is no file here",
                       n->path, path);
    if (tree_entry_stat(p, &own) == 0 && own.st_ino == st.st_ino && own.st_dev == st.st_dev)
        return ERR_OK;
    if (tree_entry_remove(p) < 0 || linkat(to.dir_fd, to.name, p->dir_fd, p->name, 0) < 0)
        return fail_on(e, errno, "linking", n->path);
    return ERR_OK;
}

static enum err_code put_special(struct unpack *u)
{
    u->left_out++;
    return ERR_OK;
}

static enum err_code put_entry(struct unpack *u, const struct entry *n, struct err *e)
{
    CLEANUP(tree_entry_close) struct tree_entry p = TREE_ENTRY_NONE;
    mode_t type = archive_entry_filetype(n->head);
    int r = 0;

    if (tree_entry_open(u->root_fd, n->path, true, &p, e) != ERR_OK ||
        count_entries(u, p.made, e) != ERR_OK)
        return e->code;
    if (archive_entry_hardlink(n->head))
        return make_hard_link(u, n, &p, e);
    if (type != S_IFDIR && type != S_IFREG && type != S_IFLNK)
        return put_special(u);
    if (type != S_IFDIR)
        r = tree_entry_remove(&p);
    if (r < 0)
        return fail_on(e, r, "replacing", n->path);
    *e = (struct err){.code = ERR_OK};
    if (type == S_IFDIR)
        make_dir(n, &p, e);
    else if (type == S_IFREG)
        make_file(u, n, &p, e);
    else
        make_symlink(n, &p, e);
    return e->code == ERR_OK ? set_attributes(u, n, &p, type, e) : e->code;
}

static bool is_whiteout(const struct entry *n)
{
    return strncmp(n->base, WHITEOUT, strlen(WHITEOUT)) == 0;
}

/* The root is there, and is root's. */
static enum err_code take_entry(struct unpack *u, const struct entry *n, struct err *e)
{
    if (count_entries(u, 1, e) != ERR_OK)
        return e->code;
    return !n->path[0] || is_whiteout(n) ? ERR_OK : put_entry(u, n, e);
}

/* -- white-outs -------------------------------------------------------------------------------- */

/* Where the folder of a mark is none in the lower layers, or stands behind a link there, nothing of
 * theirs is hidden: the layer's own entries say what it becomes. */
static bool is_nothing(enum err_code code)
{
    return code == ERR_NOT_FOUND || code == ERR_INVALID;
}

/* All that is in the folder of path. */
static int empty_parent(int root_fd, const char *path)
{
    char dir[TREE_ENTRY_PATH_MAX + 1];
    struct tree_entry root = {.dir_fd = root_fd, .name = "."};
    CLEANUP(tree_entry_close) struct tree_entry p = TREE_ENTRY_NONE;
    const char *slash = strrchr(path, '/');
    struct stat st;
    struct err e;

    if (!slash)
        return tree_entry_empty(&root);
    snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
    if (tree_entry_open(root_fd, dir, false, &p, &e) != ERR_OK)
        return is_nothing(e.code) ? 0 : -EIO;
    return tree_entry_stat(&p, &st) == 0 && S_ISDIR(st.st_mode) ? tree_entry_empty(&p) : 0;
}

static enum err_code hide(const struct unpack *u, const struct entry *n, struct err *e)
{
    CLEANUP(tree_entry_close) struct tree_entry p = TREE_ENTRY_NONE;
    const char *name = n->base + strlen(WHITEOUT);
    int r;

    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(e, ERR_INVALID, "%.100s is a white-out of no name", n->path);
    if (tree_entry_open(u->root_fd, n->path, false, &p, e) != ERR_OK)
        return is_nothing(e->code) ? ERR_OK : e->code;
    p.name = name;
    r = tree_entry_remove(&p);
    return r < 0 ? fail_on(e, r, "hiding", n->path) : ERR_OK;
}

static enum err_code take_whiteout(struct unpack *u, const struct entry *n, struct err *e)
{
    int r;

    if (!is_whiteout(n))
        return ERR_OK;
    if (strcmp(n->base, OPAQUE) == 0) {
        r = empty_parent(u->root_fd, n->path);
        return r < 0 ? fail_on(e, r, "emptying the folder of", n->path) : ERR_OK;
    }
    /* other names of this kind are notes of a storage driver's own */
    return strncmp(n->base, ".wh..wh.", 8) == 0 ? ERR_OK : hide(u, n, e);
}

/* -- the archive ------------------------------------------------------------------------------- */

static enum err_code read_name(struct entry *n, struct err *e)
{
    const char *raw = archive_entry_pathname(n->head), *slash;

    if (!raw)
        return err_set(e, ERR_INVALID, "an entry of the archive has no name that can be read");
    if (tree_entry_clean(raw, n->path, e) != ERR_OK)
        return e->code;
    slash = strrchr(n->path, '/');
    n->base = slash ? slash + 1 : n->path;
    return ERR_OK;
}

static enum err_code one_entry(struct unpack *u, struct entry *n, take_fn *take, struct err *e)
{
    if (read_name(n, e) != ERR_OK || count_notes(u, n, e) != ERR_OK || take(u, n, e) != ERR_OK)
        return e->code;
    return check_read(u, n, e);
}

static enum err_code each_entry(struct unpack *u, int fd, take_fn *take, struct err *e)
{
    CLEANUP(source_close) struct source s = {.tar = NULL};
    struct entry n;
    int r;

    if (lseek(fd, 0, SEEK_SET) < 0)
        return err_set_sys(e, ERR_INTERNAL, errno, "going to the beginning of the archive");
    if (source_open(&s, fd, UNPACK_READ_MAX - MIN(u->read, UNPACK_READ_MAX), e) != ERR_OK)
        return e->code;
    n = (struct entry){.source = &s};
    while ((r = archive_read_next_header(s.tar, &n.head)) == ARCHIVE_OK || r == ARCHIVE_WARN)
        if (one_entry(u, &n, take, e) != ERR_OK)
            return e->code;
    u->read += s.read;
    return r == ARCHIVE_EOF ? ERR_OK : source_failed(&s, NULL, e);
}

enum err_code layer_unpack(struct unpack *u, int fd, bool is_first, struct err *e)
{
    if (check_space(u, e) != ERR_OK)
        return e->code;
    if (!is_first && each_entry(u, fd, take_whiteout, e) != ERR_OK)
        return e->code;
    return each_entry(u, fd, take_entry, e);
}
