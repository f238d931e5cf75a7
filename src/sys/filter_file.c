/* Filters as a file for a program that installs them itself (cay-checkpoint, for a restored PID 1):
 * of each its flags, its length and its instructions, one after the other, in a memory file. */

#include "sys/filter_internal.h"

#include "base/io.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <unistd.h>

/* Signals that do not kill leave a program that waits for cay-init alone, or those that signal
 * themselves all the time would ask again and again. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

uint32_t filter_flags(int program)
{
    return program > 0 ? SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
                       : 0;
}

static int write_program(int fd, int program, const struct sock_fprog *p)
{
    uint32_t head[2] = {filter_flags(program), p->len};
    int rc = io_write_full(fd, head, sizeof(head));

    return rc < 0 ? rc : io_write_full(fd, p->filter, p->len * sizeof(p->filter[0]));
}

int filter_file(const struct filter *f)
{
    CLEANUP_CLOSE int fd = memfd_create("filters", MFD_CLOEXEC);
    int rc = fd < 0 ? -errno : 0;

    for (int i = 0; rc == 0 && i < FILTER_PROGRAMS; i++)
        rc = write_program(fd, i, &f->programs[i]);
    if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0)
        rc = -errno;
    return rc < 0 ? rc : TAKE_FD(fd);
}
