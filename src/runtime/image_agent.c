#include "runtime/image_agent.h"

#include "base/io.h"
#include "runtime/runtime.h"
#include "sys/memfd.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME          "cay-init" /* CRIU's own names end in .img */
#define COMPARE_BYTES 65536

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

/* As many bytes of both, from the same place on. */
static int compare_some(int a, int b, off_t at, size_t n)
{
    static uint8_t of_a[COMPARE_BYTES], of_b[COMPARE_BYTES];

    if (pread(a, of_a, n, at) != (ssize_t)n || pread(b, of_b, n, at) != (ssize_t)n)
        return -EIO;
    return memcmp(of_a, of_b, n) == 0;
}

/* 1, 0 or -errno. */
static int is_same(int a, int b)
{
    struct stat of_a, of_b;
    int rc = 1;

    if (fstat(a, &of_a) < 0 || fstat(b, &of_b) < 0)
        return -errno;
    if (of_a.st_size != of_b.st_size || !S_ISREG(of_a.st_mode) || !S_ISREG(of_b.st_mode))
        return 0;
    for (off_t at = 0; at < of_a.st_size && rc == 1; at += COMPARE_BYTES)
        rc = compare_some(a, b, at, (size_t)MIN(of_a.st_size - at, (off_t)COMPARE_BYTES));
    return rc;
}

/* A description of its own, which can only be read: what one does with it no other has part in. */
static int open_again(int fd)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    return again < 0 ? -errno : again;
}

static int make_own(int program, uint32_t uid)
{
    CLEANUP_CLOSE int fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int rc = fd < 0 ? -errno : copy_all(program, fd);

    if (rc == 0 && (fchown(fd, uid, uid) < 0 || fchmod(fd, 0111) < 0))
        rc = -errno;
    if (rc == 0)
        rc = memfd_seal(fd);
    return rc < 0 ? rc : TAKE_FD(fd);
}

/* Of a sealed file, whose bytes are the same as long as there is a descriptor of it. */
static uint64_t inode_of(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* The server's own is what each sandbox has that was not restored: sealed, root's, and for others
 * to execute alone. */
int image_agent_take(int dir_fd, uint32_t uid, int agent_fd, uint64_t *same)
{
    uint64_t own = inode_of(agent_fd);
    CLEANUP_CLOSE int program = openat(dir_fd, NAME,
                                       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (program < 0)
        return errno == ENOENT ? open_again(agent_fd) : -errno;
    int rc = own != 0 && *same == own ? 1 : is_same(program, agent_fd);
    *same = rc == 1 ? own : 0;
    if (rc < 0)
        return rc;
    return rc ? open_again(agent_fd) : make_own(program, uid);
}
