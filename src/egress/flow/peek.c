#include "egress/flow/peek.h"

#include "base/util.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

void peek_prepare(int fd)
{
    int one = 1;

    (void)!setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &one, sizeof(one));
}

/* recv(2) ends at a mark of urgent data; how much is there is asked first, for more may come
 * meanwhile. */
ssize_t peek_bytes(int fd, void *data, size_t size, bool *all)
{
    int there = 0;
    ssize_t n;

    if (ioctl(fd, FIONREAD, &there) < 0)
        return -errno;
    n = recv(fd, data, size, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if ((size_t)n < MIN(size, (size_t)MAX(there, 0)))
        return -EPROTO;
    if (all)
        *all = (size_t)n < size;
    return n;
}
