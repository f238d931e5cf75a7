#include "sys/mnt.h"

#include "base/log.h"
#include "base/test_bypass.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

int mnt_open_beneath(int dir_fd, const char *path, int flags, unsigned mode)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int fd = (int)syscall(SYS_openat2, dir_fd, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

int mnt_copy(int dir_fd, const char *path)
{
    int fd = open_tree(dir_fd, path,
                       OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

static int clone_tree(int dir_fd, const char *path, struct mount_attr *attr)
{
    CLEANUP_CLOSE int fd = mnt_copy(dir_fd, path);
    if (fd < 0)
        return fd;
    /* A copy would otherwise share the propagation of what it was copied from. */
    attr->propagation = MS_PRIVATE;
    /* The kinds of access times are one field of several bits: cleared before it is set. */
    if (attr->attr_set & MOUNT_ATTR__ATIME)
        attr->attr_clr = MOUNT_ATTR__ATIME;
    if (mount_setattr(fd, "", AT_EMPTY_PATH, attr, sizeof(*attr)) < 0)
        return -errno;
    return TAKE_FD(fd);
}

int mnt_clone(int dir_fd, const char *path, uint64_t attr)
{
    struct mount_attr a = {.attr_set = attr};
    return clone_tree(dir_fd, path, &a);
}

int mnt_clone_idmapped(int dir_fd, const char *path, uint64_t attr, int userns_fd)
{
    struct mount_attr a = {.attr_set = attr | MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd};
    return clone_tree(dir_fd, path, &a);
}

int mnt_attach(int tree_fd, int dir_fd, const char *path)
{
    unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH;
    return move_mount(tree_fd, "", dir_fd, path, flags) < 0 ? -errno : 0;
}

/* The file system context keeps what went wrong as lines "e text". */
static void log_context(int context, const char *type, const char *step, int errnum)
{
    char text[256];
    ssize_t n = read(context, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    log_warn("mount %s: %s: %s%s%s", type, step, strerror(errnum), n > 0 ? ": " : "", text);
}

static int set_option(int context, const struct mnt_option *o)
{
    return fsconfig(context, o->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, o->key, o->value,
                    0);
}

/* wishes: options that are left out where the kernel does not have them. */
static int new_from(const char *type, const char *source, const struct mnt_option *options,
                    const struct mnt_option *wishes, uint64_t attr)
{
    CLEANUP_CLOSE int context = fsopen(type, FSOPEN_CLOEXEC);
    if (context < 0)
        return -errno;
    (void)fsconfig(context, FSCONFIG_SET_STRING, "source", source, 0);
    for (; wishes && wishes->key; wishes++)
        (void)set_option(context, wishes);
    for (; options && options->key; options++) {
        if (set_option(context, options) < 0) {
            int errnum = errno;
            log_context(context, type, options->key, errnum);
            return -errnum;
        }
    }
    if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0) {
        int errnum = errno;
        log_context(context, type, "create", errnum);
        return -errnum;
    }
    int fd = fsmount(context, FSMOUNT_CLOEXEC, (unsigned)attr);
    if (fd < 0) {
        int errnum = errno;
        log_context(context, type, "fsmount", errnum);
        return -errnum;
    }
    return fd;
}

int mnt_new(const char *type, const struct mnt_option *options, uint64_t attr)
{
    return new_from(type, type, options, NULL, attr); /* as df and mount show it */
}

int mnt_new_memory(const struct mnt_option *options, uint64_t attr)
{
    static const struct mnt_option wishes[] = {
        {"noswap", NULL}, {"huge", "within_size"}, {NULL, NULL}};

    return new_from("tmpfs", "tmpfs", options, wishes, attr);
}

int mnt_set_read_only(int mount_fd)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};

    return mount_setattr(mount_fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int mnt_new_on(const char *type, const char *device, uint64_t attr)
{
    const struct mnt_option read_only[] = {{"ro", NULL}, {NULL, NULL}};

    return new_from(type, device, read_only, NULL, attr | MOUNT_ATTR_RDONLY);
}

int mnt_new_terminals(unsigned max)
{
    /* The kernel's pool of terminals is one for the whole host (kernel.pty.max, which cay-keep
     * sets), and what one of them holds is charged to no group: a maximum for each instance. No
     * `gid`: mountinfo would show it in the host's numbers; cay-init gives the terminals that it
     * opens to the group tty by itself. */
    char number[16];
    const struct mnt_option tty[] = {
        {"mode", "0620"}, {"ptmxmode", "0666"}, {"max", number}, {"gid", "5"}, {NULL, NULL}};
    const struct mnt_option usual[] = {
        {"mode", "0620"}, {"ptmxmode", "0666"}, {"max", number}, {NULL, NULL}};
    const struct mnt_option *options = TEST_BYPASS(MASKS) ? tty : usual;

    snprintf(number, sizeof(number), "%u", max);

    return mnt_new("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

int mnt_pivot(int new_root_fd)
{
    /* pivot_root(".", "."): the old root ends up on top of the new one, and the detach takes it,
     * and everything below it, away. No directory for it is needed (pivot_root(2)). */
    if (fchdir(new_root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return -errno;
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return -errno;
    return 0;
}

int mnt_make_private(void)
{
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ? -errno : 0;
}

int mnt_hide_processes(void)
{
    const struct mnt_option options[] = {{"hidepid", "ptraceable"}, {NULL, NULL}};
    int rc = unshare(CLONE_NEWNS) < 0 ? -errno : mnt_make_private();

    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int proc = mnt_new("proc", options,
                                     MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return proc < 0 ? proc : mnt_attach(proc, AT_FDCWD, "/proc");
}
