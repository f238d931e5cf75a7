#include "agent/process/spawn.h"

#include "agent/common/user.h"
#include "base/test_bypass.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Up to spawn_begin everything runs in the forked child. Another thread of cay-init may have held
 * any lock at the fork, so: no allocation, no lock, and raw system calls where glibc would tell
 * other threads of a change of credentials. Not vfork: cay-init would stand still until exec. */

static int become_in_cgroups(const struct agent_spawn *s)
{
    for (size_t i = 0; i < s->cgroup_fd_count; i++)
        if (write(s->cgroup_fds[i], "0", 1) != 1)
            return -errno;
    return 0;
}

/* The kernel kills the sandbox's programs before its PID 1 when the host itself runs out of memory.
 * Best effort: /proc may be missing. */
static void prefer_in_oom(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (write(fd, "100", 3) < 0)
        errno = 0;
    close(fd);
}

/* Descriptors 0..2 are always open in cay-init (main.c sees to it), so a source is 3 or above. */
static int set_up_descriptors(const struct spawn_request *r)
{
    if (r->terminal && ioctl(r->fds[0], TIOCSCTTY, 0) < 0)
        return -errno;
    for (int i = 0; i < 3; i++)
        if (dup2(r->fds[i], i) < 0)
            return -errno;
    if (!TEST_BYPASS(DESCRIPTORS) && syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return -errno;
    return 0;
}

static int mark_command(uint64_t command)
{
    struct rlimit limit = {command, command};

    return prlimit(0, RLIMIT_LOCKS, &limit, NULL) < 0 ? -errno : 0;
}

/* group: the group to join; unused with a terminal, which makes a session and a group. */
static int set_up(const struct agent_spawn *s, const struct spawn_request *r, pid_t group)
{
    int ret;

    if ((r->terminal ? setsid() : setpgid(0, group)) < 0)
        return -errno;
    ret = mark_command(r->command);
    if (ret < 0)
        return ret;
    prefer_in_oom();
    ret = set_up_descriptors(r);
    if (ret < 0)
        return ret;
    umask(022);
    if (s->open_files > 0) {
        struct rlimit limit = {s->open_files, s->open_files};
        if (prlimit(0, RLIMIT_NOFILE, &limit, NULL) < 0)
            return -errno;
    }
    return 0;
}

static int set_capabilities(uint64_t caps)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {(uint32_t)caps, (uint32_t)caps, 0},
        {(uint32_t)(caps >> 32), (uint32_t)(caps >> 32), 0},
    };

    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static int get_permitted(uint64_t *caps)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};

    if (syscall(SYS_capget, &head, data) < 0)
        return -errno;
    *caps = (uint64_t)data[1].permitted << 32 | data[0].permitted;
    return 0;
}

/* The bounding set itself was cut once, at start (boot.c). Capabilities are given up before chdir
 * and exec, so that the user's own rights decide about both; root keeps what exec would give it
 * anyway. */
static int become_user(const struct agent_spawn *s, const struct user *u)
{
    uint64_t permitted = 0;
    int ret;

    if (syscall(SYS_setgroups, u->group_count, u->groups) < 0 ||
        syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 ||
        syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
        return -errno;
    if (u->uid != 0)
        return set_capabilities(0);
    if (!s->bounded)
        return 0;
    ret = get_permitted(&permitted);
    return ret < 0 ? ret : set_capabilities(permitted & s->caps);
}

static void reset_signals(void)
{
    /* The kernel's own form of struct sigaction, all zero: SIG_DFL. By system call, because glibc's
     * function refuses its own two signals, which the starter may have left ignored. */
    const uint64_t dfl[4] = {0};
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        syscall(SYS_rt_sigaction, i, dfl, NULL, sizeof(uint64_t)); /* fails for KILL and STOP */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As a shell would: the first candidate that can be executed; one that may not be does not end the
 * search, but is remembered; a script without "#!" goes to /bin/sh. Returns errno. */
static int execute(const struct spawn_request *r)
{
    int err = ENOENT;

    for (size_t i = 0; r->candidates[i]; i++) {
        execve(r->candidates[i], r->argv, r->env);
        if (errno == ENOEXEC) {
            ((const char **)r->sh_argv)[1] = r->candidates[i];
            execve("/bin/sh", r->sh_argv, r->env);
            return ENOEXEC;
        }
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return errno;
        if (errno == EACCES)
            err = EACCES;
    }
    return err;
}

static NORETURN void give_up(int status_fd, enum spawn_step step, int err)
{
    struct spawn_failure why = {step, err < 0 ? -err : err};

    (void)!write(status_fd, &why, sizeof(why)); /* less than PIPE_BUF: whole, and there is room */
    _exit(127);
}

static NORETURN void child_main(const struct agent_spawn *s, const struct spawn_request *r,
                                pid_t group, int status_fd)
{
    int ret;

    if ((ret = become_in_cgroups(s)) < 0)
        give_up(status_fd, SPAWN_CGROUP, ret);
    if ((ret = set_up(s, r, group)) < 0)
        give_up(status_fd, SPAWN_SETUP, ret);
    if ((ret = become_user(s, r->user)) < 0)
        give_up(status_fd, SPAWN_CREDENTIALS, ret);
    if (chdir(r->cwd) < 0)
        give_up(status_fd, SPAWN_CWD, errno);
    reset_signals();
    give_up(status_fd, SPAWN_EXEC, execute(r));
}

/* A process that shares cay-init's memory and ends at once. It touches no memory, not even the
 * stack, so that it needs none of its own and no copy of the page tables is made, as fork would.
 * The pid, or -errno. */
static long clone_empty(void)
{
    register long stack __asm__("rsi") = 0, parent_tid __asm__("rdx") = 0;
    register long child_tid __asm__("r10") = 0, tls __asm__("r8") = 0;
    long pid;

    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "mov %[exit], %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall\n"
                     "1:"
                     : "=a"(pid)
                     : "a"((long)SYS_clone), "D"((long)(CLONE_VM | SIGCHLD)), "r"(stack),
                       "r"(parent_tid), "r"(child_tid), "r"(tls), [exit] "i"(SYS_exit_group)
                     : "rcx", "r11", "memory", "cc");
    return pid;
}

/* Root inside may signal it, and a handler would run on cay-init's stack. All signals are blocked
 * in cay-init but glibc's own two, which sigprocmask(3) leaves out: here these are, too. */
static pid_t fork_empty(void)
{
    uint64_t all = UINT64_MAX, before = 0;

    if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, sizeof(all)) < 0)
        return -errno;
    long pid = clone_empty();
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof(before));
    return (pid_t)pid;
}

/* A group needs a first member, whose pid is its number, and the program must not be that one. This
 * process is the first member until the program has joined. That it has ended by then is no
 * hindrance: it is a member until it is reaped (proc.c, as an orphan), which is not before the loop
 * goes on. */
static int begin_group(pid_t *group)
{
    pid_t leader = fork_empty();

    if (leader < 0)
        return leader;
    *group = leader;
    return setpgid(leader, leader) < 0 ? -errno : 0;
}

int spawn_begin(const struct agent_spawn *s, const struct spawn_request *r, struct spawned *child)
{
    CLEANUP_CLOSE int ours = -1;
    CLEANUP_CLOSE int childs = -1;
    pid_t leader = 0, pid;
    int fds[2], ret;

    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    ours = fds[0];
    childs = fds[1];
    if (!r->terminal && (ret = begin_group(&leader)) < 0)
        return ret;
    pid = fork();
    if (pid == 0)
        child_main(s, r, leader, childs);
    if (pid < 0)
        return -errno;
    /* Here too, so that it has joined before the leader is reaped. It may have done so itself, and
     * called exec. */
    if (leader > 0)
        (void)setpgid(pid, leader);
    *child = (struct spawned){pid, leader > 0 ? leader : pid, r->command, TAKE_FD(ours)};
    return 0;
}

int spawn_result(int status_fd, struct spawn_failure *why)
{
    struct spawn_failure got;
    ssize_t n = read(status_fd, &got, sizeof(got));

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 1 : -errno;
    if (n != (ssize_t)sizeof(got))
        return 0;
    *why = got;
    return -got.err;
}
