#include "checkpoint/agent_socket.h"

#include "base/util.h"
#include "checkpoint/diag.h"
#include "contract/agent_go_on.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

static const char name[] = "\0" AGENT_GO_ON_NAME;
#define NAME_BYTES (sizeof(name) - 1) /* as bound: without a NUL at its end */

static bool is_name(const struct rtattr *a)
{
    return a->rta_type == UNIX_DIAG_NAME && RTA_PAYLOAD(a) == NAME_BYTES &&
           memcmp(RTA_DATA(a), name, NAME_BYTES) == 0;
}

static bool is_waited_at(const struct rtattr *a)
{
    const struct unix_diag_rqlen *queue = RTA_DATA(a);

    return a->rta_type == UNIX_DIAG_RQLEN && RTA_PAYLOAD(a) >= sizeof(*queue) &&
           queue->udiag_rqueue > 0;
}

bool agent_socket_is_awaited(const void *answer, size_t len)
{
    const struct unix_diag_msg *m = answer;
    const size_t head = NLMSG_ALIGN(sizeof(*m));
    const struct rtattr *a = (const void *)((const char *)answer + head);
    long left = (long)len - (long)head;
    bool named = false, waited = false;

    if (left < 0 || m->udiag_type != SOCK_SEQPACKET || m->udiag_state != TCP_LISTEN)
        return false;
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        named = named || is_name(a);
        waited = waited || is_waited_at(a);
    }
    return named && waited;
}

static bool is_found(const void *arg UNUSED, const void *answer, size_t len)
{
    return agent_socket_is_awaited(answer, len);
}

int agent_socket_find_waiting(bool *found)
{
    const struct {
        struct nlmsghdr head;
        struct unix_diag_req what;
    } request = {.head = {.nlmsg_len = sizeof(request),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .what = {.sdiag_family = AF_UNIX,
                          .udiag_states = 1u << TCP_LISTEN,
                          .udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_RQLEN}};

    return diag_find(&request, sizeof(request), is_found, NULL, found);
}
