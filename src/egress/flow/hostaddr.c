#include "egress/flow/hostaddr.h"

#include "base/log.h"
#include "base/otlp_url.h"
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

/* addresses of one reading; a host with more keeps what was ever added */
#define LISTED_MAX   65536u
#define READ_BYTES   32768u /* of a dump's messages: netlink(7) */
#define AGAIN_MS     1000u  /* after a reading that failed */
#define PACKETS_EACH 64u    /* that are read in one turn of the loop */

/* A reading of the kernel's list of addresses, and its socket. New ones are added when they are
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
    size_t n, capacity;
    const struct otlp_url *collector; /* or NULL */
};

static void add(struct hostaddr *h, const struct policy_address *a)
{
    if (policy_address_is_never(a))
        return;
    if (policy_never_add(a, 128) && !h->said) {
        h->said = true;
        log_warn(
            "the host has more than %u addresses: ranges that hold them, and others with them, "
            "are kept from sandboxes",
            POLICY_NEVER_OWN_MAX);
    }
}

static void add_collector(struct hostaddr *h)
{
    struct policy_address a;

    if (!h->collector)
        return;
    policy_address_from(&h->collector->to.any, &a);
    add(h, &a);
}

/* -- reading all ------------------------------------------------------------------------------- */

static void read_all(struct hostaddr *h)
{
    struct {
        struct nlmsghdr h;
        struct rtgenmsg g;
    } m = {.h = {.nlmsg_len = NLMSG_LENGTH(sizeof(struct rtgenmsg)),
                 .nlmsg_type = RTM_GETADDR,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
                 .nlmsg_seq = ++h->seq},
           .g = {.rtgen_family = AF_UNSPEC}};

    h->n = 0;
    h->again = h->over = false;
    h->reading = send(h->fd, &m, m.h.nlmsg_len, MSG_DONTWAIT) == (ssize_t)m.h.nlmsg_len;
}

static void on_later(uv_timer_t *t)
{
    struct hostaddr *h = t->data;

    if (!h->reading)
        read_all(h);
    if (!h->reading)
        uv_timer_start(t, on_later, AGAIN_MS, 0);
}

static void change(struct hostaddr *h)
{
    h->again = true;
    if (!h->reading)
        uv_timer_start(&h->later, on_later, 0, 0); /* once for all that is told in this turn */
}

static void keep(struct hostaddr *h, const struct policy_address *a)
{
    if (h->n == h->capacity && h->capacity < LISTED_MAX) {
        size_t capacity = MAX(h->capacity * 2, (size_t)64);
        struct policy_address *list = reallocarray(h->list, capacity, sizeof(*list));

        if (list) {
            h->list = list;
            h->capacity = capacity;
        }
    }
    if (h->n < h->capacity)
        h->list[h->n++] = *a;
    else
        h->over = true; /* not all are here: what there was stays */
}

static void on_read_all(struct hostaddr *h, bool complete)
{
    h->reading = false;
    if (!complete || h->again) {
        uv_timer_start(&h->later, on_later, AGAIN_MS, 0);
        return;
    }
    if (h->over)
        return;
    policy_never_clear();
    for (size_t i = 0; i < h->n; i++)
        add(h, &h->list[i]);
    add_collector(h);
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

static void on_new_address(struct hostaddr *h, const struct nlmsghdr *m)
{
    const struct ifaddrmsg *ifa = NLMSG_DATA(m);
    int left = (int)IFA_PAYLOAD(m);
    struct policy_address a;

    for (const struct rtattr *r = IFA_RTA(ifa); RTA_OK(r, left); r = RTA_NEXT(r, left)) {
        if (!address_of(ifa, r, &a))
            continue;
        add(h, &a);
        if (h->reading)
            keep(h, &a);
    }
}

static void on_message(struct hostaddr *h, const struct nlmsghdr *m)
{
    bool ours = h->reading && m->nlmsg_seq == h->seq;

    if (m->nlmsg_flags & NLM_F_DUMP_INTR)
        h->again = true;
    if (m->nlmsg_type == RTM_NEWADDR && NLMSG_PAYLOAD(m, 0) >= sizeof(struct ifaddrmsg))
        on_new_address(h, m);
    else if (m->nlmsg_type == RTM_DELADDR)
        change(h);
    else if (m->nlmsg_type == NLMSG_DONE && ours)
        on_read_all(h, true);
    else if (m->nlmsg_type == NLMSG_ERROR && ours)
        on_read_all(h, false);
}

/* Reads a packet of messages. False: there is none now. */
static bool read_packet(struct hostaddr *h)
{
    _Alignas(struct nlmsghdr) char bytes[READ_BYTES];
    ssize_t n = recv(h->fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_TRUNC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n < 0 || (size_t)n > sizeof(bytes)) { /* ENOBUFS: messages were lost */
        h->lost = true;
        return true;
    }
    for (struct nlmsghdr *m = (struct nlmsghdr *)bytes; n > 0 && NLMSG_OK(m, (size_t)n);
         m = NLMSG_NEXT(m, n))
        on_message(h, m);
    return true;
}

/* The kernel says once that messages are lost, and goes on losing them until the queue was empty
 * (netlink_overrun): a reading before that could miss an address that is never told. The loss is an
 * error of the socket, of which libuv tells once and watches no more: it is told to go on, since
 * without it no address of the host's would be learned any more. */
static void on_netlink(uv_poll_t *p, int status, int events)
{
    struct hostaddr *h = p->data;

    if (status < 0)
        (void)uv_poll_start(p, UV_READABLE, on_netlink);
    for (unsigned i = 0; i < PACKETS_EACH; i++)
        if (!read_packet(h)) {
            if (h->lost)
                change(h);
            h->lost = false;
            return;
        }
}

/* -- start ------------------------------------------------------------------------------------- */

static int add_present(struct hostaddr *h)
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
        add(h, &a);
    }
    freeifaddrs(all);
    add_collector(h);
    return 0;
}

/* Takes nothing back on failure: the program ends with it. */
static int start(uv_loop_t *loop, struct hostaddr *h)
{
    struct sockaddr_nl a = {.nl_family = AF_NETLINK,
                            .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    int rc;

    h->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (h->fd < 0 || bind(h->fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return -errno;
    rc = add_present(h); /* after the socket listens, so that none falls in between */
    if (rc == 0)
        rc = uv_timer_init(loop, &h->later);
    if (rc == 0)
        rc = uv_poll_init(loop, &h->watch, h->fd);
    h->later.data = h->watch.data = h;
    if (rc == 0)
        rc = uv_poll_start(&h->watch, UV_READABLE, on_netlink);
    return rc;
}

int hostaddr_start(struct egress *eg)
{
    eg->hostaddr = calloc(1, sizeof(*eg->hostaddr));
    if (!eg->hostaddr)
        return -ENOMEM;
    eg->hostaddr->collector = eg->config.collector;
    return start(eg->loop, eg->hostaddr);
}
