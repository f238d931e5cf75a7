#include "checkpoint/connections.h"

#include "base/util.h"
#include "checkpoint/diag.h"

#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define CLOSED_HERE  (1u << TCP_FIN_WAIT1 | 1u << TCP_FIN_WAIT2 | 1u << TCP_CLOSING)
#define CLOSED_THERE (1u << TCP_CLOSE_WAIT | 1u << TCP_LAST_ACK)

bool connections_is_half_closed(const struct inet_diag_msg *m)
{
    if (m->idiag_inode == 0 || m->idiag_state > TCP_CLOSING)
        return false;
    return (1u << m->idiag_state & CLOSED_HERE) ||
           ((1u << m->idiag_state & CLOSED_THERE) && m->idiag_rqueue > 1);
}

bool connections_is_begun(const struct inet_diag_msg *m)
{
    return m->idiag_inode != 0 && m->idiag_state == TCP_SYN_SENT;
}

static bool is_half_closed(const void *arg UNUSED, const void *answer, size_t len)
{
    return len >= sizeof(struct inet_diag_msg) && connections_is_half_closed(answer);
}

static bool is_begun(const void *arg UNUSED, const void *answer, size_t len)
{
    return len >= sizeof(struct inet_diag_msg) && connections_is_begun(answer);
}

static int find_in(int family, uint32_t states,
                   bool (*is_one)(const void *arg, const void *answer, size_t len), bool *found)
{
    const struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 what;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .what = {.sdiag_family = (uint8_t)family,
                          .sdiag_protocol = IPPROTO_TCP,
                          .idiag_states = states}};

    return diag_find(&request, sizeof(request), is_one, NULL, found);
}

static int find(uint32_t states, bool (*is_one)(const void *arg, const void *answer, size_t len),
                bool *found)
{
    int rc = find_in(AF_INET, states, is_one, found);

    return rc < 0 || *found ? rc : find_in(AF_INET6, states, is_one, found);
}

int connections_find_half_closed(bool *found)
{
    return find(CLOSED_HERE | CLOSED_THERE, is_half_closed, found);
}

int connections_find_begun(bool *found)
{
    return find(1u << TCP_SYN_SENT, is_begun, found);
}
