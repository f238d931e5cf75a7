#include "agent/fs/fs_list.h"

#include "agent/common/path.h"
#include "agent/fs/fs_entry.h"
#include "agent/fs/fs_open.h"
#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define ENTRIES_BYTES (32u * 1024u)
#define STEP_MS       8
#define MAX_LEVELS    (AGENT_PATH_SIZE / 2) /* a path has no more elements */

/* A directory on the current path: its names, sorted. Each name is a byte of type (DT_*) and the
 * NUL-terminated name, in pool. */
struct level {
    char *pool;
    size_t pool_len, pool_cap;
    const char **names;
    size_t count, next;
    size_t dir_len, shown_len; /* of the two paths of this directory */
};

struct fs_lister {
    char dir[AGENT_PATH_SIZE], shown[AGENT_PATH_SIZE]; /* of the current directory or entry */
    uint32_t max_depth;
    bool count_only, started, any;
    size_t entries, name_bytes; /* held at the moment: name_bytes; seen so far: entries */
    struct level *levels;
    size_t depth, levels_cap;
    struct user_names names;
    fs_lister_entry_fn write; /* NULL: fs_entry_append */
    size_t entries_max;
};

int fs_lister_new(const char *dir, const char *shown, uint32_t depth, bool count_only,
                  struct fs_lister **out)
{
    struct fs_lister *l = calloc(1, sizeof(*l));

    if (!l)
        return -ENOMEM;
    memcpy(l->dir, dir, strlen(dir) + 1);
    memcpy(l->shown, shown, strlen(shown) + 1);
    l->max_depth = depth;
    l->count_only = count_only;
    l->entries_max = FS_LIST_ENTRIES_MAX;
    user_names_init(&l->names);
    *out = l;
    return 0;
}

static void drop_level(struct fs_lister *l)
{
    struct level *v = &l->levels[--l->depth];

    l->name_bytes -= v->pool_len;
    free(v->pool);
    free(v->names);
}

void fs_lister_write_by(struct fs_lister *l, fs_lister_entry_fn fn)
{
    l->write = fn;
}

void fs_lister_limit(struct fs_lister *l, size_t entries)
{
    l->entries_max = entries;
}

void fs_lister_free(struct fs_lister *l)
{
    if (!l)
        return;
    while (l->depth > 0)
        drop_level(l);
    free(l->levels);
    user_names_free(&l->names);
    free(l);
}

static int add_name(struct fs_lister *l, struct level *v, const struct dirent64 *d)
{
    size_t n = strlen(d->d_name) + 1;

    /* Of the directories above, the entries that are still to come count too: all of them are
     * going to be in the answer. */
    if (++l->entries > l->entries_max || l->name_bytes + n + 1 > FS_LIST_NAME_BYTES_MAX)
        return -EMSGSIZE;
    if (v->pool_cap - v->pool_len < n + 1) {
        size_t cap = v->pool_cap ? v->pool_cap * 2 : 1024;
        char *pool = realloc(v->pool, cap);

        if (!pool)
            return -ENOMEM;
        v->pool = pool;
        v->pool_cap = cap;
    }
    v->pool[v->pool_len] = (char)d->d_type;
    memcpy(v->pool + v->pool_len + 1, d->d_name, n);
    v->pool_len += n + 1;
    l->name_bytes += n + 1;
    v->count++;
    return 0;
}

static bool is_dot(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static int read_names(struct fs_lister *l, struct level *v, int fd)
{
    CLEANUP_FREE char *raw = malloc(ENTRIES_BYTES);

    if (!raw)
        return -ENOMEM;
    for (;;) {
        ssize_t n = getdents64(fd, raw, ENTRIES_BYTES);

        if (n <= 0)
            return n == 0 || errno == ENOENT ? 0 : -errno;
        for (char *p = raw; p < raw + n;) {
            const struct dirent64 *d = (const struct dirent64 *)(const void *)p;
            int r = is_dot(d->d_name) ? 0 : add_name(l, v, d);

            if (r < 0)
                return r;
            p += d->d_reclen;
        }
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The pool does not move any more: index and sort it. */
static int sort_names(struct level *v)
{
    const char *p = v->pool;

    v->names = calloc(MAX(v->count, 1), sizeof(*v->names));
    if (!v->names)
        return -ENOMEM;
    for (size_t i = 0; i < v->count; i++) {
        v->names[i] = p + 1;
        p += strlen(p + 1) + 2;
    }
    qsort(v->names, v->count, sizeof(*v->names), by_name);
    return 0;
}

/* Goes into the directory that dir and shown name. A directory that vanished or became something
 * else is empty: it was there when its parent was read. */
static int push_level(struct fs_lister *l)
{
    struct level *v;
    CLEANUP_CLOSE int fd = fs_open(l->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    int r;

    if (fd < 0)
        return l->depth > 0 && (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP) ? 0 : fd;
    if (l->depth == MAX_LEVELS)
        return -ENAMETOOLONG;
    if (l->depth == l->levels_cap) {
        size_t cap = l->levels_cap ? l->levels_cap * 2 : 8;
        struct level *levels = realloc(l->levels, cap * sizeof(*levels));

        if (!levels)
            return -ENOMEM;
        l->levels = levels;
        l->levels_cap = cap;
    }
    v = &l->levels[l->depth++];
    *v = (struct level){.dir_len = strlen(l->dir), .shown_len = strlen(l->shown)};
    r = read_names(l, v, fd);
    return r < 0 ? r : sort_names(v);
}

/* path (cut to len) + "/" + name, in place. */
static int set_name(char *path, size_t len, const char *name)
{
    size_t n = strlen(name);

    if (len == 1 && path[0] == '/')
        len = 0;
    if (len + 1 + n >= AGENT_PATH_SIZE)
        return -ENAMETOOLONG;
    path[len] = '/';
    memcpy(path + len + 1, name, n + 1);
    return 0;
}

static bool is_directory(const struct fs_lister *l, const char *name)
{
    struct stat st;

    if ((unsigned char)name[-1] != DT_UNKNOWN)
        return name[-1] == DT_DIR;
    return lstat(l->dir, &st) == 0 && S_ISDIR(st.st_mode);
}

static int write_entry(struct fs_lister *l, struct buf *out)
{
    int r;

    if (l->count_only)
        return 0;
    r = l->any ? buf_append(out, ",", 1) : 0;
    if (r == 0)
        r = l->write ? l->write(out, l->dir, l->shown)
                     : fs_entry_append(out, l->dir, l->shown, &l->names);
    if (r == 0)
        l->any = true;
    if (r == -ENOENT || r == -ENOTDIR) {
        if (l->any)
            out->data[--out->len] = '\0';
        r = 0;
    }
    return r;
}

/* The next entry of the deepest directory. 1: go on; 0: the walk is over; -errno. */
static int advance(struct fs_lister *l, struct buf *out)
{
    struct level *v = &l->levels[l->depth - 1];
    const char *name;
    int r;

    if (v->next == v->count) {
        drop_level(l);
        return l->depth > 0;
    }
    name = v->names[v->next++];
    r = set_name(l->dir, v->dir_len, name);
    if (r == 0)
        r = set_name(l->shown, v->shown_len, name);
    if (r == 0)
        r = write_entry(l, out);
    if (r == 0 && l->depth < l->max_depth && is_directory(l, name))
        r = push_level(l);
    return r < 0 ? r : 1;
}

int fs_lister_step(struct fs_lister *l, size_t piece_bytes, struct buf *out)
{
    uint64_t until = clock_mono_ms() + STEP_MS;
    size_t start = out ? out->len : 0;
    int r;

    if (!l->started) {
        l->started = true;
        r = push_level(l);
        if (r < 0)
            return r;
    }
    for (unsigned i = 1; l->depth > 0; i++) {
        r = advance(l, out);
        if (r <= 0)
            return r;
        if ((out && out->len - start >= piece_bytes) || (i % 64 == 0 && clock_mono_ms() >= until))
            return 1;
    }
    return 0;
}
