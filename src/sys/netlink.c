#include "sys/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <string.h>

#define LO_INDEX 1 /* the first device of every network namespace */

/* Sends one request and waits for its acknowledgement. */
static int talk(struct mnl_socket *nl, struct nlmsghdr *request)
{
    static uint32_t seq;
    char answer[1024];

    request->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK;
    request->nlmsg_seq = ++seq;
    if (mnl_socket_sendto(nl, request, request->nlmsg_len) < 0)
        return -errno;
    ssize_t n = mnl_socket_recvfrom(nl, answer, sizeof(answer));
    if (n < 0)
        return -errno;
    if (mnl_cb_run(answer, (size_t)n, seq, mnl_socket_get_portid(nl), NULL, NULL) < 0)
        return -errno;
    return 0;
}

static int link_up(struct mnl_socket *nl)
{
    char buffer[256];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct ifinfomsg *link = mnl_nlmsg_put_extra_header(request, sizeof(*link));

    request->nlmsg_type = RTM_NEWLINK;
    link->ifi_family = AF_UNSPEC;
    link->ifi_index = LO_INDEX;
    link->ifi_change = IFF_UP;
    link->ifi_flags = IFF_UP;
    return talk(nl, request);
}

static int add_address(struct mnl_socket *nl, unsigned char family, const void *address, size_t n)
{
    char buffer[256];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct ifaddrmsg *ifa = mnl_nlmsg_put_extra_header(request, sizeof(*ifa));

    request->nlmsg_type = RTM_NEWADDR;
    request->nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE;
    ifa->ifa_family = family;
    ifa->ifa_prefixlen = (unsigned char)(n * 8);
    ifa->ifa_flags = family == AF_INET6 ? IFA_F_NODAD
                                        : 0; /* usable at once: no other process is there */
    ifa->ifa_scope = RT_SCOPE_UNIVERSE;
    ifa->ifa_index = LO_INDEX;
    mnl_attr_put(request, IFA_LOCAL, n, address);
    mnl_attr_put(request, IFA_ADDRESS, n, address);
    return talk(nl, request);
}

static int add_default_route(struct mnl_socket *nl, unsigned char family, const void *source,
                             size_t n)
{
    char buffer[256];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    struct rtmsg *route = mnl_nlmsg_put_extra_header(request, sizeof(*route));

    request->nlmsg_type = RTM_NEWROUTE;
    request->nlmsg_flags = NLM_F_CREATE | NLM_F_REPLACE;
    route->rtm_family = family;
    route->rtm_table = RT_TABLE_MAIN;
    route->rtm_protocol = RTPROT_STATIC;
    route->rtm_scope = family == AF_INET ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE;
    route->rtm_type = RTN_UNICAST;
    mnl_attr_put_u32(request, RTA_OIF, LO_INDEX);
    mnl_attr_put(request, RTA_PREFSRC, n, source);
    return talk(nl, request);
}

static int setup(struct mnl_socket *nl)
{
    struct in_addr v4;
    struct in6_addr v6;

    inet_pton(AF_INET, NETLINK_OWN_IPV4, &v4);
    inet_pton(AF_INET6, NETLINK_OWN_IPV6, &v6);
    int rc = link_up(nl);
    if (rc == 0)
        rc = add_address(nl, AF_INET, &v4, sizeof(v4));
    if (rc == 0)
        rc = add_default_route(nl, AF_INET, &v4, sizeof(v4));
    if (rc < 0)
        return rc;
    rc = add_address(nl, AF_INET6, &v6, sizeof(v6));
    if (rc == 0)
        rc = add_default_route(nl, AF_INET6, &v6, sizeof(v6));
    /* A kernel without IPv6, or with it disabled, has nothing to close there. */
    return rc == -EOPNOTSUPP || rc == -EAFNOSUPPORT || rc == -EACCES ? 0 : rc;
}

int netlink_setup_loopback(void)
{
    struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
    if (!nl)
        return -errno;
    int rc = mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0 ? -errno : setup(nl);
    mnl_socket_close(nl);
    return rc;
}
