#include "job/template.h"

#include "base/clock.h"
#include "base/io.h"
#include "contract/meta.h"
#include "job/inodes.h"
#include "job/say.h"
#include "job/tree.h"
#include "sys/btrfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define NAME_SIZE TEMPLATE_NAME_SIZE
#define HOST      1u

static uint64_t first_inode;

void template_set_first_inode(uint64_t first)
{
    first_inode = first;
}

uint64_t template_first_inode(void)
{
    return first_inode;
}

int template_remove_tree(const char *name)
{
    CLEANUP_CLOSE int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return here >= 0 && btrfs_subvolume_destroy(here, name) == 0 ? 0 : tree_remove(name);
}

static void build_name(uint32_t number, char out[static NAME_SIZE])
{
    snprintf(out, NAME_SIZE, ".build-%u", number);
}

/* A directory that is being built or removed is locked: the sweep, which may run beside either,
 * leaves alone what it cannot lock. A build stays so until it is in its place, or its builder has
 * died. */
static int build_lock = -1;

static int lock_dir(const char *name)
{
    int fd = open(name, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        close(fd);
        return -EBUSY;
    }
    return fd;
}

static int make_dir(const char *name, int source_fd)
{
    CLEANUP_CLOSE int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = here < 0 ? -errno : 0;

    if (r == 0 && source_fd >= 0)
        r = btrfs_snapshot(source_fd, here, name, false);
    return r < 0 ? r : tree_put_dir(name, 0755, 0, 0);
}

/* source_fd -1: an empty one. */
static int begin(uint32_t number, int source_fd)
{
    char name[NAME_SIZE], root[2 * NAME_SIZE];
    int r;

    build_name(number, name);
    r = template_remove_tree(name);
    if (r == 0)
        r = make_dir(name, source_fd);
    if (r == 0) {
        build_lock = lock_dir(name);
        r = MIN(build_lock, 0);
    }
    snprintf(root, sizeof(root), "%s/" TEMPLATE_ROOT, name);
    if (r == 0 && source_fd < 0)
        r = tree_put_dir(root, 0755, 0, 0);
    return r < 0 ? say_failure(r, "cannot make %s: %s", root, strerror(-r)) : 0;
}

int template_begin(uint32_t number)
{
    int r = inodes_raise(number, number == HOST ? MIN(first_inode, META_HOST_INODES) : first_inode);

    return r < 0 ? r : begin(number, -1);
}

int template_begin_on(uint32_t number, int source_fd)
{
    return begin(number, source_fd);
}

int template_enter(uint32_t number)
{
    char root[2 * NAME_SIZE];

    snprintf(root, sizeof(root), ".build-%u/" TEMPLATE_ROOT, number);
    return chdir(root) < 0 ? say_failure(errno, "cannot enter %s: %s", root, strerror(errno)) : 0;
}

int template_leave(void)
{
    return chdir("../..") < 0 ? -errno : 0;
}

static int write_meta(const char *dir, uint32_t number, const char *fingerprint,
                      uint64_t least_bytes)
{
    struct meta m = {.magic = META_MAGIC,
                     .version = META_VERSION,
                     .number = number,
                     .made_real_ms = clock_real_ms()};
    CLEANUP_CLOSE int fd = open(dir, O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (fd < 0)
        return -errno;
    r = tree_size(dir, &m.size_bytes);
    if (r < 0)
        return r;
    m.size_bytes = MAX(m.size_bytes, least_bytes);
    snprintf(m.fingerprint, sizeof(m.fingerprint), "%s", fingerprint);
    /* All of it reaches the disk before the file that says that it is whole. */
    if (syncfs(fd) < 0)
        return -errno;
    return io_replace_file_at(fd, META_FILE, &m, sizeof(m), 0600);
}

/* Gives a directory a name that no other has, and that the sweep knows. -ENOENT: there is none. */
static int put_aside(const char *name, uint32_t number, char old[static NAME_SIZE])
{
    for (int i = 0; i < 100; i++) {
        snprintf(old, NAME_SIZE, ".old-%u-%lld-%d", number, (long long)clock_real_ms(), i);
        if (renameat2(AT_FDCWD, name, AT_FDCWD, old, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

/* The new and the old change places in one step, so that a start, which may come at any time, finds
 * the one or the other. The old tree, which sandboxes may stand on, is the sweep's from then on:
 * under the name of a build the next build would remove it. */
static int install(const char *name, uint32_t number)
{
    char dir[NAME_SIZE], old[NAME_SIZE];
    int r = put_aside(name, number, old);

    if (r < 0)
        return r;
    snprintf(dir, sizeof(dir), "%u", number);
    if (renameat2(AT_FDCWD, old, AT_FDCWD, dir, RENAME_EXCHANGE) == 0)
        return 0;
    return errno != ENOENT || rename(old, dir) < 0 ? -errno : 0;
}

int template_commit(uint32_t number, const char *fingerprint, uint64_t least_bytes)
{
    char name[NAME_SIZE];
    int r;

    build_name(number, name);
    r = write_meta(name, number, fingerprint, least_bytes);
    if (r == 0)
        r = install(name, number);
    if (r == 0)
        util_close(&build_lock);
    return r < 0 ? say_failure(r, "cannot put the template in its place: %s", strerror(-r)) : 0;
}

void template_abandon(uint32_t number)
{
    char name[NAME_SIZE];

    util_close(&build_lock);
    build_name(number, name);
    if (template_remove_tree(name) < 0)
        say_progress(100, "%s could not be removed; it is tried again at the next start", name);
}

bool template_is_current(uint32_t number, const char *fingerprint)
{
    char path[NAME_SIZE];
    CLEANUP_CLOSE int fd = -1;
    struct meta m;

    snprintf(path, sizeof(path), "%u/" META_FILE, number);
    fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && io_read_full(fd, &m, sizeof(m)) == 0 && m.magic == META_MAGIC &&
           m.version == META_VERSION && m.number == number &&
           strncmp(m.fingerprint, fingerprint, sizeof(m.fingerprint)) == 0;
}

/* From then on it is not a template any more, whatever happens. */
int template_put_aside(uint32_t number, char old[static NAME_SIZE], int *lock)
{
    char dir[NAME_SIZE];
    int r;

    snprintf(dir, sizeof(dir), "%u", number);
    *lock = lock_dir(dir);
    r = *lock < 0 ? *lock : put_aside(dir, number, old);
    if (r < 0)
        util_close(lock);
    return r < 0 ? say_failure(r, "template %u cannot be removed: %s", number, strerror(-r)) : 0;
}

static bool sweep_name(void *arg, const char *name)
{
    if (strncmp(name, ".old-", 5) == 0 || strncmp(name, ".build-", 7) == 0) {
        CLEANUP_CLOSE int lock = lock_dir(name);

        if (lock >= 0 && template_remove_tree(name) < 0)
            say_progress(50, "%s could not be removed", name);
    }
    return true;
}

int template_sweep(void)
{
    return io_each_name_at(AT_FDCWD, ".", sweep_name, NULL);
}
