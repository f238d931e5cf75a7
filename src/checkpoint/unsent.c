#include "checkpoint/unsent.h"

#include "base/util.h"
#include "checkpoint/diag.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h> /* netinet/tcp.h has a shorter tcp_info */
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

/* By the kernel's number, which netinet/tcp.h names. A connection that one side has ended comes
 * back as a socket without one, whatever is on it. */
#define ESTABLISHED 1

static uint32_t unsent_bytes(const struct rtattr *a)
{
    struct tcp_info info = {0};

    if (a->rta_type != INET_DIAG_INFO)
        return 0;
    memcpy(&info, RTA_DATA(a), MIN(RTA_PAYLOAD(a), sizeof(info)));
    return info.tcpi_notsent_bytes;
}

bool unsent_is_on(const struct inet_diag_msg *m, size_t len)
{
    const size_t head = NLMSG_ALIGN(sizeof(*m));
    const struct rtattr *a = (const void *)((const char *)m + head);
    long left = (long)len - (long)head;

    if (len < sizeof(*m) || m->idiag_inode == 0)
        return false;
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (unsent_bytes(a) > 0)
            return true;
    return false;
}

static bool is_one(const void *arg UNUSED, const void *answer, size_t len)
{
    return unsent_is_on(answer, len);
}

static int find(int family, bool *found)
{
    const struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 what;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .what = {.sdiag_family = (uint8_t)family,
                          .sdiag_protocol = IPPROTO_TCP,
                          .idiag_ext = 1u << (INET_DIAG_INFO - 1),
                          .idiag_states = 1u << ESTABLISHED}};

    return diag_find(&request, sizeof(request), is_one, NULL, found);
}

int unsent_find(bool *found)
{
    int rc = find(AF_INET, found);

    return rc < 0 || *found ? rc : find(AF_INET6, found);
}
