#include "contract/archive.h"

#include <endian.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t archive_pieces(uint64_t bytes)
{
    return bytes / ARCHIVE_PIECE_BYTES + (bytes % ARCHIVE_PIECE_BYTES != 0);
}

int archive_length(int fd, uint64_t *bytes)
{
    struct archive_footer footer;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size < (off_t)sizeof(footer) ||
        pread(fd, &footer, sizeof(footer), st.st_size - (off_t)sizeof(footer)) !=
            (ssize_t)sizeof(footer))
        return -EBADMSG;
    uint64_t n = le64toh(footer.bytes);
    if (le64toh(footer.magic) != ARCHIVE_MAGIC || n == 0 || n > ARCHIVE_BYTES_MAX ||
        n + archive_pieces(n) * ARCHIVE_MAC_BYTES + sizeof(footer) != (uint64_t)st.st_size)
        return -EBADMSG;
    *bytes = n;
    return 0;
}
