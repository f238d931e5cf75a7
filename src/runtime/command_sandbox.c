/* A command sandbox: a network of its own for one command of a sandbox that runs, made as a task of
 * privd.
 *
 * Unlike a sandbox's first process, this one is made while a tenant's programs run beside it and
 * can see it in their /proc (it is in a pid namespace below theirs). Their access to it is
 * prevented until it is cay-init: its memory is a copy of privd's, which is not dumpable and owned
 * by the host's user namespace, so that tracing, /proc/PID/{fd,mem,root,ns} and pidfd_getfd take
 * CAP_SYS_PTRACE over the host; and its capabilities over the sandbox's user namespace are more
 * than any program of a tenant's has. It holds no descriptor of privd's but those that cay-init is
 * to have, and no namespace descriptor at all. They may kill it: then there is no command sandbox.
 *
 * Nothing inside can leave the command sandbox's network namespace or choose another: setns,
 * unshare and new user namespaces are refused by the filter, CAP_SYS_ADMIN is in no process's
 * bounding set, and the command sandbox's /proc shows the command sandbox's own processes only, so
 * that there is no process to trace, whose /proc/PID/ns, fd or root to open, or to take a
 * descriptor from. Test: scenario test_command_policy.py. */

#include "base/clock.h"
#include "base/io.h"
#include "runtime/inside.h"
#include "runtime/level.h"
#include "runtime/observe.h"
#include "runtime/process_boot.h"
#include "runtime/slot.h"
#include "runtime/state.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define MAKE_TIMEOUT_MS 4000 /* until it is cay-init; some milliseconds are usual */
#define KILL_TIMEOUT_MS 1000
/* Namespaces of command sandboxes that have ended are freed by the kernel a moment later; for so
 * long is looked whether there is room again: less than MAKE_TIMEOUT_MS, so that the reason is
 * told. */
#define CAPACITY_WAIT_MS 2500
#define CAPACITY_POLL_US 20000

struct command_sandbox_args {
    struct runtime *rt;
    const struct runtime_sandbox *sandbox;
    uint32_t open_files; /* its limit */
    int pidfd;           /* sandbox->pidfd is held (task_move_high_fd): one that the task has */
    struct process_boot boot;
};

/* --- between ---------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Closes every descriptor but those that cay-init is to have. */
static int close_others(const struct inside *in)
{
    int kept[4 + CGROUP_ATTACH_MAX] = {in->agent_fd, in->boot_fd, in->status_fd};
    size_t n = 3;
    unsigned from = 0;

    if (in->oom_fd >= 0)
        kept[n++] = in->oom_fd;
    for (int i = 0; i < in->n_cgroup_fds; i++)
        kept[n++] = in->cgroup_fds[i];
    qsort(kept, n, sizeof(kept[0]), by_number);
    for (size_t i = 0; i < n; from = (unsigned)kept[i++] + 1)
        if ((unsigned)kept[i] > from && close_range(from, (unsigned)kept[i] - 1, 0) < 0)
            return -errno;
    return close_range(from, ~0U, 0) < 0 ? -errno : 0;
}

/* PID 1 to be: root of the sandbox's user namespace, and no right on the host. */
NORETURN static void run_command_sandbox(const struct inside *in)
{
    struct inside_failure failure = {.stage = PRIVSEP_STAGE_NETWORK};

    failure.status = close_others(in);
    if (failure.status == 0)
        failure.status = process_set_up_network(NFT_RATE_COMMAND_SANDBOX);
    /* Until its ids change for the last time. If it was stopped before this the task kills it by
     * its pidfd. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (failure.status == 0)
        inside_run(in);
    (void)!write(in->status_fd, &failure, sizeof(failure));
    _exit(1);
}

/* --- outside ---------------------------------------------------------------------------------- */

/* Done as the host's root: the sandbox's control groups, by descriptors below `cay`. */
static int prepare(const struct command_sandbox_args *a, struct inside *in, struct task_result *out)
{
    int rc = cgroup_open_attach(a->rt->cgroups, a->sandbox->slot, CGROUP_WORK, in->cgroup_fds);
    if (rc >= 0) {
        in->n_cgroup_fds = rc;
        rc = cgroup_enter(a->rt->cgroups, a->sandbox->slot, CGROUP_AGENT);
    }
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_CGROUP, rc);
    in->oom_fd = cgroup_open_oom(a->rt->cgroups, a->sandbox->slot, CGROUP_WORK);
    rc = process_write_boot(&a->boot, in, a->open_files, 0);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_EXEC, rc) : 0;
}

/* A tenant may read the arguments of what it sees in its /proc, and privd's name places of the
 * host. */
static void hide_arguments(void)
{
    char text[4096];
    CLEANUP_CLOSE int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

    if (n > 0)
        explicit_bzero(program_invocation_name, (size_t)n);
    prctl(PR_SET_NAME, "cay-init", 0, 0, 0);
}

/* Joins the sandbox: from here on this process has no right on the host. The user namespace comes
 * with all others in one call, so that the kernel checks all of them against it. */
static int enter_sandbox(const struct command_sandbox_args *a)
{
    return ns_enter(a->pidfd, CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS |
                                  (TEST_BYPASS(CGROUP_NAMESPACE) ? 0 : CLONE_NEWCGROUP));
}

/* -ENOSPC after CAPACITY_WAIT_MS: a program of the sandbox keeps namespaces of earlier ones by
 * their descriptors (COMMAND_NAMESPACES_MAX of rootfs_proc.c). */
static pid_t fork_when_possible(int *command_sandbox)
{
    uint64_t end_ms = clock_mono_ms() + CAPACITY_WAIT_MS;

    for (;;) {
        pid_t pid = ns_fork(CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC, SIGCHLD,
                            command_sandbox);
        if (pid != -ENOSPC || clock_mono_ms() >= end_ms)
            return pid;
        usleep(CAPACITY_POLL_US);
    }
}

/* In the sandbox's pid namespace: makes PID 1 of the command sandbox, one below (the kernel makes
 * no pid namespace for a process that is not in the one that it would stand in). It shares the
 * table of descriptors with the task, and *command_sandbox, so that from the one system call on in
 * which the command sandbox's PID 1 begins, the task holds it, wherever a signal of the tenant's
 * stops this process. It waits to be killed by the task: the sandbox's cay-init is then the command
 * sandbox's parent, so that the command sandbox is reaped without a process outside. */
NORETURN static void run_between(const struct inside *in, int task_pidfd, int sock,
                                 int *command_sandbox)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (pid_has_ended(task_pidfd))
        _exit(1);
    pid_t pid = fork_when_possible(command_sandbox);

    if (pid == 0)
        run_command_sandbox(in);
    if (pid < 0) {
        struct inside_failure failure = {.stage = PRIVSEP_STAGE_NAMESPACES, .status = pid};
        (void)!write(in->status_fd, &failure, sizeof(failure));
        _exit(1);
    }
    (void)!write(sock, "p", 1);
    for (;;)
        pause();
}

/* 0 when one of both is readable before that time, else -ETIMEDOUT. other may be -1. */
static int await_either(int fd, int other, uint64_t end_ms)
{
    struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
    uint64_t now = clock_mono_ms();
    int n;

    do
        n = poll(fds, ARRAY_SIZE(fds), now < end_ms ? (int)(end_ms - now) : 0);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

/* The end that the command sandbox's PID 1 has is closed here when that has begun, which closes it
 * for `between`, too. */
static int await_command_sandbox(struct process_ends *ends, int between, struct task_result *out)
{
    uint64_t end_ms = clock_mono_ms() + MAKE_TIMEOUT_MS;
    int rc = await_either(ends->sock, between, end_ms);

    util_close(&ends->status_end);
    if (rc == 0)
        rc = await_either(ends->status_fd, -1, end_ms);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_EXEC, rc)
                  : process_await_exec(ends->status_fd, out);
}

/* Whatever stopped them: SIGKILL goes through. With `between` gone nothing can make
 * *command_sandbox any more. */
static int settle(int between, const int *command_sandbox, int rc, struct task_result *out)
{
    (void)pid_kill(between, SIGKILL);
    bool gone = pid_await_end(between, KILL_TIMEOUT_MS);
    int code, status;

    if (gone)
        (void)pid_reap(between, &code, &status);
    if (rc == 0 && (!gone || *command_sandbox < 0))
        rc = process_fail(out, PRIVSEP_STAGE_NAMESPACES, -ECHILD);
    if (rc < 0 && *command_sandbox >= 0) {
        (void)pid_kill(*command_sandbox, SIGKILL);
        (void)pid_await_end(*command_sandbox, KILL_TIMEOUT_MS);
    } else if (rc == 0) {
        out->fds[out->n_fds++] = *command_sandbox;
    }
    return rc;
}

/* A tenant can stop both processes at any instruction: each wait has an end, and both are held from
 * their first one on. Test: test_command_policy.py, test_stopped_command_sandboxes. */
static int fork_command_sandbox(struct inside *in, struct task_result *out)
{
    CLEANUP_PROCESS_ENDS struct process_ends ends = PROCESS_ENDS_NONE;
    int between = -1, rc;
    int *command_sandbox = mmap(NULL, sizeof(*command_sandbox), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (command_sandbox == MAP_FAILED)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, -ENOMEM);
    *command_sandbox = -1;
    rc = process_ends_open(&ends);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    CLEANUP_CLOSE int self = pid_open(getpid());
    if (self < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, self);
    in->status_fd = ends.status_end;
    pid_t pid = ns_fork(CLONE_FILES, SIGCHLD, &between);
    if (pid == 0)
        run_between(in, self, ends.sock_end, command_sandbox);
    if (pid < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, pid);
    rc = await_command_sandbox(&ends, between, out);
    return settle(between, command_sandbox, rc, out);
}

static int make_command_sandbox(void *arg, struct task_result *out)
{
    const struct command_sandbox_args *a = arg;
    struct inside in = inside_new(NULL);
    int rc;

    in.filter = &a->rt->filter;
    in.agent_fd = a->rt->agent_fd;
    in.boot_fd = a->boot.agent_fd;
    in.command_sandbox = true;
    rc = prepare(a, &in, out);
    if (rc < 0)
        return rc;
    hide_arguments();
    rc = enter_sandbox(a);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc)
                  : fork_command_sandbox(&in, out);
}

int process_command_sandbox_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                                  uint32_t open_files, struct task *out, int *boot_fd)
{
    struct command_sandbox_args args = {.rt = rt, .sandbox = sb, .open_files = open_files};
    if (TEST_BYPASS(NETWORK_NAMESPACE))
        return -EOPNOTSUPP;
    if (sb->slot >= rt->slots_max || sb->pidfd < 0)
        return -EINVAL;
    CLEANUP_CLOSE int pidfd = fcntl(sb->pidfd, F_DUPFD_CLOEXEC, 0);
    if (pidfd < 0)
        return -errno;
    args.pidfd = pidfd;
    return process_begin(make_command_sandbox, &args, &args.boot, out, boot_fd);
}

int process_command_sandbox_finish(struct runtime *rt, struct task *t, struct runtime_started *out,
                                   uint32_t *stage)
{
    return process_start_finish(rt, t, out, stage);
}

int process_command_sandbox_kill(const struct runtime_sandbox *command_sandbox)
{
    return pid_kill(command_sandbox->pidfd, SIGKILL);
}
