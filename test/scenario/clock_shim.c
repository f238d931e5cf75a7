/* Preloaded into a program by clocklib.py: its clock of the real time, and its monotonic ones, are off by as many seconds as
 * the two numbers in the file CLOCK_SHIM_FILE say at this moment (the second is 0 where the file has one). */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_s; /* real, monotonic */

/* Before the program confines itself. */
__attribute__((constructor)) static void map(void)
{
    const char *path = getenv("CLOCK_SHIM_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED
                      : mmap(NULL, 2 * sizeof(*offset_s), PROT_READ, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        abort();
    close(fd);
    offset_s = at;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    long rc = syscall(SYS_clock_gettime, clock, out);

    if (rc == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += offset_s[0];
    if (rc == 0 && (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE))
        out->tv_sec += offset_s[1];
    return (int)rc;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
