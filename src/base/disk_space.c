#include "base/disk_space.h"

#include <errno.h>
#include <sys/statvfs.h>

int disk_space_leaves(int fd, uint64_t bytes, unsigned percent)
{
    struct statvfs fs;

    if (fstatvfs(fd, &fs) < 0)
        return -errno;
    return (uint64_t)fs.f_bavail * fs.f_frsize >=
           bytes + (uint64_t)fs.f_blocks / 100 * percent * fs.f_frsize;
}
