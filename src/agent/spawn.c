#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Everything below spawn_program runs in a vfork child: it shares cay-init's memory, and cay-init
 * stands still meanwhile. So: no allocation, no lock, and raw system calls where glibc would tell
 * other threads of a change of credentials. Why vfork and not fork: no copied page tables, and the
 * kernel's OOM killer spares a task in vfork, which would take cay-init's memory with it. */

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
    if (syscall(SYS_close_range, 3, ~0U, 0) < 0)
        return -errno;
    return 0;
}

static int set_up(const struct agent_spawn *s, const struct spawn_request *r)
{
    int ret;

    if (setsid() < 0)
        return -errno;
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

/* The bounding set itself was cut once, at start (boot.c). Capabilities are given up before chdir and
 * exec, so that the user's own rights decide about both; root keeps what exec would give it anyway. */
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
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int i = 1; i < NSIG; i++)
        sigaction(i, &dfl, NULL); /* fails for KILL, STOP and glibc's own two, as it should */
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

static NORETURN void give_up(struct spawn_failure *why, enum spawn_step step, int err)
{
    *why = (struct spawn_failure){step, err < 0 ? -err : err};
    _exit(127);
}

/* Not inlined: a vfork child must not write to its parent's frame. */
static NORETURN __attribute__((noinline)) void child_main(const struct agent_spawn *s,
                                                          const struct spawn_request *r,
                                                          struct spawn_failure *why)
{
    int ret;

    if ((ret = become_in_cgroups(s)) < 0)
        give_up(why, SPAWN_CGROUP, ret);
    if ((ret = set_up(s, r)) < 0)
        give_up(why, SPAWN_SETUP, ret);
    if ((ret = become_user(s, r->user)) < 0)
        give_up(why, SPAWN_CREDENTIALS, ret);
    if (chdir(r->cwd) < 0)
        give_up(why, SPAWN_CWD, errno);
    reset_signals();
    give_up(why, SPAWN_EXEC, execute(r));
}

int spawn_program(const struct agent_spawn *s, const struct spawn_request *r, pid_t *pid,
                  struct spawn_failure *why)
{
    volatile struct spawn_failure failure = {SPAWN_FORK, 0}; /* written by the child */
    sigset_t all, before;
    pid_t child;
    int err;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    child = vfork();
    if (child == 0)
        child_main(s, r, (struct spawn_failure *)&failure);
    err = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (child < 0) {
        *why = (struct spawn_failure){SPAWN_FORK, err};
        return -err;
    }
    if (failure.err != 0) {
        *why = (struct spawn_failure){failure.step, failure.err};
        waitpid(child, NULL, 0);
        return -why->err;
    }
    *pid = child;
    return 0;
}
