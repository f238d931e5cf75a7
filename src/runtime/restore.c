/* A restore's way from the host's root to a sandbox's. The same trees as for a start are attached
 * in a mount namespace in which CRIU finds what it needs of the host, read-only for a user who owns
 * nothing there, and the sandbox's tree at one place; PID 1 is not forked here but made by CRIU,
 * with namespaces of its own for pids, mounts and IPC. */

#include "runtime/restore.h"

#include "contract/checkpoint_boot.h"
#include "runtime/inside.h"
#include "runtime/rootfs.h"
#include "sys/mnt.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define HIGH_FD 100 /* above every number of CHECKPOINT_*_FD */

/* A /proc can be mounted only for a pid namespace of one's own: that of a child that ends with the
 * tree. CRIU mounts the sandbox's own over it. The mounts are this process's, as the mount
 * namespace is one. */
static int build_tree(const struct inside *in)
{
    int status;
    pid_t pid = ns_fork(CLONE_NEWPID, SIGCHLD, NULL);

    if (pid == 0) {
        int root = rootfs_build(in);
        _exit(root < 0 ? MIN(-root, 255) : 0);
    }
    if (pid < 0)
        return pid;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -ECHILD;
    return -WEXITSTATUS(status);
}

static int enter(const struct inside *in, const struct restore_context *p)
{
    int rc = mnt_hide_processes();

    if (rc == 0 && chdir(CHECKPOINT_STAGE) < 0)
        rc = -errno;
    if (rc == 0)
        rc = ns_enter(p->userns_fd, CLONE_NEWUSER);
    if (rc == 0)
        rc = ns_enter(p->netns_fd, CLONE_NEWNET);
    if (rc == 0)
        rc = ns_become(0, 0);
    if (rc == 0 && (unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0 ||
                    sethostname(p->host_name, strlen(p->host_name)) < 0))
        rc = -errno;
    umask(022);
    return rc == 0 ? build_tree(in) : rc;
}

/* Above all numbers that are wanted first, so that none is written over. */
static int install_fds(const struct restore_context *p, int filters_fd, int *program_fd)
{
    const int moves[][2] = {{p->work_fd, CHECKPOINT_WORK_FD},
                            {p->request_fd, CHECKPOINT_REQUEST_FD},
                            {filters_fd, CHECKPOINT_FILTERS_FD},
                            {p->listener_fd, CHECKPOINT_LISTENER_FD}};
    int high[ARRAY_SIZE(moves)];

    *program_fd = fcntl(p->program_fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (*program_fd < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(moves); i++) {
        high[i] = fcntl(moves[i][0], F_DUPFD_CLOEXEC, HIGH_FD);
        if (high[i] < 0)
            return -errno;
    }
    for (size_t i = 0; i < ARRAY_SIZE(moves); i++)
        if (dup2(high[i], moves[i][1]) < 0)
            return -errno;
    return 0;
}

int restore_exec(const struct inside *in, const struct restore_context *p)
{
    const char *const argv[] = {"cay-checkpoint", "restore", p->seconds, NULL};
    static const char *const envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    int program_fd = -1;

    CLEANUP_CLOSE int filters_fd = filter_file(in->filter);
    if (filters_fd < 0)
        return filters_fd;
    /* The filters, which PID 1 has before its limits, keep this one as it is. */
    int rc = inside_forbid_cores();
    if (rc == 0)
        rc = enter(in, p);
    if (rc == 0)
        rc = install_fds(p, filters_fd, &program_fd);
    if (rc < 0)
        return rc;
    syscall(SYS_execveat, program_fd, "", argv, envp, AT_EMPTY_PATH);
    return -errno;
}
