#include "checkpoint/hook.h"

#include "base/util.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define HIGH_FD    50 /* above every number that descriptors get */
#define WANTED_MAX 4u

int hook_take_descriptors(const char *self, const int *wanted, unsigned n)
{
    int parent, fds[WANTED_MAX];

    if (n > WANTED_MAX || sscanf(self, HOOK_PROGRAM, &parent) != 1)
        return -EINVAL;
    int pidfd = pid_open(parent);
    if (pidfd < 0 || dup2(pidfd, HIGH_FD) < 0)
        return pidfd < 0 ? pidfd : -errno;
    for (unsigned i = 0; i < n; i++) {
        int fd = pid_get_fd(HIGH_FD, wanted[i]);

        fds[i] = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD + 1);
        if (fds[i] < 0)
            return fds[i];
    }
    for (unsigned i = 0; i < n; i++)
        if (dup2(fds[i], wanted[i]) < 0)
            return -errno;
    return 0;
}
