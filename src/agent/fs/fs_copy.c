#include "agent/fs/fs_copy.h"

#include "base/io.h"

#include <errno.h>

#define BUFFER_BYTES (128u * 1024u)

/* Where copy_file_range does not work: across file systems that do not know each other, from
 * /proc. */
static ssize_t copy_by_hand(int in, int out, size_t max_bytes)
{
    CLEANUP_FREE char *buffer = malloc(BUFFER_BYTES);
    ssize_t n;
    int r;

    if (!buffer)
        return -ENOMEM;
    do
        n = read(in, buffer, MIN(max_bytes, (size_t)BUFFER_BYTES));
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n < 0 ? -errno : 0;
    r = io_write_full(out, buffer, (size_t)n);
    return r < 0 ? r : n;
}

ssize_t fs_copy_piece(int in, int out, size_t max_bytes)
{
    ssize_t n = copy_file_range(in, NULL, out, NULL, max_bytes, 0);

    if (n > 0)
        return n;
    if (n < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP &&
        errno != EBADF)
        return -errno;
    /* 0 is also what files of /proc give, that are not at their end. */
    return copy_by_hand(in, out, max_bytes);
}
