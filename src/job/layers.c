/* In order: names, the lock, what templates name, the sweep, the seed, counts, beginnings. layers.h
 * has the form of all files. A beginning without a layer is a snapshot, too: of a seed, an empty
 * tree whose inode numbers have been raised (inodes.h), since each subvolume counts its own. */
#include "job/layers.h"

#include "base/buf.h"
#include "base/io.h"
#include "contract/meta.h"
#include "job/inodes.h"
#include "job/say.h"
#include "job/template.h"
#include "job/tree.h"
#include "sys/btrfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define DIR            ".layers"
#define NEW_SEED       ".seed"
#define SEED_NAME_SIZE 32
#define LINE           65u /* 64 hex digits and a newline */
#define FORM           "1" /* of cay-unpack's work: another one has another form */
#define FILE_MAX       (LAYERS_MAX * LAYERS_NAME_SIZE)
#define COUNTS         "counts"
#define NAMES          "layers"

/* -- names ------------------------------------------------------------------------------------- */

static bool is_line(const char *text)
{
    return strspn(text, "0123456789abcdef") == LINE - 1 && text[LINE - 1] == '\n';
}

static int read_lines(struct layers *l, const char *text, size_t len, uint64_t first_inode)
{
    char whose[LINE] = "server";
    size_t lines = len / LINE;

    if (len % LINE != 0 || lines < 2 || lines > LAYERS_MAX + 1)
        return -EINVAL;
    for (size_t i = 0; i < lines; i++)
        if (!is_line(text + i * LINE))
            return -EINVAL;
    if (l->number > META_TEMPLATES_SERVER)
        snprintf(whose, sizeof(whose), "%.64s", text);
    for (size_t i = 1; i < lines; i++)
        snprintf(l->names[i - 1], sizeof(l->names[0]), FORM "-%" PRIu64 "-%s-%.64s", first_inode,
                 whose, text + i * LINE);
    l->count = lines - 1;
    return 0;
}

static ssize_t read_small(int dir_fd, const char *path, char *out, size_t size)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    size_t used = 0;
    ssize_t n = 1;

    if (fd < 0)
        return -errno;
    for (; n > 0 && used < size; used += (size_t)MAX(n, 0))
        n = read(fd, out + used, size - used);
    return n < 0 ? -errno : (ssize_t)used;
}

int layers_read(const char *spool, uint32_t number, uint64_t first_inode, struct layers *out)
{
    CLEANUP_CLOSE int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char path[128], text[(LAYERS_MAX + 1) * LINE + 2];
    ssize_t n;

    *out = (struct layers){.number = number};
    snprintf(path, sizeof(path), "%s/" NAMES, spool);
    n = here >= 0 && btrfs_is(here) ? read_small(AT_FDCWD, path, text, sizeof(text) - 1) : -ENOENT;
    if (n < 0)
        return n == -ENOENT ? 0 : (int)n;
    text[n] = '\0';
    return read_lines(out, text, (size_t)n, first_inode);
}

static void seed_name(uint64_t first_inode, char out[static SEED_NAME_SIZE])
{
    snprintf(out, SEED_NAME_SIZE, "seed-%" PRIu64, first_inode);
}

/* -- the lock ---------------------------------------------------------------------------------- */

/* A descriptor of the folder, locked as long as it is open; -ENOENT: it is not there. */
static int lock_all(bool make)
{
    CLEANUP_CLOSE int fd = -1;

    if (make && mkdir(DIR, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = open(DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (flock(fd, LOCK_EX) < 0)
        if (errno != EINTR)
            return -errno;
    return TAKE_FD(fd);
}

/* -- what templates name ----------------------------------------------------------------------- */

struct named {
    struct buf text; /* lines */
    char **lines;    /* in order */
    size_t n;
    int r;
};

static bool add_names(void *arg, const char *name)
{
    struct named *all = arg;
    char path[300];
    ssize_t n;

    if (!isdigit((unsigned char)name[0]) && strncmp(name, ".build-", 7) != 0 &&
        strncmp(name, ".old-", 5) != 0)
        return true;
    snprintf(path, sizeof(path), "%.250s/" NAMES, name);
    all->r = buf_reserve(&all->text, FILE_MAX);
    if (all->r < 0)
        return false;
    n = read_small(AT_FDCWD, path, all->text.data + all->text.len, FILE_MAX);
    if (n > 0)
        buf_commit(&all->text, (size_t)n);
    else if (n < 0 && n != -ENOENT && n != -ENOTDIR)
        all->r = (int)n;
    return all->r == 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void named_free(struct named *all)
{
    buf_free(&all->text);
    free(all->lines);
}

static int read_named(struct named *all)
{
    size_t lines = 0;
    int r;

    buf_init(&all->text, LAYERS_NAMED_BYTES);
    r = io_each_name_at(AT_FDCWD, ".", add_names, all);
    if (r < 0 || all->r < 0)
        return r < 0 ? r : all->r;
    for (size_t i = 0; i < all->text.len; i++)
        lines += all->text.data[i] == '\n';
    all->lines = calloc(lines + 1, sizeof(*all->lines));
    if (!all->lines)
        return -ENOMEM;
    for (char *at = all->text.data, *end = at + all->text.len, *stop; at && at < end;
         at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            break;
        *stop = '\0';
        all->lines[all->n++] = at;
    }
    if (all->n > 0)
        qsort(all->lines, all->n, sizeof(*all->lines), compare);
    return 0;
}

static bool is_named(const struct named *all, const char *name)
{
    return all->n > 0 && bsearch(&name, all->lines, all->n, sizeof(*all->lines), compare) != NULL;
}

/* -- the sweep --------------------------------------------------------------------------------- */

struct sweep {
    struct named named;
    char seed[SEED_NAME_SIZE];
    int dir_fd;
};

/* The seed stays: it is empty, and costly to make; and so does one that was broken off. Others are
 * of another setting, or layers of any form. */
static bool is_needed(const struct sweep *s, const char *name)
{
    return name[0] == '.' || strcmp(name, s->seed) == 0 || is_named(&s->named, name);
}

static bool sweep_name(void *arg, const char *name)
{
    const struct sweep *s = arg;
    int r = is_needed(s, name) ? 0 : btrfs_subvolume_destroy(s->dir_fd, name);

    if (r < 0)
        say_progress(50, "the layer %s could not be removed: %s", name, strerror(-r));
    return true;
}

static int sweep_locked(int dir_fd)
{
    struct sweep s = {.dir_fd = dir_fd};
    int r = read_named(&s.named);

    seed_name(template_first_inode(), s.seed);
    if (r == 0)
        r = io_each_name_at(dir_fd, ".", sweep_name, &s);
    named_free(&s.named);
    return r;
}

int layers_sweep(void)
{
    CLEANUP_CLOSE int fd = lock_all(false);

    return fd < 0 ? (fd == -ENOENT ? 0 : fd) : sweep_locked(fd);
}

static int remove_locked(const char *old, int dir_fd)
{
    int r = dir_fd < 0 && dir_fd != -ENOENT ? dir_fd : template_remove_tree(old);

    return r < 0 || dir_fd < 0 ? r : sweep_locked(dir_fd);
}

int layers_remove_template(uint32_t number)
{
    CLEANUP_CLOSE int lock = -1, all = -1;
    char old[TEMPLATE_NAME_SIZE];
    int r = template_put_aside(number, old, &lock);

    if (r < 0)
        return r;
    say_progress(50, "removing");
    all = lock_all(false);
    r = remove_locked(old, all);
    return r < 0 ? say_failure(r, "cannot remove all of it: %s", strerror(-r)) : 0;
}

/* -- the seed ---------------------------------------------------------------------------------- */

static int fill_seed(int here, uint32_t number, uint64_t first_inode)
{
    int r;

    if (chdir(DIR "/" NEW_SEED "/" TEMPLATE_ROOT) < 0)
        return -errno;
    r = inodes_raise(number, first_inode);
    return fchdir(here) < 0 ? -errno : r;
}

/* A seed that was broken off goes on where it was. */
static int open_seed(int dir_fd, uint32_t number, uint64_t first_inode)
{
    CLEANUP_CLOSE int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[SEED_NAME_SIZE];
    int r, fd;

    seed_name(first_inode, name);
    fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 || errno != ENOENT || here < 0)
        return fd < 0 ? -errno : fd;
    r = btrfs_subvolume_create(dir_fd, NEW_SEED);
    if (r == 0 || r == -EEXIST)
        r = tree_put_dir(DIR "/" NEW_SEED "/" TEMPLATE_ROOT, 0755, 0, 0);
    if (r == 0)
        r = fill_seed(here, number, first_inode);
    if (r == 0 && renameat(dir_fd, NEW_SEED, dir_fd, name) < 0)
        r = -errno;
    fd = r == 0 ? openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : r;
    return r == 0 && fd < 0 ? -errno : fd;
}

/* -- counts ------------------------------------------------------------------------------------ */

/* Bytes that the file system counts for this subvolume, as of its last commit. 0 where quotas are
 * off. */
static uint64_t written_by(int build_fd)
{
    uint64_t id, used, limit;

    if (btrfs_subvolume_id(build_fd, &id) < 0 || btrfs_usage(build_fd, id, &used, &limit) < 0)
        return 0;
    return used;
}

/* The counts that cay-unpack said, and the bytes. The seed has none. */
static int read_counts(struct layers *l, int build_fd)
{
    char text[sizeof(l->counts) + 32], *bytes;
    ssize_t n = read_small(build_fd, COUNTS, text, sizeof(text) - 1);

    if (n < 0)
        return l->have == 0 && n == -ENOENT ? 0 : (int)n;
    text[n] = '\0';
    bytes = strchr(text, '\n');
    if (!bytes || (size_t)(bytes - text) >= sizeof(l->counts))
        return -EINVAL;
    *bytes++ = '\0';
    memcpy(l->counts, text, strlen(text) + 1);
    l->bytes = strtoull(bytes, NULL, 10);
    return 0;
}

static int write_counts(const struct layers *l, int build_fd)
{
    char text[sizeof(l->counts) + 32];
    int n = snprintf(text, sizeof(text), "%s\n%" PRIu64 "\n", l->counts, layers_bytes(l));

    return io_replace_file_at(build_fd, COUNTS, text, (size_t)n, 0600);
}

/* -- beginnings -------------------------------------------------------------------------------- */

/* The highest that there is, or the seed. */
static int open_source(struct layers *l, int dir_fd)
{
    for (l->have = l->count; l->have > 0; l->have--) {
        int fd = openat(dir_fd, l->names[l->have - 1],
                        O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd >= 0 || errno != ENOENT)
            return fd < 0 ? -errno : fd;
    }
    return open_seed(dir_fd, l->number, template_first_inode());
}

static int open_build(const struct layers *l)
{
    char name[32];
    int fd;

    snprintf(name, sizeof(name), ".build-%u", l->number);
    fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int write_names(const struct layers *l, int build_fd)
{
    CLEANUP_BUF struct buf text;
    int r = 0;

    buf_init(&text, FILE_MAX);
    for (size_t i = 0; r == 0 && i < l->count; i++)
        r = buf_printf(&text, "%s\n", l->names[i]);
    return r < 0 ? r : io_replace_file_at(build_fd, NAMES, text.data, text.len, 0600);
}

static int begin_locked(struct layers *l, int dir_fd)
{
    CLEANUP_CLOSE int source = open_source(l, dir_fd), build = -1;
    int r = source < 0 ? source : template_begin_on(l->number, source);

    if (r == 0)
        build = open_build(l);
    if (r == 0)
        r = build < 0 ? build : write_names(l, build);
    if (r == 0)
        r = read_counts(l, build);
    if (r == 0)
        l->at_first = written_by(build);
    return r;
}

int layers_begin(struct layers *l)
{
    CLEANUP_CLOSE int fd = lock_all(true);
    int r = fd < 0 ? fd : begin_locked(l, fd);

    return r < 0 ? say_failure(r, "cannot begin with the layers that are kept: %s", strerror(-r))
                 : 0;
}

/* The snapshot is on the disk when it has its name. Another job may have made the same. */
int layers_keep(struct layers *l)
{
    CLEANUP_CLOSE int all = open(DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    CLEANUP_CLOSE int build = open_build(l);
    int r = all < 0 ? -errno : MIN(build, 0);

    if (r == 0)
        r = write_counts(l, build);
    if (r == 0)
        r = btrfs_snapshot(build, all, l->names[l->have], true);
    if (r < 0 && r != -EEXIST)
        return say_failure(r, "cannot keep layer %zu: %s", l->have + 1, strerror(-r));
    l->now = written_by(build);
    l->have++;
    return 0;
}

uint64_t layers_bytes(const struct layers *l)
{
    return l->bytes + (l->now > l->at_first ? l->now - l->at_first : 0);
}
