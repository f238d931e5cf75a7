#include "checkpoint/notes.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define NANOSECONDS 1000000000L
#define TEXT_MAX    256

int notes_read_clocks(struct notes *n)
{
    return clock_gettime(CLOCK_MONOTONIC, &n->monotonic) < 0 ||
                   clock_gettime(CLOCK_BOOTTIME, &n->boottime) < 0
               ? -errno
               : 0;
}

int notes_write(int dir_fd, const struct notes *n)
{
    char text[TEXT_MAX];
    int length = snprintf(text, sizeof(text), "program %s\nmonotonic %lld %ld\nboottime %lld %ld\n",
                          n->program, (long long)n->monotonic.tv_sec, n->monotonic.tv_nsec,
                          (long long)n->boottime.tv_sec, n->boottime.tv_nsec);
    CLEANUP_CLOSE int fd = openat(dir_fd, NOTES_FILE,
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : io_write_full(fd, text, (size_t)length);
}

static bool is_clock(const struct timespec *t)
{
    return t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < NANOSECONDS;
}

/* "file[1a:2b]" */
static bool is_program(const char *name)
{
    unsigned mount;
    unsigned long inode;
    char end[2] = "";

    return sscanf(name, "file[%x:%lx%1[]]", &mount, &inode, end) == 3 &&
           name[strlen(name) - 1] == ']';
}

int notes_read(int dir_fd, struct notes *out)
{
    struct notes n;
    char text[TEXT_MAX];
    long long monotonic, boottime;
    ssize_t length = io_read_text_at(dir_fd, NOTES_FILE, text, sizeof(text));

    if (length < 0)
        return (int)length;
    if (sscanf(text, "program %47s\nmonotonic %lld %ld\nboottime %lld %ld", n.program, &monotonic,
               &n.monotonic.tv_nsec, &boottime, &n.boottime.tv_nsec) != 5)
        return -EINVAL;
    n.monotonic.tv_sec = (time_t)monotonic;
    n.boottime.tv_sec = (time_t)boottime;
    if (!is_program(n.program) || !is_clock(&n.monotonic) || !is_clock(&n.boottime))
        return -EINVAL;
    *out = n;
    return 0;
}
