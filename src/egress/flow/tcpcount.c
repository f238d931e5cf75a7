#include "egress/flow/tcpcount.h"

#include "base/util.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int tcpcount_get(int fd, uint64_t *taken, uint64_t *acked)
{
    struct tcp_info info;
    socklen_t n = sizeof(info);
    int waiting = 0;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
        return -errno;
    if (n < offsetof(struct tcp_info, tcpi_segs_out))
        return -ENOSYS;
    if (ioctl(fd, FIONREAD, &waiting) < 0)
        return -errno;
    *taken = info.tcpi_bytes_received - MIN((uint64_t)waiting, info.tcpi_bytes_received);
    *acked = info.tcpi_bytes_acked;
    return 0;
}
