#include "privd/host_dirs.h"

#include "base/log.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define LEVELS_MAX 128 /* of a path */
#define ATTR       (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME)

/* -- what may be given ------------------------------------------------------------------------- */

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether `of` is dir_fd or above it: by device and inode, so that no other name of a directory and
 * no mount of it elsewhere hides that. Towards "yes" where it cannot be told. */
static bool is_within(int dir_fd, const struct stat *of)
{
    CLEANUP_CLOSE int at = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat here, before = {0};

    for (int i = 0; at >= 0 && i < LEVELS_MAX; i++) {
        int up;

        if (fstat(at, &here) < 0 || is_same(&here, of))
            return true;
        if (i > 0 && is_same(&here, &before))
            return false;
        before = here;
        up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        util_close(&at);
        at = up;
    }
    return true;
}

/* Nothing of the kernel's or of cay's own is given: neither such a directory, nor what is below it,
 * nor what it is below. */
static const char *overlap(int fd, const struct stat *st, const char *const *kept, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CLEANUP_CLOSE int dir = open(kept[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct stat own;

        if (dir < 0 && errno == ENOENT)
            continue;
        if (dir < 0 || fstat(dir, &own) < 0 || is_within(fd, &own) || is_within(dir, st))
            return kept[i];
    }
    return NULL;
}

static int leave_out(const struct host_dir *d, const char *why)
{
    log_error("directory %s of the host, %s, is not given to sandboxes: %s", d->name, d->path, why);
    return -1;
}

/* A copy of this one mount alone, without what is mounted below the directory: open_tree without
 * AT_RECURSIVE. The ids stay the host's, which a sandbox has none of, so that its root, too, may
 * read only what all users of the host may. */
static int take(const struct host_dir *d, const char *state_dir, const char *run_dir)
{
    char state[512], why[256];
    const char *const kept[] = {"/proc", "/sys", "/dev", "/etc/cay", state, run_dir};
    const char *what = NULL;
    struct stat st;
    CLEANUP_CLOSE int fd = host_dir_open(d, &st, &what);
    int tree;

    (void)snprintf(state, sizeof(state), "%s/..", state_dir);
    if (fd < 0)
        return leave_out(d, what);
    what = overlap(fd, &st, kept, ARRAY_SIZE(kept));
    if (what) {
        (void)snprintf(why, sizeof(why), "it is, has in it, or is in %.200s", what);
        return leave_out(d, why);
    }
    what = host_dir_unreadable(&st);
    if (what)
        return leave_out(d, what);
    tree = mnt_clone(fd, "", ATTR);
    return tree < 0 ? leave_out(d, strerror(-tree)) : tree;
}

void host_dirs_take(const struct host_dir dirs[static HOST_DIRS_MAX], const char *state_dir,
                    const char *run_dir, int trees[static HOST_DIRS_MAX])
{
    for (size_t i = 0; i < HOST_DIRS_MAX; i++)
        trees[i] = dirs[i].name[0] ? take(&dirs[i], state_dir, run_dir) : -1;
}

/* -- where they are ---------------------------------------------------------------------------- */

static int put_one(int dir_fd, size_t i, int *tree)
{
    char name[8];
    int fd, rc;

    (void)snprintf(name, sizeof(name), "%zu", i + 1);
    if (mkdirat(dir_fd, name, 0700) < 0)
        return -errno;
    rc = mnt_attach(*tree, dir_fd, name);
    if (rc < 0)
        return rc;
    fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    util_close(tree);
    *tree = fd;
    return 0;
}

/* In a tmpfs of their own, so that one call takes all of them from a job. Not there at all where
 * there are none: each start of a sandbox copies all mounts of this namespace. */
int host_dirs_put(int root, int trees[static HOST_DIRS_MAX])
{
    const struct mnt_option options[] = {{"mode", "700"}, {"size", "64k"}, {NULL, NULL}};
    CLEANUP_CLOSE int tmpfs = -1;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < HOST_DIRS_MAX; i++) {
        if (trees[i] < 0)
            continue;
        if (tmpfs < 0) {
            tmpfs = mnt_new("tmpfs", options, ATTR & ~MOUNT_ATTR_RDONLY);
            if (tmpfs < 0)
                return tmpfs;
            rc = mkdirat(root, HOST_DIRS_MOUNT, 0700) < 0
                     ? -errno
                     : mnt_attach(tmpfs, root, HOST_DIRS_MOUNT);
        }
        if (rc == 0)
            rc = put_one(tmpfs, i, &trees[i]);
    }
    return rc;
}
