#include "runtime/task.h"

#include "base/log.h"
#include "sys/fdpass.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define MANY_HIGH_FDS     64 /* from so many on, not to copy them is worth waiting for the child */
#define BEGIN_TIMEOUT_MS  10000
#define CANCEL_TIMEOUT_MS 50 /* a process that is killed takes microseconds */

/* The highest number of a held descriptor in this process, at any time. */
static int highest_fd;

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int s = 1; s < NSIG; s++)
        if (s != SIGKILL && s != SIGSTOP)
            signal(s, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void task_move_high_fd(int *fd)
{
    int high = *fd < 0 ? -1 : fcntl(*fd, F_DUPFD_CLOEXEC, TASK_HIGH_FD);

    if (high < 0)
        return;
    close(*fd);
    *fd = high;
    highest_fd = MAX(highest_fd, high);
}

/* In the child, whose table of descriptors is still the parent's own: takes a copy of the low ones,
 * and tells. Until then nothing may be closed here. */
static void leave_high_fds(int result_fd)
{
    if (close_range(TASK_HIGH_FD, ~0U, CLOSE_RANGE_UNSHARE) < 0 ||
        send(result_fd, "", 1, MSG_NOSIGNAL) != 1)
        _exit(1);
}

/* In the parent: what it closes before the child has its copy would be closed for the child too. */
static int await_copy(int own_end, int pidfd)
{
    struct pollfd fds[] = {{.fd = own_end, .events = POLLIN}, {.fd = pidfd, .events = POLLIN}};
    char byte;
    int n;

    do
        n = poll(fds, ARRAY_SIZE(fds), BEGIN_TIMEOUT_MS);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? -errno : -ETIMEDOUT;
    return recv(own_end, &byte, 1, MSG_DONTWAIT) == 1 ? 0 : -ECHILD;
}

NORETURN static void run(task_fn fn, void *arg, int result_fd, pid_t parent)
{
    struct task_result result = {0};

    reset_signals();
    /* A task must not go on without the process that would take its result. */
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
    /* A low number was free, so that what fn needs stands low too. */
    bool lean = highest_fd >= TASK_HIGH_FD + MANY_HIGH_FDS && MAX(pair[0], pair[1]) < TASK_HIGH_FD;
    pid_t pid = ns_fork(lean ? CLONE_FILES : 0, SIGCHLD, &pidfd);
    if (pid == 0) {
        if (lean)
            leave_high_fds(pair[1]);
        close(pair[0]);
        run(fn, arg, pair[1], self);
    }
    int rc = pid > 0 && lean ? await_copy(pair[0], pidfd) : 0;
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return (int)pid;
    }
    *out = (struct task){.pid = pid, .pidfd = pidfd, .result_fd = pair[0]};
    if (rc < 0) {
        int left = task_cancel(out);
        util_close(&left);
    }
    return rc;
}

/* Its result is in the socket's buffer by the time it has ended. Not taken before that: the end of
 * a process takes longer than to send, and the caller has others to serve meanwhile. */
int task_collect(struct task *t, struct task_result *out)
{
    struct task_result result;
    size_t n_fds = 0;
    int code, status;

    if (pid_reap(t->pidfd, &code, &status) == -EAGAIN)
        return -EAGAIN;
    ssize_t n = fdpass_recv(t->result_fd, &result, sizeof(result), result.fds, TASK_MAX_FDS, &n_fds,
                            MSG_DONTWAIT);

    /* fdpass_recv writes result.fds after the bytes: the child's own numbers are gone. */
    util_close(&t->pidfd);
    util_close(&t->result_fd);
    *t = TASK_NONE;
    if (n != sizeof(result)) {
        for (size_t i = 0; n >= 0 && i < n_fds; i++)
            util_close(&result.fds[i]);
        return -ECHILD;
    }
    result.n_fds = (uint32_t)n_fds;
    result.why[TASK_WHY_SIZE - 1] = '\0';
    *out = result;
    return 0;
}

int task_collect_status(struct task *t, char why[static TASK_WHY_SIZE])
{
    struct task_result result = {0};
    int rc = task_collect(t, &result);

    if (rc < 0)
        return rc;
    memcpy(why, result.why, TASK_WHY_SIZE);
    return result.status;
}

/* Drops the message of a cancelled task; another process may still hold its end of the socket, so
 * its close is not waited for. */
static void drop_result(int result_fd)
{
    struct task_result result;
    size_t n_fds = 0;
    ssize_t n = fdpass_recv(result_fd, &result, sizeof(result), result.fds, TASK_MAX_FDS, &n_fds,
                            MSG_DONTWAIT);

    for (size_t i = 0; n >= 0 && i < n_fds; i++)
        util_close(&result.fds[i]);
}

int task_cancel(struct task *t)
{
    int code, status;

    if (t->pidfd < 0)
        return -1;
    pid_kill(t->pidfd, SIGKILL);
    if (pid_await_end(t->pidfd, CANCEL_TIMEOUT_MS)) {
        (void)pid_reap(t->pidfd, &code, &status);
        util_close(&t->pidfd);
    } else {
        log_warn("a task (process %d) has not ended yet after it was killed: it is not waited for",
                 (int)t->pid);
    }
    int left = TAKE_FD(t->pidfd);
    drop_result(t->result_fd);
    util_close(&t->result_fd);
    *t = TASK_NONE;
    return left;
}
