/* The first process of a sandbox, its own root in its new namespaces, until it becomes cay-init. It
 * is PID 1 of an empty pid namespace: nothing of a tenant runs yet that could interfere. */

#include "runtime/inside.h"

#include "base/io.h"
#include "runtime/command_mount.h"
#include "runtime/rootfs.h"
#include "runtime/state.h"
#include "sys/mnt.h"
#include "sys/nice.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define HIGH_FD 100 /* above every number that the agent is promised */

/* Never raised: without CAP_SYS_RESOURCE on the host that fails, and it is not ours to give. */
static int lower_limit(int resource, rlim_t value)
{
    struct rlimit now;
    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return -errno;
    if (now.rlim_max > value)
        now.rlim_max = value;
    if (now.rlim_cur > now.rlim_max)
        now.rlim_cur = now.rlim_max;
    return setrlimit((__rlimit_resource_t)resource, &now) < 0 ? -errno : 0;
}

/* 1, not 0: a core_pattern that pipes into a program runs that program as the host's root, and the
 * kernel ignores the limit then, but takes 1 as "never" (fs/coredump.c). The system call filter
 * keeps it at that. */
int inside_forbid_cores(void)
{
    const struct rlimit core = {1, 1};

    if (TEST_BYPASS(RLIMITS))
        return 0;
    return setrlimit(RLIMIT_CORE, &core) < 0 ? lower_limit(RLIMIT_CORE, 0) : 0;
}

static int set_limits(bool command_sandbox)
{
    if (TEST_BYPASS(RLIMITS))
        return 0;
    int rc = inside_forbid_cores();
    if (rc == 0) /* the daemons' priority is not a tenant's */
        rc = nice_give_up();
    if (rc == 0)
        rc = lower_limit(RLIMIT_MEMLOCK, 8 << 20);
    if (rc == 0)
        rc = lower_limit(RLIMIT_NICE, 0);
    if (rc == 0)
        rc = lower_limit(RLIMIT_RTPRIO, 0);
    /* A POSIX queue that is handed on keeps the file system of its IPC namespace alive, but not the
     * namespace, which is counted (rootfs_proc.c): a command sandbox has none. */
    return rc == 0 && command_sandbox ? lower_limit(RLIMIT_MSGQUEUE, 0) : rc;
}

struct inside inside_new(const struct runtime_start *start)
{
    struct inside in = {.start = start,
                        .agent_fd = -1,
                        .lower_fd = -1,
                        .view_fd = -1,
                        .mask_fd = -1,
                        .usr_fd = -1,
                        .upper_fd = -1,
                        .archive_fd = -1,
                        .stage_fd = -1,
                        .boot_fd = -1,
                        .oom_fd = -1,
                        .status_fd = -1};

    for (size_t i = 0; i < ARRAY_SIZE(in.volume_fds); i++)
        in.volume_fds[i] = -1;
    for (size_t i = 0; i < ARRAY_SIZE(in.device_fds); i++)
        in.device_fds[i] = -1;
    return in;
}

/* Puts a descriptor at a number; both are then the agent's. */
static int install_fd(int fd, int at)
{
    return dup2(fd, at) < 0 ? -errno : 0;
}

static int lift(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (high < 0)
        return -errno;
    *fd = high;
    return 0;
}

/* 0 to 2: /dev/null; then what agent_boot.h says; everything else closes at exec. */
static int install_fds(const struct inside *in, int *agent_fd, int *status_fd)
{
    int boot = in->boot_fd, oom = in->oom_fd, cgroups[CGROUP_ATTACH_MAX];
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int rc = null < 0 ? -errno : lift(&null);

    *agent_fd = in->agent_fd;
    *status_fd = in->status_fd;
    if (rc == 0)
        rc = lift(&boot);
    if (rc == 0 && oom >= 0)
        rc = lift(&oom);
    if (rc == 0)
        rc = lift(agent_fd);
    if (rc == 0)
        rc = lift(status_fd);
    for (int i = 0; rc == 0 && i < in->n_cgroup_fds; i++) {
        cgroups[i] = in->cgroup_fds[i];
        rc = lift(&cgroups[i]);
    }
    for (int fd = 0; rc == 0 && fd < 3; fd++)
        rc = install_fd(null, fd);
    if (rc == 0)
        rc = install_fd(boot, AGENT_BOOT_FD);
    for (int i = 0; rc == 0 && i < in->n_cgroup_fds; i++)
        rc = install_fd(cgroups[i], AGENT_CGROUP_FD_FIRST + i);
    unsigned first = (unsigned)(AGENT_CGROUP_FD_FIRST + in->n_cgroup_fds);
    if (rc == 0 && !TEST_BYPASS(DESCRIPTORS) && close_range(first, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        rc = -errno;
    return rc == 0 && oom >= 0 ? install_fd(oom, AGENT_OOM_FD) : rc;
}

/* Every other descriptor of that number is closed at exec anyway. */
static int install_listener(int fd)
{
    if (fd < 0)
        return 0;
    if (fd == AGENT_LISTENER_FD)
        return fcntl(fd, F_SETFD, 0) < 0 ? -errno : 0;
    return install_fd(fd, AGENT_LISTENER_FD);
}

static int run_agent(int agent_fd)
{
    static const char *const argv[] = {"cay-init", NULL};
    static const char *const envp[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL};

    syscall(SYS_execveat, agent_fd, "", argv, envp, AT_EMPTY_PATH);
    return -errno;
}

static int set_up_tree(const struct inside *in)
{
    if (in->command_sandbox)
        return command_mount();
    int root = rootfs_build(in);
    return root < 0 ? root : mnt_pivot(root);
}

static int set_up(const struct inside *in, int *status_fd, uint32_t *stage)
{
    int agent_fd = -1, listener_fd = -1;
    uid_t agent_uid = TEST_BYPASS(AGENT_UID) ? 0 : AGENT_UID;

    umask(022);
    *stage = PRIVSEP_STAGE_MOUNTS;
    int rc = set_up_tree(in);
    if (rc < 0)
        return rc;
    *stage = PRIVSEP_STAGE_EXEC;
    if (setsid() < 0) /* out of privd's session: no terminal, a process group of its own */
        return -errno;
    rc = set_limits(in->command_sandbox);
    if (rc == 0)
        rc = install_fds(in, &agent_fd, status_fd);
    /* CAP_SYS_ADMIN (over this user namespace only) until exec: installing a filter needs it, as
     * no_new_privs is not set, and the filter forbids taking on the agent's id: so it comes
     * last. */
    if (rc == 0)
        rc = caps_become(agent_uid, agent_uid, runtime_agent_caps(), CAPS_BIT(CAP_SYS_ADMIN));
    if (rc < 0)
        return rc;
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0); /* of a command sandbox: it is to outlive who made it */
    *stage = PRIVSEP_STAGE_SECCOMP;
    rc = filter_install(in->filter, &listener_fd);
    if (rc == 0)
        rc = install_listener(listener_fd);
    return rc < 0 ? rc : agent_fd;
}

void inside_run(const struct inside *in)
{
    uint32_t stage;
    int status_fd = in->status_fd;
    int rc = set_up(in, &status_fd, &stage);

    if (rc >= 0) {
        stage = PRIVSEP_STAGE_EXEC;
        rc = run_agent(rc);
    }
    struct inside_failure failure = {.stage = stage, .status = rc};
    (void)!write(status_fd, &failure, sizeof(failure));
    _exit(1);
}
