/* Memory that sockets hold for a peer that does not read. */
#include "pools.h"

#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

#define ROUNDS_MAX 100000

static void widen(int fd)
{
    int size = 1 << 30;

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
}

size_t pools_queued(int fd)
{
    unsigned info[SK_MEMINFO_VARS] = {0};
    socklen_t len = sizeof(info);

    getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len);
    return (size_t)info[SK_MEMINFO_RMEM_ALLOC] + info[SK_MEMINFO_WMEM_ALLOC];
}

/* --- netlink ----------------------------------------------------------------------------------- */

/* Requests that fail and ask for an answer, none of which is read. */
static size_t fill_netlink(int fd)
{
    struct {
        struct nlmsghdr head;
        char rest[16000];
    } m = {.head = {.nlmsg_len = sizeof(m),
                    .nlmsg_type = RTM_DELROUTE,
                    .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK}};
    size_t before, now = 0;

    for (int i = 0; i < ROUNDS_MAX; i++) {
        before = now;
        if (send(fd, &m, sizeof(m), MSG_DONTWAIT) < 0)
            break;
        now = pools_queued(fd);
        if (now == before)
            break;
    }
    return now;
}

static size_t netlink(size_t want)
{
    size_t held = 0;

    for (size_t i = 0; held < want && i < POOLS_MAX_COUNT; i++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
        if (fd < 0)
            return held;
        widen(fd);
        held += fill_netlink(fd);
    }
    return held;
}

/* --- datagrams --------------------------------------------------------------------------------- */

static int udp_to_itself(int family)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 sin6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    struct sockaddr *sa = family == AF_INET ? (struct sockaddr *)&sin : (struct sockaddr *)&sin6;
    socklen_t len = family == AF_INET ? sizeof(sin) : sizeof(sin6);
    int fd = socket(family, SOCK_DGRAM, 0);

    if (fd < 0)
        return -1;
    widen(fd);
    if (bind(fd, sa, len) < 0 || getsockname(fd, sa, &len) < 0 || connect(fd, sa, len) < 0)
        return -1;
    return fd;
}

static size_t fill_udp(int fd, size_t size)
{
    static const char data[60000];
    size_t before, now = 0;

    for (int i = 0; i < ROUNDS_MAX; i++) {
        before = now;
        if (send(fd, data, size, MSG_DONTWAIT) < 0)
            break;
        now = pools_queued(fd);
        if (now <= before)
            break;
    }
    return now;
}

static size_t udp(size_t want, int family, size_t size)
{
    size_t held = 0, got = 1;

    for (size_t i = 0; got && held < want && i < POOLS_MAX_COUNT; i++) {
        int fd = udp_to_itself(family);
        if (fd < 0)
            return held;
        got = fill_udp(fd, size);
        held += got;
    }
    return held;
}

static size_t udp_small(size_t want)
{
    return udp(want, AF_INET, 1);
}

static size_t udp_large(size_t want)
{
    return udp(want, AF_INET, 60000);
}

static size_t udp6_large(size_t want)
{
    return udp(want, AF_INET6, 60000);
}

/* Written with MSG_MORE, so kept in the sender until the rest comes. */
static size_t udp_corked(size_t want)
{
    static const char data[60000];
    size_t held = 0;

    for (size_t i = 0; held < want && i < POOLS_MAX_COUNT; i++) {
        int fd = udp_to_itself(AF_INET);
        if (fd < 0 || send(fd, data, sizeof(data), MSG_MORE | MSG_DONTWAIT) < 0)
            return held;
        held += pools_queued(fd);
    }
    return held;
}

/* Ping sockets: answers that are never read. */
static size_t ping(size_t want)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char data[8192] = {8 /* echo request */};
    size_t held = 0;

    for (size_t i = 0; held < want && i < POOLS_MAX_COUNT; i++) {
        int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
        if (fd < 0)
            return held;
        widen(fd);
        if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
            return held;
        size_t before = 0, now = 0;
        for (int k = 0; k < ROUNDS_MAX; k++) {
            if (send(fd, data, sizeof(data), MSG_DONTWAIT) < 0)
                break;
            before = now;
            now = pools_queued(fd);
            if (now <= before)
                break;
        }
        if (now == 0)
            return held;
        held += now;
    }
    return held;
}

/* --- unix -------------------------------------------------------------------------------------- */

static size_t unix_pairs(size_t want, int type, size_t size)
{
    static const char data[60000];
    size_t held = 0, got = 1;

    for (size_t i = 0; got && held < want && i < POOLS_MAX_COUNT / 2; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, type, 0, pair) < 0)
            return held;
        widen(pair[0]);
        for (int k = 0; k < ROUNDS_MAX && send(pair[0], data, size, MSG_DONTWAIT) >= 0; k++)
            ;
        got = pools_queued(pair[0]);
        held += got;
    }
    return held;
}

static size_t unix_stream(size_t want)
{
    return unix_pairs(want, SOCK_STREAM, 32768);
}

static size_t unix_small(size_t want)
{
    return unix_pairs(want, SOCK_STREAM, 1);
}

static size_t unix_dgram(size_t want)
{
    return unix_pairs(want, SOCK_DGRAM, 32768);
}

static size_t unix_packets(size_t want)
{
    return unix_pairs(want, SOCK_SEQPACKET, 1);
}

/* Connections that are made and never accepted. */
static size_t unix_backlog(size_t want)
{
    struct sockaddr_un {
        sa_family_t family;
        char path[16];
    } sun = {AF_UNIX, "\0cay-pools"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    size_t n = pools_count(want, 4096);

    if (listener < 0 || bind(listener, (struct sockaddr *)&sun, sizeof(sun)) < 0 ||
        listen(listener, 4096) < 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0)
            return i * 4096;
        close(fd);
    }
    return n * 4096;
}

/* Descriptors in flight: 253 a message, of one and the same file. */
static size_t passed(size_t want)
{
    size_t n = pools_count(want, 4096), sent = 0;
    int fds[253];

    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fds[i] = 0;
    while (sent < n) {
        union {
            char space[CMSG_SPACE(sizeof(fds))];
            struct cmsghdr head;
        } control = {.head = {CMSG_LEN(sizeof(fds)), SOL_SOCKET, SCM_RIGHTS}};
        struct iovec iov = {(char[]){"x"}, 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.space,
                           .msg_controllen = sizeof(control.space)};
        int pair[2];
        memcpy(CMSG_DATA(&control.head), fds, sizeof(fds));
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            break;
        ssize_t ok = sendmsg(pair[0], &m, MSG_DONTWAIT);
        close(pair[0]);
        if (ok < 0)
            break;
        sent++;
    }
    return sent * 4096;
}

/* --- TCP --------------------------------------------------------------------------------------- */

static int tcp_listener(struct sockaddr_in *sin)
{
    socklen_t len = sizeof(*sin);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    *sin = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)sin, len) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)sin, &len) < 0)
        return -1;
    return fd;
}

static size_t tcp_queues(size_t want)
{
    static const char data[60000];
    struct sockaddr_in sin;
    int listener = tcp_listener(&sin);
    size_t held = 0, got = 1;

    for (size_t i = 0; got && listener >= 0 && held < want && i < POOLS_MAX_COUNT; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0)
            return held;
        widen(fd);
        if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
            return held;
        int peer = accept(listener, NULL, NULL);
        for (int k = 0, full = 0; k < 1000 && full < 5; k++) {
            if (send(fd, data, sizeof(data), MSG_DONTWAIT) >= 0)
                continue;
            full++;
            usleep(2000);
        }
        got = pools_queued(fd) + pools_queued(peer) > 65536 ? pools_queued(fd) + pools_queued(peer)
                                                            : 0;
        held += got;
    }
    return held;
}

/* Connections without data, of which neither end is accepted. */
static size_t tcp_backlog(size_t want)
{
    struct sockaddr_in sin;
    int listener = tcp_listener(&sin);
    size_t n = pools_count(want, 8192), made = 0;

    for (; listener >= 0 && made < n; made++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        if (fd < 0 ||
            (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 && errno != EINPROGRESS))
            break;
    }
    return made * 8192;
}

/* Connections that ended: the kernel remembers each for a minute, whichever side ended it. */
static size_t tcp_time_wait(size_t want)
{
    struct sockaddr_in sin;
    int listener = tcp_listener(&sin);
    size_t n = pools_count(want, 256), made = 0;

    for (; listener >= 0 && made < n; made++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
            break;
        int peer = accept(listener, NULL, NULL);
        close(fd);
        close(peer);
    }
    return made * 256;
}

const struct pool pools_sockets[] = {
    {"netlink", "answers of route netlink that are not read", netlink, ""},
    {"udp_small", "datagrams of one byte that are not read", udp_small, ""},
    {"udp_large", "large datagrams that are not read", udp_large, ""},
    {"udp6_large", "the same by IPv6", udp6_large, ""},
    {"udp_corked", "datagrams kept by MSG_MORE", udp_corked, ""},
    {"ping", "echo answers that are not read", ping, ""},
    {"unix_stream", "bytes in unix stream sockets", unix_stream, ""},
    {"unix_small", "the same, a byte at a time", unix_small, ""},
    {"unix_dgram", "unix datagrams", unix_dgram, ""},
    {"unix_packets", "unix packets of one byte", unix_packets, ""},
    {"unix_backlog", "unix connections that are not accepted", unix_backlog, ""},
    {"passed", "descriptors in flight", passed, ""},
    {"tcp_queues", "bytes in TCP connections", tcp_queues, ""},
    {"tcp_backlog", "TCP connections that are not accepted", tcp_backlog, ""},
    {"tcp_time_wait", "TCP connections that have ended", tcp_time_wait, ""},
    {0},
};
