/* The walls around a foreign program (mksquashfs: archive.c; curl: bucket_request.c). Called
 * between fork and exec: a root of its own, limits, standard input and output, no other
 * descriptors, and last no ids and no capability but one. A step that fails is said on standard
 * error, and the program is not started. */

#include "job/archive_walls.h"

#include "base/host_links.h"
#include "base/util.h"
#include "sys/caps.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOBODY   65534
#define COPY_MAX (1 << 20)
#define SHOWN    (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static int put_links(int root_fd)
{
    char target[HOST_LINKS_TARGET];

    for (size_t i = 0; i < HOST_LINKS_COUNT; i++) {
        int there = host_links_read(i, target);

        if (there < 0)
            return there;
        if (there && symlinkat(target, root_fd, host_links_names[i]) < 0)
            return -errno;
    }
    return 0;
}

static int show(int root_fd, const char *name, int tree_fd)
{
    if (tree_fd < 0)
        return tree_fd;
    return mkdirat(root_fd, name, 0755) < 0 ? -errno : mnt_attach(tree_fd, root_fd, name);
}

/* The contents, as the host's own file may be a link to what the new root does not have. */
static int copy_file(int root_fd, const char *from, const char *to)
{
    CLEANUP_CLOSE int in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (in < 0)
        return -errno;
    if (fstat(in, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > COPY_MAX)
        return -EINVAL;
    CLEANUP_CLOSE int out = openat(root_fd, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (out < 0)
        return -errno;
    for (ssize_t n, left = st.st_size; left > 0; left -= n) {
        n = sendfile(out, in, NULL, (size_t)left);
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
    }
    return 0;
}

static int put_copies(int root_fd, const struct archive_walls *w)
{
    static const char *const names[] = {"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"};
    int rc = w->authorities ? copy_file(root_fd, w->authorities, &ARCHIVE_WALLS_CA[1]) : 0;

    if (rc == 0 && w->names && mkdirat(root_fd, "etc", 0755) < 0)
        rc = -errno;
    for (size_t i = 0; rc == 0 && w->names && i < ARRAY_SIZE(names); i++) {
        rc = copy_file(root_fd, names[i], names[i] + 1);
        if (rc == -ENOENT)
            rc = 0;
    }
    return rc;
}

static int clone_of(int fd, uint64_t attr)
{
    return fd < 0 ? -ENOENT : mnt_clone(fd, "", attr);
}

/* The trees are copied first: of the descriptors' own mounts the new namespace has none. */
static int enter_root(const struct archive_walls *w)
{
    const struct mnt_option options[] = {{"mode", "0755"}, {"size", "4m"}, {NULL, NULL}};
    CLEANUP_CLOSE int usr = mnt_clone(AT_FDCWD, "/usr", SHOWN | MOUNT_ATTR_RDONLY);
    CLEANUP_CLOSE int layer = clone_of(w->layer_fd, SHOWN | MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC);
    CLEANUP_CLOSE int out = clone_of(w->out_fd, SHOWN | MOUNT_ATTR_NOEXEC);
    CLEANUP_CLOSE int root = unshare(CLONE_NEWNS) < 0 ? -errno : mnt_new("tmpfs", options, SHOWN);

    if (root < 0)
        return root;
    int rc = mnt_attach(root, AT_FDCWD, "/tmp");
    if (rc == 0)
        rc = put_links(root);
    if (rc == 0)
        rc = show(root, "usr", usr);
    if (rc == 0 && w->layer_fd >= 0)
        rc = show(root, "layer", layer);
    if (rc == 0 && w->out_fd >= 0)
        rc = show(root, "out", out);
    if (rc == 0)
        rc = put_copies(root, w);
    return rc == 0 ? mnt_pivot(root) : rc;
}

static int limit(uint64_t bytes_max)
{
    const struct rlimit none = {0, 0}, file = {bytes_max, bytes_max};

    return setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_FSIZE, &file) < 0 ||
                   setpriority(PRIO_PROCESS, 0, 19) < 0
               ? -errno
               : 0;
}

/* Without CAP_DAC_OVERRIDE it could not read what a tenant's programs keep to themselves; what it
 * may write is the mount of /out alone. */
int archive_walls_enter(const void *walls)
{
    const struct archive_walls *w = walls;
    const char *what = "a root";
    int rc = enter_root(w);

    if (rc == 0) {
        what = "limits";
        rc = limit(w->bytes_max);
    }
    if (rc == 0 && ((w->in_fd >= 0 && dup2(w->in_fd, STDIN_FILENO) < 0) ||
                    (w->data_fd >= 0 && dup2(w->data_fd, STDOUT_FILENO) < 0)))
        rc = -errno;
    if (rc == 0 && close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        rc = -errno;
    if (rc == 0) {
        what = "capabilities";
        rc = caps_become(NOBODY, NOBODY, CAPS_BIT(CAP_DAC_OVERRIDE), 0);
    }
    if (rc < 0)
        dprintf(STDERR_FILENO, "no %s of its own: %s\n", what, strerror(-rc));
    return rc;
}
