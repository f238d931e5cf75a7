#include "runtime/image_agent.h"

#include "base/io.h"
#include "runtime/runtime.h"
#include "sys/memfd.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#define NAME "cay-init" /* CRIU's own names end in .img */

/* From the start of a file that others read too. */
static int copy_all(int from, int to)
{
    struct stat st;
    off_t at = 0;

    if (fstat(from, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size <= 0 || st.st_size > RUNTIME_AGENT_BYTES_MAX)
        return -ENOEXEC;
    while (at < st.st_size) {
        ssize_t n = sendfile(to, from, &at, (size_t)(st.st_size - at));

        if (n <= 0)
            return n < 0 ? -errno : -EIO;
    }
    return 0;
}

/* The number is its own while it has not ended, which is asked after the file was opened. */
static int open_program(int pidfd)
{
    char path[32];
    pid_t pid = pid_number(pidfd);

    if (pid < 0)
        return (int)pid;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return pid_has_ended(pidfd) ? -ESRCH : TAKE_FD(fd);
}

/* Safe though a sandbox that has taken its PID 1 over may have made any file of its own the
 * program: nothing of this machine runs it or parses it, and it runs again where it ran. */
int image_agent_put(int dir_fd, uint32_t uid, int pidfd)
{
    CLEANUP_CLOSE int program = open_program(pidfd);
    CLEANUP_CLOSE int copy = program < 0
                                 ? program
                                 : openat(dir_fd, NAME,
                                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                          0400);

    if (copy < 0)
        return program < 0 ? program : -errno;
    int rc = copy_all(program, copy);
    return rc == 0 && fchown(copy, uid, uid) < 0 ? -errno : rc;
}

int image_agent_take(int dir_fd, uint32_t uid, int agent_fd)
{
    CLEANUP_CLOSE int program = openat(dir_fd, NAME,
                                       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    CLEANUP_CLOSE int fd = -1;

    if (program < 0 && errno != ENOENT)
        return -errno;
    fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc = fd < 0 ? -errno : copy_all(program < 0 ? agent_fd : program, fd);
    if (rc == 0 && (fchown(fd, uid, uid) < 0 || fchmod(fd, 0111) < 0))
        rc = -errno;
    if (rc == 0)
        rc = memfd_seal(fd);
    return rc < 0 ? rc : TAKE_FD(fd);
}
