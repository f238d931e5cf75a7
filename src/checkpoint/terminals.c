#include "checkpoint/terminals.h"

#include "base/ids.h"
#include "contract/proto.h"
#include "sys/mnt.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PTS_DIR "/dev/pts"

/* /dev and /dev/pts are mount points in the sandbox's mount namespace, which no program in it can
 * move or cover. The directory beside them is one of the moment: what a program of the sandbox's
 * does with it harms its own terminals. */
struct aside {
    int upper_fd, dev_fd, dir_fd;
    char name[32];
};

static int open_pts(void)
{
    int fd = open(PTS_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int move_aside(struct aside *a)
{
    uint64_t number;

    ids_random_bytes(&number, sizeof(number));
    snprintf(a->name, sizeof(a->name), ".pts-%016llx", (unsigned long long)number);
    a->dev_fd = open("/dev", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    a->upper_fd = open_pts();
    if (a->dev_fd < 0 || a->upper_fd < 0 || mkdirat(a->dev_fd, a->name, 0700) < 0)
        return -errno;
    a->dir_fd = openat(a->dev_fd, a->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return a->dir_fd < 0 ? -errno : mnt_attach(a->upper_fd, a->dir_fd, "");
}

/* Over what is there now. */
static int move_back(const struct aside *a)
{
    CLEANUP_CLOSE int pts_fd = open_pts();
    int rc = pts_fd < 0 ? pts_fd : mnt_attach(a->upper_fd, pts_fd, "");

    return rc == 0 && unlinkat(a->dev_fd, a->name, AT_REMOVEDIR) < 0 ? -errno : rc;
}

static bool is_lower_there(void)
{
    struct statfs fs;

    return statfs(PTS_DIR, &fs) == 0 && fs.f_type == DEVPTS_SUPER_MAGIC;
}

static int unmount_lower(void)
{
    return is_lower_there() && umount2(PTS_DIR, UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

static int mount_lower(void)
{
    if (is_lower_there())
        return 0;
    CLEANUP_CLOSE int pts_fd = open_pts();
    CLEANUP_CLOSE int fresh = mnt_new_terminals(PRIVSEP_COMMAND_TERMINALS_MAX);

    if (pts_fd < 0)
        return pts_fd;
    return fresh < 0 ? fresh : mnt_attach(fresh, pts_fd, "");
}

static int change(int pidfd, int (*lower)(void))
{
    struct aside a = {.upper_fd = -1, .dev_fd = -1, .dir_fd = -1};
    int rc = ns_enter(pidfd, CLONE_NEWNS);

    if (rc < 0)
        return rc;
    rc = move_aside(&a);
    if (rc < 0) {
        (void)unlinkat(a.dev_fd, a.name, AT_REMOVEDIR);
        return rc;
    }
    rc = lower();
    int back = move_back(&a);
    return back < 0 ? back : rc;
}

/* A child of its own: from a mount namespace this process has no way back. */
static int in_child(int pidfd, int (*lower)(void))
{
    int status;
    pid_t pid = ns_fork(0, SIGCHLD, NULL);

    if (pid == 0) {
        umask(022);
        _exit(MIN(-change(pidfd, lower), 255));
    }
    if (pid < 0)
        return pid;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -ECHILD;
    return -WEXITSTATUS(status);
}

int terminals_remove(int pidfd)
{
    return in_child(pidfd, unmount_lower);
}

int terminals_make(int pidfd)
{
    return in_child(pidfd, mount_lower);
}
