#include "sys/pid.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* linux/pidfd.h of 6.15; older headers lack it. */
struct info {
    uint64_t mask, cgroupid;
    uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int32_t exit_code;
};
#define INFO_EXIT (1u << 3)
#define GET_INFO  _IOWR(0xFF, 11, struct info)

int pid_open(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : fd;
}

pid_t pid_number(int pidfd)
{
    char path[48], text[512];
    int pid = -1;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    ssize_t n = io_read_text_at(AT_FDCWD, path, text, sizeof(text));
    const char *at = n < 0 ? NULL : strstr(text, "\nPid:");
    if (n < 0 || !at || sscanf(at, "\nPid: %d", &pid) != 1)
        return n < 0 ? (pid_t)n : -EBADF;
    return pid > 0 ? pid : -ESRCH;
}

int pid_get_fd(int pidfd, int fd)
{
    int copy = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
    return copy < 0 ? -errno : copy;
}

int pid_kill(int pidfd, int signal)
{
    if (syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0) < 0 && errno != ESRCH)
        return -errno;
    return 0;
}

bool pid_await_end(int pidfd, unsigned timeout_ms)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int n;

    do
        n = poll(&p, 1, (int)timeout_ms);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

bool pid_has_ended(int pidfd)
{
    return pid_await_end(pidfd, 0);
}

/* The wait status word (as wait(2) gives it) taken apart as waitid(2) does. */
static int from_info(int pidfd, int *code, int *status)
{
    struct info info = {.mask = INFO_EXIT};
    if (ioctl(pidfd, GET_INFO, &info) < 0 || !(info.mask & INFO_EXIT))
        return -ECHILD;
    if (WIFEXITED(info.exit_code)) {
        *code = CLD_EXITED;
        *status = WEXITSTATUS(info.exit_code);
    } else {
        *code = WCOREDUMP(info.exit_code) ? CLD_DUMPED : CLD_KILLED;
        *status = WTERMSIG(info.exit_code);
    }
    return 0;
}

static int reap(int pidfd, int options, int *code, int *status)
{
    siginfo_t si = {0};
    int rc;
    do {
        rc = waitid((idtype_t)P_PIDFD, (id_t)pidfd, &si, WEXITED | __WALL | options);
    } while (rc < 0 && errno == EINTR);
    if (rc == 0 && si.si_pid == 0)
        return -EAGAIN;
    if (rc == 0) {
        *code = si.si_code;
        *status = si.si_status;
        return 0;
    }
    if (errno != ECHILD)
        return -errno;
    if (!pid_has_ended(pidfd))
        return -EAGAIN;
    return from_info(pidfd, code, status);
}

int pid_reap(int pidfd, int *code, int *status)
{
    return reap(pidfd, WNOHANG, code, status);
}

int pid_wait(int pidfd, int *code, int *status)
{
    return reap(pidfd, 0, code, status);
}
