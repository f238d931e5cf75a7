#include "egress/hostaddr.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static int netlink_fd = -1;
static uv_poll_t watch;

static void add(const struct policy_address *a)
{
    if (policy_address_is_never(a))
        return;
    if (policy_never_add(a, 128) < 0)
        log_warn("the host has more addresses than can be kept from sandboxes one by one");
}

static int add_present(void)
{
    struct ifaddrs *all, *i;

    if (getifaddrs(&all) < 0)
        return -errno;
    for (i = all; i; i = i->ifa_next) {
        struct policy_address a;

        if (!i->ifa_addr ||
            (i->ifa_addr->sa_family != AF_INET && i->ifa_addr->sa_family != AF_INET6))
            continue;
        policy_address_from(i->ifa_addr, &a);
        add(&a);
    }
    freeifaddrs(all);
    return 0;
}

static void on_new_address(const struct nlmsghdr *m)
{
    const struct ifaddrmsg *ifa = NLMSG_DATA(m);
    int left = (int)IFA_PAYLOAD(m);

    for (const struct rtattr *r = IFA_RTA(ifa); RTA_OK(r, left); r = RTA_NEXT(r, left)) {
        struct policy_address a = {0};

        if (r->rta_type != IFA_LOCAL && r->rta_type != IFA_ADDRESS)
            continue;
        if (ifa->ifa_family == AF_INET && RTA_PAYLOAD(r) == 4) {
            a.in6.s6_addr[10] = a.in6.s6_addr[11] = 0xff;
            memcpy(a.in6.s6_addr + 12, RTA_DATA(r), 4);
        } else if (ifa->ifa_family == AF_INET6 && RTA_PAYLOAD(r) == 16) {
            memcpy(a.in6.s6_addr, RTA_DATA(r), 16);
        } else {
            continue;
        }
        add(&a);
    }
}

static void on_netlink(uv_poll_t *p, int status, int events)
{
    _Alignas(struct nlmsghdr) char bytes[16384];
    ssize_t n = recv(netlink_fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n < 0)
        return;
    for (struct nlmsghdr *m = (struct nlmsghdr *)bytes; NLMSG_OK(m, (size_t)n);
         m = NLMSG_NEXT(m, n))
        if (m->nlmsg_type == RTM_NEWADDR && NLMSG_PAYLOAD(m, 0) >= sizeof(struct ifaddrmsg))
            on_new_address(m);
}

int hostaddr_start(struct egress *eg)
{
    struct sockaddr_nl a = {.nl_family = AF_NETLINK,
                            .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    int rc;

    netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (netlink_fd < 0 || bind(netlink_fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return -errno;
    rc = add_present(); /* after the socket listens, so that none falls in between */
    if (rc == 0)
        rc = uv_poll_init(eg->loop, &watch, netlink_fd);
    if (rc == 0)
        rc = uv_poll_start(&watch, UV_READABLE, on_netlink);
    return rc;
}
