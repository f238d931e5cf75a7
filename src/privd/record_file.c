#include "privd/record_file.h"

#include "base/fnv.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

int record_file_open(const char *state_dir, const char *name)
{
    CLEANUP_CLOSE int dir_fd = open(state_dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    CLEANUP_CLOSE int fd = -1;
    struct stat st;

    if (dir_fd < 0)
        return -errno;
    fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != 0 || (st.st_mode & 077) != 0)
        return -EPERM;
    return TAKE_FD(fd);
}

uint64_t record_file_sum(const void *record, size_t n)
{
    return fnv_64(FNV_64_START, record, n);
}
