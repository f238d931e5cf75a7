#include "runtime/task.h"

#include "sys/fdpass.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < NSIG; s++)
        if (s != SIGKILL && s != SIGSTOP)
            signal(s, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

NORETURN static void run(task_fn fn, void *arg, int result_fd, pid_t parent)
{
    struct task_result result = {0};

    reset_signals();
    /* A task must not go on without whoever would take its result. */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(1);
    result.status = fn(arg, &result);
    _exit(fdpass_send(result_fd, &result, sizeof(result), result.fds, result.n_fds, 0) < 0);
}

int task_spawn(task_fn fn, void *arg, struct task *out)
{
    int pair[2], pidfd = -1;
    pid_t self = getpid();

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    pid_t pid = ns_fork(0, SIGCHLD, &pidfd);
    if (pid == 0) {
        close(pair[0]);
        run(fn, arg, pair[1], self);
    }
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return (int)pid;
    }
    *out = (struct task){.pid = pid, .pidfd = pidfd, .result_fd = pair[0]};
    return 0;
}

static void forget(struct task *t)
{
    int code, status;
    pid_wait(t->pidfd, &code, &status);
    util_close(&t->pidfd);
    util_close(&t->result_fd);
    *t = TASK_NONE;
}

int task_collect(struct task *t, struct task_result *out)
{
    struct task_result result;
    size_t n_fds = 0;
    ssize_t n = fdpass_recv(t->result_fd, &result, sizeof(result), result.fds, TASK_MAX_FDS, &n_fds,
                            MSG_DONTWAIT);

    /* fdpass_recv writes result.fds after the bytes: the child's own numbers are gone. */
    if (n == -EAGAIN)
        return -EAGAIN;
    forget(t);
    if (n != sizeof(result)) {
        for (size_t i = 0; n >= 0 && i < n_fds; i++)
            util_close(&result.fds[i]);
        return -ECHILD;
    }
    result.n_fds = (uint32_t)n_fds;
    *out = result;
    return 0;
}

void task_cancel(struct task *t)
{
    struct task_result result;
    if (t->pidfd < 0)
        return;
    pid_kill(t->pidfd, SIGKILL);
    int code, status;
    pid_wait(t->pidfd, &code, &status);
    if (task_collect(t, &result) < 0)
        return;
    for (uint32_t i = 0; i < result.n_fds; i++)
        util_close(&result.fds[i]);
}
