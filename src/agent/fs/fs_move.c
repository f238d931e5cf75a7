/* A mover is made with two names, stepped until it says that it is done or has failed, and
 * freed: copying (one entry or some bytes of a file a step, depth first), in place (one
 * rename), removing (fs_remove.c, of the source). A failure before the rename removes the copy
 * and leaves the source; after it nothing is taken back. Runs on the file worker's thread
 * (fs_worker.c). */

#include "agent/fs/fs_move.h"

#include "agent/common/path.h"
#include "agent/fs/fs_copy.h"
#include "agent/fs/fs_open.h"
#include "agent/fs/fs_remove.h"
#include "base/clock.h"
#include "base/ids.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define ENTRIES_BYTES (8u * 1024u)
#define STEP_MS       8
#define PIECE_BYTES   (4u * 1024u * 1024u)
#define SUFFIX_LEN    16u
#define XATTRS_MAX    (64u * 1024u)
#define OPEN_DIR      (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

/* A directory that is being copied. */
struct level {
    int in, out;
    struct stat st; /* of in: given to out when all is in it */
    size_t pos, len;
    char *entries;
};

struct fs_mover {
    enum { MOVE_START, MOVE_COPY, MOVE_REMOVE_SOURCE, MOVE_REMOVE_COPY } state;
    char from[AGENT_PATH_SIZE], tmp[AGENT_PATH_SIZE];
    int from_dir, to_dir;
    char from_name[NAME_MAX + 1], tmp_name[NAME_MAX + 1], to_name[NAME_MAX + 1];
    struct level levels[FS_MOVE_DEPTH_MAX];
    size_t depth;
    int file_in, file_out; /* a file being copied, or -1 */
    struct stat file_st;
    struct fs_remover *remover;
    int error; /* why the copy is removed */
};

static void close_level(struct level *v)
{
    util_close(&v->in);
    util_close(&v->out);
    free(v->entries);
    v->entries = NULL;
}

void fs_mover_free(struct fs_mover *m)
{
    if (!m)
        return;
    while (m->depth > 0)
        close_level(&m->levels[--m->depth]);
    util_close(&m->file_in);
    util_close(&m->file_out);
    util_close(&m->from_dir);
    util_close(&m->to_dir);
    fs_remover_free(m->remover);
    free(m);
}

/* cay-init's own files in /proc must not be copied for any user (fs_open.h), and nothing else of
 * /proc can be moved either. */
static bool is_proc(int fd)
{
    struct statfs fs;

    return fstatfs(fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC;
}

static int set_names(struct fs_mover *m, const char *from, const char *to)
{
    char suffix[SUFFIX_LEN + 1], dir[AGENT_PATH_SIZE];

    if (strlen(path_base(from)) > NAME_MAX || strlen(path_base(to)) > NAME_MAX)
        return -ENAMETOOLONG;
    ids_random_text(suffix, SUFFIX_LEN);
    memcpy(m->from, from, strlen(from) + 1);
    memcpy(m->from_name, path_base(from), strlen(path_base(from)) + 1);
    memcpy(m->to_name, path_base(to), strlen(path_base(to)) + 1);
    snprintf(m->tmp_name, sizeof(m->tmp_name), ".%.200s.move-%s.tmp", m->to_name, suffix);
    path_dir(to, dir);
    return path_join(dir, m->tmp_name, m->tmp);
}

int fs_mover_new(const char *from, const char *to, struct fs_mover **out)
{
    struct fs_mover *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return -ENOMEM;
    m->from_dir = m->to_dir = m->file_in = m->file_out = -1;
    r = set_names(m, from, to);
    if (r == 0)
        r = m->from_dir = fs_open_parent(from);
    if (r >= 0)
        r = is_proc(m->from_dir) ? -EACCES : (m->to_dir = fs_open_parent(to));
    if (r < 0) {
        fs_mover_free(m);
        return r;
    }
    *out = m;
    return 0;
}

/* Best effort: another file system may keep no attributes, and some are not ours to set. */
static void copy_xattrs(int in, int out)
{
    CLEANUP_FREE char *names = malloc(XATTRS_MAX);
    CLEANUP_FREE char *value = malloc(XATTRS_MAX);
    ssize_t n = names && value ? flistxattr(in, names, XATTRS_MAX) : -1;

    for (char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
        ssize_t len = fgetxattr(in, name, value, XATTRS_MAX);

        if (len >= 0)
            (void)!fsetxattr(out, name, value, (size_t)len, 0);
    }
}

/* The mode comes after the owner: chown clears set-uid and set-gid. */
static int copy_attributes(int in, int out, const struct stat *st)
{
    struct timespec times[2] = {st->st_atim, st->st_mtim};

    copy_xattrs(in, out);
    if (fchown(out, st->st_uid, st->st_gid) < 0 || fchmod(out, st->st_mode & 07777) < 0 ||
        futimens(out, times) < 0)
        return -errno;
    return 0;
}

static int copy_link(int in_dir, const char *name, int out_dir, const char *out_name,
                     const struct stat *st)
{
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    char target[AGENT_PATH_SIZE];
    ssize_t n = readlinkat(in_dir, name, target, sizeof(target) - 1);

    if (n < 0)
        return -errno;
    target[n] = '\0';
    if (symlinkat(target, out_dir, out_name) < 0 ||
        fchownat(out_dir, out_name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        utimensat(out_dir, out_name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return 0;
}

/* A FIFO, or the name of a socket, which has no listener in its new place, as after mv. */
static int copy_node(int out_dir, const char *out_name, const struct stat *st)
{
    if (!S_ISFIFO(st->st_mode) && !S_ISSOCK(st->st_mode))
        return -EPERM;
    if (mknodat(out_dir, out_name, st->st_mode & (S_IFMT | 07777), 0) < 0 ||
        fchownat(out_dir, out_name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(out_dir, out_name, st->st_mode & 07777, 0) < 0)
        return -errno;
    return 0;
}

static int enter(struct fs_mover *m, int in_dir, const char *name, int out_dir,
                 const char *out_name)
{
    struct level *v = &m->levels[m->depth];

    if (m->depth == FS_MOVE_DEPTH_MAX)
        return -ENAMETOOLONG;
    *v = (struct level){.in = openat(in_dir, name, OPEN_DIR), .out = -1};
    if (v->in < 0)
        return -errno;
    m->depth++;
    if (is_proc(v->in))
        return -EACCES;
    v->entries = malloc(ENTRIES_BYTES);
    if (!v->entries)
        return -ENOMEM;
    if (fstat(v->in, &v->st) < 0 || mkdirat(out_dir, out_name, 0700) < 0)
        return -errno;
    v->out = openat(out_dir, out_name, OPEN_DIR);
    return v->out < 0 ? -errno : 0;
}

static int begin_file(struct fs_mover *m, int in_dir, const char *name, int out_dir,
                      const char *out_name)
{
    m->file_in = openat(in_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (m->file_in < 0 || fstat(m->file_in, &m->file_st) < 0)
        return -errno;
    if (!S_ISREG(m->file_st.st_mode))
        return -EBUSY; /* it was a moment ago */
    if (is_proc(m->file_in))
        return -EACCES;
    m->file_out = openat(out_dir, out_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                         0600);
    return m->file_out < 0 ? -errno : 0;
}

static int copy_entry(struct fs_mover *m, int in_dir, const char *name, int out_dir,
                      const char *out_name)
{
    struct stat st;

    if (fstatat(in_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return enter(m, in_dir, name, out_dir, out_name);
    if (S_ISREG(st.st_mode))
        return begin_file(m, in_dir, name, out_dir, out_name);
    if (S_ISLNK(st.st_mode))
        return copy_link(in_dir, name, out_dir, out_name, &st);
    return copy_node(out_dir, out_name, &st);
}

static int copy_bytes(struct fs_mover *m)
{
    ssize_t n = fs_copy_piece(m->file_in, m->file_out, PIECE_BYTES);
    int r;

    if (n != 0)
        return n < 0 ? (int)n : 0;
    r = copy_attributes(m->file_in, m->file_out, &m->file_st);
    util_close(&m->file_in);
    util_close(&m->file_out);
    return r;
}

static const struct dirent64 *current(const struct level *v)
{
    return (const struct dirent64 *)(const void *)(v->entries + v->pos);
}

static int leave(struct fs_mover *m)
{
    struct level *v = &m->levels[m->depth - 1];
    int r = copy_attributes(v->in, v->out, &v->st);

    close_level(v);
    m->depth--;
    return r;
}

/* The next entry of the deepest directory. */
static int advance(struct fs_mover *m)
{
    struct level *v = &m->levels[m->depth - 1];
    const char *name;

    if (v->pos < v->len)
        v->pos += current(v)->d_reclen;
    if (v->pos >= v->len) {
        ssize_t n = getdents64(v->in, v->entries, ENTRIES_BYTES);

        if (n < 0)
            return -errno;
        v->pos = 0;
        v->len = (size_t)n;
        if (n == 0)
            return leave(m);
    }
    name = current(v)->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return 0;
    return copy_entry(m, v->in, name, v->out, name);
}

/* All is copied: it takes its place, and the source goes. */
static int install(struct fs_mover *m)
{
    if (renameat(m->to_dir, m->tmp_name, m->to_dir, m->to_name) < 0)
        return -errno;
    m->state = MOVE_REMOVE_SOURCE;
    return fs_remover_new(m->from, &m->remover);
}

static int copy_step(struct fs_mover *m)
{
    if (m->state == MOVE_START) {
        m->state = MOVE_COPY;
        return copy_entry(m, m->from_dir, m->from_name, m->to_dir, m->tmp_name);
    }
    if (m->file_in >= 0)
        return copy_bytes(m);
    return m->depth > 0 ? advance(m) : install(m);
}

static int give_up(struct fs_mover *m, int error)
{
    m->error = error;
    m->state = MOVE_REMOVE_COPY;
    return fs_remover_new(m->tmp, &m->remover) < 0 ? error : 1;
}

int fs_mover_step(struct fs_mover *m)
{
    uint64_t until = clock_mono_ms() + STEP_MS;
    int r = 0;

    while (r == 0 && m->state <= MOVE_COPY && clock_mono_ms() < until)
        r = copy_step(m);
    if (r < 0)
        return m->state == MOVE_REMOVE_SOURCE ? r : give_up(m, r);
    if (m->state <= MOVE_COPY)
        return 1;
    r = fs_remover_step(m->remover);
    if (r == 1)
        return 1;
    return m->state == MOVE_REMOVE_COPY ? m->error : r;
}
