#include "checkpoint/connections.h"

#include "base/util.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_BYTES 32768u /* the most that the kernel sends at a time */

#define CLOSED_HERE  (1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSING)
#define CLOSED_THERE (1u << TCP_CLOSE_WAIT | 1u << TCP_LAST_ACK)

bool connections_is_half_closed(const struct inet_diag_msg *m)
{
    if (m->idiag_inode == 0 || m->idiag_state > TCP_CLOSING)
        return false;
    return (1u << m->idiag_state & CLOSED_HERE) ||
           ((1u << m->idiag_state & CLOSED_THERE) && m->idiag_rqueue > 1);
}

static int send_request(int fd, int family)
{
    const struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 what;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .what = {.sdiag_family = (uint8_t)family,
                          .sdiag_protocol = IPPROTO_TCP,
                          .idiag_states = CLOSED_HERE | CLOSED_THERE}};

    return send(fd, &request, sizeof(request), 0) == (ssize_t)sizeof(request) ? 0 : -errno;
}

static bool is_found(const struct nlmsghdr *h)
{
    return h->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
           h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg)) &&
           connections_is_half_closed(NLMSG_DATA(h));
}

static int error_of(const struct nlmsgerr *e)
{
    return e->error < 0 ? e->error : -EPROTO;
}

/* 1: more comes; 0: that was all. */
static int read_reply(int fd, bool *found)
{
    _Alignas(struct nlmsghdr) static char reply[REPLY_BYTES];
    ssize_t n = recv(fd, reply, sizeof(reply), MSG_TRUNC);

    if (n < 0 || n > (ssize_t)sizeof(reply))
        return n < 0 ? -errno : -EMSGSIZE;
    int left = (int)n;
    for (const struct nlmsghdr *h = (const struct nlmsghdr *)reply;
         left > 0 && NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
        if (h->nlmsg_type == NLMSG_DONE)
            return 0;
        if (h->nlmsg_type == NLMSG_ERROR)
            return error_of(NLMSG_DATA(h));
        *found |= is_found(h);
    }
    return n > 0 ? 1 : -EPROTO;
}

static int find(int fd, int family, bool *found)
{
    int rc = send_request(fd, family);

    if (rc < 0)
        return rc;
    do
        rc = read_reply(fd, found);
    while (rc == 1);
    return rc;
}

int connections_find_half_closed(bool *found)
{
    CLEANUP_CLOSE int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

    *found = false;
    if (fd < 0)
        return -errno;
    int rc = find(fd, AF_INET, found);
    return rc < 0 ? rc : find(fd, AF_INET6, found);
}
