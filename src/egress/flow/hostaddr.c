#include "egress/flow/hostaddr.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "policy/policy.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define LISTED_MAX   65536u /* addresses of one reading; a host with more keeps what was ever added */
#define READ_BYTES   32768u /* of a dump's messages: netlink(7) */
#define AGAIN_MS     1000u  /* after a reading that failed */
#define PACKETS_EACH 64u    /* that are read in one turn of the loop */

/* What is read of the kernel's list of addresses, and from where. New ones are added when they are
 * told; for one that goes, and when messages were lost, all are read anew and take the place of the
 * list. */
struct hostaddr {
    uv_poll_t watch;
    uv_timer_t later;
    int fd;
    uint32_t seq;              /* of the reading under way */
    bool reading, again, over; /* again: something changed since it began; over: it is too long */
    bool lost;                 /* messages, since the queue was empty last */
    bool said;                 /* that ranges are wider than the host's addresses */
    struct policy_address *list;
    size_t n, room;
};

static struct hostaddr host = {.fd = -1}; /* of the one program; its handles live as long */

static void add(const struct policy_address *a)
{
    if (policy_address_is_never(a))
        return;
    if (policy_never_add(a, 128) && !host.said) {
        host.said = true;
        log_warn(
            "the host has more than %u addresses: ranges that hold them, and others with them, "
            "are kept from sandboxes",
            POLICY_NEVER_OWN_MAX);
    }
}

/* -- reading all ------------------------------------------------------------------------------- */

static void read_all(void)
{
    struct {
        struct nlmsghdr h;
        struct rtgenmsg g;
    } m = {.h = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtgenmsg)),
                 .nlmsg_type = RTM_GETADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                 .nlmsg_seq = ++host.seq},
           .g = {.rtgen_family = AF_UNSPEC}};

    host.n = 0;
    host.again = host.over = false;
    host.reading = send(host.fd, &m, m.h.nlmsg_len, MSG_DONTWAIT) == (ssize_t)m.h.nlmsg_len;
}

static void on_later(uv_timer_t *t)
{
    if (!host.reading)
        read_all();
    if (!host.reading)
        uv_timer_start(t, on_later, AGAIN_MS, 0);
}

static void change(void)
{
    host.again = true;
    if (!host.reading)
        uv_timer_start(&host.later, on_later, 0, 0); /* once for all that is told in this turn */
}

static void keep(const struct policy_address *a)
{
    if (host.n == host.room && host.room < LISTED_MAX) {
        size_t room = MAX(host.room * 2, (size_t)64);
        struct policy_address *list = reallocarray(host.list, room, sizeof(*list));

        if (list) {
            host.list = list;
            host.room = room;
        }
    }
    if (host.n < host.room)
        host.list[host.n++] = *a;
    else
        host.over = true; /* not all are here: what there was stays */
}

static void on_read_all(bool complete)
{
    host.reading = false;
    if (!complete || host.again) {
        uv_timer_start(&host.later, on_later, AGAIN_MS, 0);
        return;
    }
    if (host.over)
        return;
    policy_never_clear();
    for (size_t i = 0; i < host.n; i++)
        add(&host.list[i]);
}

/* -- messages ---------------------------------------------------------------------------------- */

static bool address_of(const struct ifaddrmsg *ifa, const struct rtattr *r,
                       struct policy_address *a)
{
    *a = (struct policy_address){0};
    if (r->rta_type != IFA_LOCAL && r->rta_type != IFA_ADDRESS)
        return false;
    if (ifa->ifa_family == AF_INET && RTA_PAYLOAD(r) == 4) {
        a->in6.s6_addr[10] = a->in6.s6_addr[11] = 0xff;
        memcpy(a->in6.s6_addr + 12, RTA_DATA(r), 4);
        return true;
    }
    if (ifa->ifa_family != AF_INET6 || RTA_PAYLOAD(r) != 16)
        return false;
    memcpy(a->in6.s6_addr, RTA_DATA(r), 16);
    return true;
}

static void on_new_address(const struct nlmsghdr *m)
{
    const struct ifaddrmsg *ifa = NLMSG_DATA(m);
    int left = (int)IFA_PAYLOAD(m);
    struct policy_address a;

    for (const struct rtattr *r = IFA_RTA(ifa); RTA_OK(r, left); r = RTA_NEXT(r, left)) {
        if (!address_of(ifa, r, &a))
            continue;
        add(&a);
        if (host.reading)
            keep(&a);
    }
}

static void on_message(const struct nlmsghdr *m)
{
    bool ours = host.reading && m->nlmsg_seq == host.seq;

    if (m->nlmsg_flags & NLM_F_DUMP_INTR)
        host.again = true;
    if (m->nlmsg_type == RTM_NEWADDR && NLMSG_PAYLOAD(m, 0) >= sizeof(struct ifaddrmsg))
        on_new_address(m);
    else if (m->nlmsg_type == RTM_DELADDR)
        change();
    else if (m->nlmsg_type == NLMSG_DONE && ours)
        on_read_all(true);
    else if (m->nlmsg_type == NLMSG_ERROR && ours)
        on_read_all(false);
}

/* One packet of messages. False: there is none now. */
static bool read_packet(void)
{
    static _Alignas(struct nlmsghdr) char bytes[READ_BYTES]; /* one loop, used within this call */
    ssize_t n = recv(host.fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n < 0 || (size_t)n > sizeof(bytes)) { /* ENOBUFS: messages were lost */
        host.lost = true;
        return true;
    }
    for (struct nlmsghdr *m = (struct nlmsghdr *)bytes; NLMSG_OK(m, (size_t)n);
         m = NLMSG_NEXT(m, n))
        on_message(m);
    return true;
}

/* The kernel says once that messages are lost, and goes on losing them until the queue was empty
 * (netlink_overrun): what is read before that could miss an address that is never told. */
static void on_netlink(uv_poll_t *p, int status, int events)
{
    for (unsigned i = 0; i < PACKETS_EACH; i++)
        if (!read_packet()) {
            if (host.lost)
                change();
            host.lost = false;
            return;
        }
}

/* -- start ------------------------------------------------------------------------------------- */

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

int hostaddr_start(struct egress *eg)
{
    struct sockaddr_nl a = {.nl_family = AF_NETLINK,
                            .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    int rc;

    host.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (host.fd < 0 || bind(host.fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return -errno;
    rc = add_present(); /* after the socket listens, so that none falls in between */
    if (rc == 0)
        rc = uv_timer_init(eg->loop, &host.later);
    if (rc == 0)
        rc = uv_poll_init(eg->loop, &host.watch, host.fd);
    if (rc == 0)
        rc = uv_poll_start(&host.watch, UV_READABLE, on_netlink);
    return rc;
}
