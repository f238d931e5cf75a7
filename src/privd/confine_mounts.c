/* privd's own mount namespace: a tmpfs with what it and its jobs work with, everything else of the
 * host out of sight. It also keeps starts cheap: each clones all mounts that are here. */
#include "privd/confine.h"

#include "base/host_links.h"
#include "base/log.h"
#include "base/util.h"
#include "privd/host_dirs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define BIND_MOUNTS_MAX 32

struct bind_mount {
    char path[256];
    bool writable, file;
    int tree; /* detached copy of what the host has there */
};

struct bind_mounts {
    struct bind_mount all[BIND_MOUNTS_MAX];
    size_t n;
};

/* -- what to show ------------------------------------------------------------------------------ */

/* A path that the host does not have is left out. */
static int add(struct bind_mounts *p, const char *path, bool writable)
{
    struct bind_mount *x = &p->all[p->n];
    struct stat st;

    if (stat(path, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (p->n == BIND_MOUNTS_MAX || strlen(path) >= sizeof(x->path))
        return -ENAMETOOLONG;
    *x = (struct bind_mount){.writable = writable, .file = !S_ISDIR(st.st_mode), .tree = -1};
    memcpy(x->path, path, strlen(path) + 1);
    p->n++;
    return 0;
}

/* /proc and /sys stay whole: the kernel lets a sandbox mount its own only where they are fully
 * visible. */
static int add_host(struct bind_mounts *p)
{
    static const struct {
        const char *path;
        bool writable;
    } wanted[] = {
        {"/usr", false},         {"/etc", false},         {"/dev", true},
        {"/proc", true},         {"/sys", true},          {"/var/lib/dpkg", false},
        {"/var/lib/ucf", false}, {"/var/lib/apt", false}, {"/var/lib/ca-certificates", false},
    };
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(wanted) && r == 0; i++)
        r = add(p, wanted[i].path, wanted[i].writable);
    return r;
}

/* A build asks names: resolv.conf may lead out of /etc. */
static int add_resolver(struct bind_mounts *p)
{
    char path[PATH_MAX];

    if (!realpath("/etc/resolv.conf", path) || strncmp(path, "/etc/", 5) == 0)
        return 0;
    return add(p, path, false);
}

static int add_program_dir(struct bind_mounts *p, const char *program)
{
    char dir[256];
    char *slash;

    if (!program)
        return 0;
    if (strlen(program) >= sizeof(dir))
        return -ENAMETOOLONG;
    memcpy(dir, program, strlen(program) + 1);
    slash = strrchr(dir, '/');
    if (!slash || slash == dir || strncmp(dir, "/usr/", 5) == 0)
        return 0;
    *slash = '\0';
    return add(p, dir, false);
}

static int by_length(const void *a, const void *b)
{
    size_t m = strlen(((const struct bind_mount *)a)->path),
           n = strlen(((const struct bind_mount *)b)->path);

    return m < n ? -1 : m > n;
}

/* -- taking and putting ------------------------------------------------------------------------ */

static int take(struct bind_mount *x)
{
    struct mount_attr attr = {.attr_set = x->writable ? 0 : MOUNT_ATTR_RDONLY,
                              .propagation = MS_PRIVATE};
    CLEANUP_CLOSE int tree = open_tree(AT_FDCWD, x->path,
                                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);

    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return -errno;
    x->tree = TAKE_FD(tree);
    return 0;
}

/* Makes the directories of a path (and, for a file, an empty file) below root; existing ones
 * stay. */
static int make_path(int root, const char *path, bool file)
{
    char part[256];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path - 1), path + 1);
        if (mkdirat(root, part, 0755) < 0 && errno != EEXIST && errno != EROFS)
            return -errno;
    }
    if (file) {
        int fd = openat(root, path + 1, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

        if (fd < 0 && errno != EROFS)
            return -errno;
        if (fd >= 0)
            close(fd);
        return 0;
    }
    return mkdirat(root, path + 1, 0755) < 0 && errno != EEXIST && errno != EROFS ? -errno : 0;
}

static int put(int root, const struct bind_mount *x)
{
    int r = make_path(root, x->path, x->file);

    return r < 0 ? r : mnt_attach(x->tree, root, x->path + 1);
}

/* /bin and its like: links on a host with one /usr, else directories of their own. */
static int put_top_level(int root)
{
    for (size_t i = 0; i < HOST_LINKS_COUNT; i++) {
        char target[HOST_LINKS_TARGET];
        int there = host_links_read(i, target);

        if (there < 0)
            return there;
        if (there && symlinkat(target, root, host_links_names[i]) < 0)
            return -errno;
    }
    return 0;
}

static int build(int root, struct bind_mounts *p)
{
    int r = put_top_level(root);

    for (size_t i = 0; i < p->n && r == 0; i++) {
        r = put(root, &p->all[i]);
        if (r < 0)
            log_error("%s cannot be put into the mount namespace: %s", p->all[i].path,
                      strerror(-r));
    }
    if (r == 0 && ((mkdirat(root, "tmp", 01777) < 0 && errno != EEXIST) ||
                   (mkdirat(root, "root", 0700) < 0 && errno != EEXIST)))
        r = -errno;
    return r;
}

static int enter(const char *run_dir, struct bind_mounts *p, int host_dir_fds[static HOST_DIRS_MAX])
{
    const struct mnt_option options[] = {{"mode", "755"}, {"size", "4m"}, {NULL, NULL}};
    CLEANUP_CLOSE int tmpfs = mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    CLEANUP_CLOSE int root = -1;
    int r = tmpfs < 0 ? tmpfs : mnt_attach(tmpfs, AT_FDCWD, run_dir);

    if (r < 0)
        return r;
    root = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    r = build(root, p);
    if (r == 0)
        r = host_dirs_put(root, host_dir_fds);
    return r == 0 ? mnt_pivot(root) : r;
}

/* The files that cayd leaves for jobs, beside privd's own directory (core/image_spool.h). */
static int add_images(struct bind_mounts *p, const char *state_dir)
{
    const char *slash = strrchr(state_dir, '/');
    char path[256];
    int n = snprintf(path, sizeof(path), "%.*s/images", slash ? (int)(slash - state_dir) : 0,
                     state_dir);

    return n > 0 && (size_t)n < sizeof(path) ? add(p, path, false) : -ENAMETOOLONG;
}

static int collect(struct bind_mounts *p, const char *state_dir, const char *run_dir,
                   const char *const *programs, unsigned n_programs)
{
    int r = add_host(p);

    if (r == 0)
        r = add_resolver(p);
    for (unsigned i = 0; i < n_programs && r == 0; i++)
        r = add_program_dir(p, programs[i]);
    if (r == 0)
        r = add(p, state_dir, true);
    if (r == 0)
        r = add_images(p, state_dir);
    if (r == 0)
        r = add(p, run_dir, true);
    /* A directory comes before those in it. */
    qsort(p->all, p->n, sizeof(p->all[0]), by_length);
    for (size_t i = 0; i < p->n && r == 0; i++)
        r = take(&p->all[i]);
    return r;
}

int confine_mounts(const char *state_dir, const char *run_dir, const char *const *programs,
                   unsigned n_programs, const struct host_dir host_dirs[static HOST_DIRS_MAX],
                   int host_dir_fds[static HOST_DIRS_MAX])
{
    struct bind_mounts p = {.n = 0};
    mode_t old = umask(022);
    int r = unshare(CLONE_NEWNS) < 0 ? -errno : mnt_make_private();

    for (size_t i = 0; i < HOST_DIRS_MAX; i++)
        host_dir_fds[i] = -1;
    if (r == 0)
        r = collect(&p, state_dir, run_dir, programs, n_programs);
    if (r == 0)
        host_dirs_take(host_dirs, state_dir, run_dir, host_dir_fds);
    if (r == 0)
        r = enter(run_dir, &p, host_dir_fds);
    for (size_t i = 0; i < p.n; i++)
        util_close(&p.all[i].tree);
    umask(old);
    if (r < 0)
        log_error("no mount namespace of its own: %s", strerror(-r));
    return r;
}
