/* A remover walks depth first with a fixed number of open directories: entries are removed as
 * they are read; a directory is entered (push), read to its end, left and removed (pop). A
 * parent that was closed on the way down is opened again by "..", and the walk stops there if
 * it is not the one that we came from. Each step does a bounded number of entries, so that the
 * worker can end it between two. */

#include "agent/fs/fs_remove.h"

#include "agent/common/path.h"
#include "agent/fs/fs_open.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#define ENTRIES_BYTES (8u * 1024u)
#define STEP_MS       4
#define STEP_ENTRIES  64 /* between looks at the clock */
#define MAX_RETRIES   8  /* times that a directory is filled again behind us */
#define OPEN_DIR      (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)

struct dir_id {
    dev_t dev;
    ino_t ino;
};

/* An open directory and what was read of it. */
struct frame {
    int fd;
    size_t pos, len; /* of entries; the current one is at pos */
    bool again;      /* the current entry was entered: now try it once more */
    unsigned retries;
    char *entries;
};

struct fs_remover {
    int parent_fd; /* holds name */
    char name[NAME_MAX + 1];
    bool entered;
    unsigned retries; /* of the top directory */
    int error;        /* the first */
    /* Level 0 is the top directory. Levels depth - held .. depth - 1 have their frame open, in
     * frames[level % FS_REMOVE_FRAMES]; those above are found again by "..". */
    size_t depth, held;
    struct frame frames[FS_REMOVE_FRAMES];
    struct dir_id *ids; /* of each level */
    size_t ids_cap;
};

int fs_remover_new(const char *path, struct fs_remover **out)
{
    struct fs_remover *r;
    const char *name = path_base(path);
    int fd;

    if (strcmp(path, "/") == 0)
        return -EBUSY;
    if (strlen(name) > NAME_MAX)
        return -ENAMETOOLONG;
    fd = fs_open_parent(path);
    if (fd < 0 && fd != -ENOENT)
        return fd;
    r = calloc(1, sizeof(*r));
    if (!r) {
        if (fd >= 0)
            close(fd);
        return -ENOMEM;
    }
    for (size_t i = 0; i < FS_REMOVE_FRAMES; i++)
        r->frames[i].fd = -1;
    r->parent_fd = fd < 0 ? -1 : fd;
    snprintf(r->name, sizeof(r->name), "%s", name);
    *out = r;
    return 0;
}

void fs_remover_free(struct fs_remover *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < FS_REMOVE_FRAMES; i++) {
        util_close(&r->frames[i].fd);
        free(r->frames[i].entries);
    }
    util_close(&r->parent_fd);
    free(r->ids);
    free(r);
}

static struct frame *frame_at(struct fs_remover *r, size_t level)
{
    return &r->frames[level % FS_REMOVE_FRAMES];
}

static void note_error(struct fs_remover *r, int error)
{
    if (r->error == 0)
        r->error = error;
}

/* 0: gone. 1: a directory that is not empty. -errno. */
static int remove_entry(int dir_fd, const char *name)
{
    /* It may change between file and directory under us, but not forever. */
    for (unsigned i = 0; i < MAX_RETRIES; i++) {
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
            return 0;
        if (errno != EISDIR && errno != EPERM)
            return -errno;
        if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
        if (errno == ENOTEMPTY || errno == EEXIST)
            return 1;
        if (errno != ENOTDIR)
            return -errno;
    }
    /* unlink(2) said EPERM and rmdir(2) ENOTDIR each time: a file that may not be removed. */
    return -EPERM;
}

/* Makes fd the frame of the next level down; takes fd over. */
static int push(struct fs_remover *r, int fd)
{
    CLEANUP_CLOSE int owned = fd;
    struct frame *f = frame_at(r, r->depth);
    struct stat st;

    if (r->depth >= FS_REMOVE_DEPTH_MAX)
        return -ENAMETOOLONG;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (r->depth == r->ids_cap) {
        size_t cap = r->ids_cap ? r->ids_cap * 2 : 64;
        struct dir_id *ids = realloc(r->ids, cap * sizeof(*ids));

        if (!ids)
            return -ENOMEM;
        r->ids = ids;
        r->ids_cap = cap;
    }
    if (!f->entries && !(f->entries = malloc(ENTRIES_BYTES)))
        return -ENOMEM;
    util_close(&f->fd); /* of the level FS_REMOVE_FRAMES above, if it was still open */
    *f = (struct frame){.fd = TAKE_FD(owned), .entries = f->entries};
    r->ids[r->depth++] = (struct dir_id){st.st_dev, st.st_ino};
    r->held = MIN(r->held + 1, (size_t)FS_REMOVE_FRAMES);
    return 0;
}

/* Enters a directory. A name that is none any more (a link took its place) is left to be tried
 * again. */
static int enter(struct fs_remover *r, int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, OPEN_DIR);

    if (fd >= 0)
        return push(r, fd);
    return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
}

/* The parent of the current level was closed on the way down: opens it again by "..", which the
 * kernel resolves to wherever the directory is now. If that is not where we came from, another
 * process moved it out of the tree, and the files there are not ours to remove. */
static int reopen_parent(struct fs_remover *r, int child_fd)
{
    size_t level = r->depth - 2;
    struct frame *f = frame_at(r, level);
    CLEANUP_CLOSE int fd = openat(child_fd, "..", OPEN_DIR);
    struct stat st;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_dev != r->ids[level].dev || st.st_ino != r->ids[level].ino)
        return -EBUSY;
    if (!f->entries && !(f->entries = malloc(ENTRIES_BYTES)))
        return -ENOMEM;
    *f = (struct frame){.fd = TAKE_FD(fd), .entries = f->entries};
    return 0;
}

/* The current directory has no more entries: back to the one above. */
static int pop(struct fs_remover *r)
{
    struct frame *f = frame_at(r, r->depth - 1);

    if (r->held == 1) {
        /* The parent is read from its start again and would meet what could not be removed once
         * more, without end. */
        int e = r->error ? r->error : reopen_parent(r, f->fd);

        if (e < 0)
            return e;
        r->held++;
    }
    util_close(&f->fd);
    r->depth--;
    r->held--;
    return 0;
}

static const struct dirent64 *current(const struct frame *f)
{
    return (const struct dirent64 *)(const void *)(f->entries + f->pos);
}

static bool is_dot(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/* 1: current(f) is the next entry; 0: no more; -errno. */
static int next_entry(struct frame *f)
{
    for (;;) {
        if (f->pos < f->len)
            f->pos += current(f)->d_reclen;
        f->retries = 0;
        if (f->pos >= f->len) {
            ssize_t n = getdents64(f->fd, f->entries, ENTRIES_BYTES);

            /* ENOENT: the directory itself was removed by another process. */
            if (n < 0 && errno != ENOENT)
                return -errno;
            f->pos = 0;
            f->len = (size_t)MAX(n, 0);
            if (f->len == 0)
                return 0;
        }
        if (!is_dot(current(f)->d_name))
            return 1;
    }
}

/* The current directory was read to its end. 1: go on; 0: all is removed; -errno. */
static int leave(struct fs_remover *r)
{
    int left;

    if (r->depth > 1) {
        int e = pop(r);
        struct frame *f = frame_at(r, r->depth - 1);

        if (e == 0)
            f->again = f->len > 0;
        return e < 0 ? e : 1;
    }
    left = remove_entry(r->parent_fd, r->name);
    if (left <= 0)
        return left;
    if (r->error)
        return r->error;
    if (++r->retries > MAX_RETRIES)
        return -ENOTEMPTY;
    r->depth = r->held = 0;
    util_close(&frame_at(r, 0)->fd);
    left = enter(r, r->parent_fd, r->name);
    return left < 0 ? left : 1;
}

/* Removes an entry of the current directory. 1: go on; 0: all is removed; -errno. */
static int advance(struct fs_remover *r)
{
    struct frame *f = frame_at(r, r->depth - 1);
    bool again = f->again;
    int got = again ? 1 : next_entry(f);

    f->again = false;
    if (got < 0)
        return got;
    if (got == 0)
        return leave(r);
    got = remove_entry(f->fd, current(f)->d_name);
    if (got < 0)
        note_error(r, got);
    if (got != 1)
        return 1;
    if (again && (r->error || ++f->retries > MAX_RETRIES)) {
        note_error(r, -ENOTEMPTY);
        return 1;
    }
    /* A name that changes under us is tried again when this directory is read again. */
    got = enter(r, f->fd, current(f)->d_name);
    if (got < 0)
        note_error(r, got);
    return 1;
}

static int start(struct fs_remover *r)
{
    int left = r->parent_fd < 0 ? 0 : remove_entry(r->parent_fd, r->name);

    r->entered = true;
    if (left <= 0)
        return left;
    if (++r->retries > MAX_RETRIES)
        return -EBUSY;
    left = enter(r, r->parent_fd, r->name);
    if (left < 0)
        return left;
    return 1;
}

int fs_remover_step(struct fs_remover *r)
{
    uint64_t until = clock_mono_ms() + STEP_MS;
    int more = 1;

    if (!r->entered)
        more = start(r);
    while (more == 1 && clock_mono_ms() < until) {
        for (unsigned i = 0; i < STEP_ENTRIES && more == 1; i++)
            more = r->depth ? advance(r) : start(r);
    }
    return more;
}
