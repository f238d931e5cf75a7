/* Namespaces and mounts (class 6). */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void unshare_case(struct finding *f, int flags, const char *name)
{
    found_call(f, name, unshare(flags));
}

static void new_user(struct finding *f)
{
    unshare_case(f, CLONE_NEWUSER, "unshare(CLONE_NEWUSER)");
}

static void new_mount(struct finding *f)
{
    unshare_case(f, CLONE_NEWNS, "unshare(CLONE_NEWNS)");
}

static void new_net(struct finding *f)
{
    unshare_case(f, CLONE_NEWNET, "unshare(CLONE_NEWNET)");
}

static void new_pid(struct finding *f)
{
    unshare_case(f, CLONE_NEWPID, "unshare(CLONE_NEWPID)");
}

static void new_user_and_net(struct finding *f)
{
    unshare_case(f, CLONE_NEWUSER | CLONE_NEWNET, "unshare(CLONE_NEWUSER|CLONE_NEWNET)");
}

static void clone_user(struct finding *f)
{
    long r = syscall(SYS_clone, CLONE_NEWUSER | 17 /* SIGCHLD */, 0, 0, 0, 0);

    if (r == 0)
        _exit(0);
    found_call(f, "clone(CLONE_NEWUSER)", r);
}

static void mount_tmpfs(struct finding *f)
{
    mkdir("/tmp/cay-probe-mnt", 0700);
    found_call(f, "mount of a tmpfs", mount("none", "/tmp/cay-probe-mnt", "tmpfs", 0, NULL));
    umount("/tmp/cay-probe-mnt");
    rmdir("/tmp/cay-probe-mnt");
}

static void mount_proc(struct finding *f)
{
    mkdir("/tmp/cay-probe-mnt", 0700);
    found_call(f, "mount of a fresh proc", mount("proc", "/tmp/cay-probe-mnt", "proc", 0, NULL));
    umount("/tmp/cay-probe-mnt");
    rmdir("/tmp/cay-probe-mnt");
}

static void unmask(struct finding *f)
{
    found_reached(f, "umount of a mask", umount2("/proc/interrupts", MNT_DETACH));
}

static void remount_rw(struct finding *f)
{
    found_reached(f, "remount of /proc/sys for writing",
                  mount("none", "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
}

static void bind_root(struct finding *f)
{
    mkdir("/tmp/cay-probe-mnt", 0700);
    found_call(f, "bind mount of /", mount("/", "/tmp/cay-probe-mnt", NULL, MS_BIND, NULL));
    umount("/tmp/cay-probe-mnt");
    rmdir("/tmp/cay-probe-mnt");
}

static void open_tree_clone(struct finding *f)
{
    found_call(f, "open_tree(OPEN_TREE_CLONE)", syscall(428, -100, "/", 1 /* CLONE */));
}

static void fs_open(struct finding *f)
{
    found_call(f, "fsopen(tmpfs)", syscall(430, "tmpfs", 0));
}

static void move_a_mount(struct finding *f)
{
    found_reached(f, "move_mount", syscall(429, -100, "/tmp", -100, "/var", 0));
}

static void mount_set_attr(struct finding *f)
{
    uint64_t attr[4] = {0, 1 /* clear RDONLY */, 0, 0};

    found_reached(f, "mount_setattr", syscall(442, -100, "/proc/sys", 0, attr, sizeof(attr)));
}

static void pivot(struct finding *f)
{
    found_reached(f, "pivot_root", syscall(SYS_pivot_root, ".", "."));
}

static void join_init(struct finding *f)
{
    int fd = open("/proc/1/ns/mnt", O_RDONLY);

    if (fd < 0)
        found_refused(f, "/proc/1/ns/mnt: %s", strerror(errno));
    else
        found_call(f, "setns to PID 1", setns(fd, CLONE_NEWNS));
}

static void join_by_pidfd(struct finding *f)
{
    int fd = (int)syscall(434 /* pidfd_open */, 1, 0);

    if (fd < 0)
        found_refused(f, "pidfd_open(1): %s", strerror(errno));
    else
        found_call(f, "setns by pidfd of PID 1", setns(fd, CLONE_NEWNET | CLONE_NEWNS));
}

static void chroot_out(struct finding *f)
{
    struct stat before, after;

    if (stat("/", &before) < 0 || mkdir("/tmp/cay-probe-root", 0700) < 0) {
        found_refused(f, "no directory to try with: %s", strerror(errno));
        return;
    }
    if (chroot("/tmp/cay-probe-root") < 0) {
        found_refused(f, "chroot: %s", strerror(errno));
        rmdir("/tmp/cay-probe-root");
        return;
    }
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            break;
    if (chroot(".") < 0 || stat("/", &after) < 0)
        found_refused(f, "second chroot: %s", strerror(errno));
    else if (before.st_ino == after.st_ino && before.st_dev == after.st_dev)
        found_refused(f, "chroot and .. end at the sandbox's own root");
    else
        found_open(f, "another root was reached");
    rmdir("/tmp/cay-probe-root");
}

const struct probe_case probe_namespace_cases[] = {
    {"ns.user", "a user namespace with all capabilities in it", new_user, 1},
    {"ns.clone_user", "the same by clone", clone_user, 1},
    {"ns.user_net", "a network namespace of one's own: netfilter's code is then in reach",
     new_user_and_net, 1},
    {"ns.mount", "a mount namespace", new_mount, 1},
    {"ns.net", "a network namespace", new_net, 1},
    {"ns.pid", "a pid namespace", new_pid, 1},
    {"ns.join_init", "join PID 1's namespaces through /proc", join_init, 1},
    {"ns.join_pidfd", "the same by pidfd", join_by_pidfd, 0},
    {"mount.tmpfs", "mount anything", mount_tmpfs, 1},
    {"mount.proc", "a proc without the masks", mount_proc, 1},
    {"mount.unmask", "take a mask away", unmask, 0},
    {"mount.remount", "make a read-only path writable", remount_rw, 0},
    {"mount.bind", "bind the root elsewhere", bind_root, 1},
    {"mount.open_tree", "the new mount API: clone a tree", open_tree_clone, 1},
    {"mount.fsopen", "the new mount API: make a file system", fs_open, 1},
    {"mount.move", "the new mount API: move a mount", move_a_mount, 0},
    {"mount.setattr", "the new mount API: change a mount", mount_set_attr, 0},
    {"mount.pivot", "another root", pivot, 0},
    {"mount.chroot", "out of the root by chroot and ..", chroot_out, 1},
    {0},
};
