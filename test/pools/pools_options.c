/* Memory that options of a socket allocate, with one small socket under each. */
#include "pools.h"

#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Groups to which sockets listen; each costs the socket an entry, and the interface one. */
static size_t multicast(size_t want)
{
    size_t held = 0;

    for (size_t s = 0; held < want && s < POOLS_MAX_COUNT; s++) {
        int fd = socket(AF_INET6, SOCK_DGRAM, 0);
        if (fd < 0)
            return held;
        for (unsigned i = 0; held < want && i < 2000; i++) {
            struct ipv6_mreq m = {.ipv6mr_interface = 1};
            inet_pton(AF_INET6, "ff02::1:0:0", &m.ipv6mr_multiaddr);
            m.ipv6mr_multiaddr.s6_addr[14] = (uint8_t)(i >> 8);
            m.ipv6mr_multiaddr.s6_addr[15] = (uint8_t)i;
            m.ipv6mr_multiaddr.s6_addr[13] = (uint8_t)s;
            if (setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof(m)) < 0)
                break;
            held += 128;
        }
    }
    return held;
}

static size_t multicast4(size_t want)
{
    size_t held = 0;

    for (size_t s = 0; held < want && s < POOLS_MAX_COUNT; s++) {
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (fd < 0)
            return held;
        for (unsigned i = 0; i < 2000; i++) {
            struct ip_mreqn m = {
                .imr_multiaddr.s_addr = htonl(0xef000000u + (unsigned)s * 4096 + i),
                .imr_ifindex = 1};
            if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) < 0)
                break;
            held += 128;
        }
    }
    return held;
}

/* The largest list of sources that a socket may filter a group by. */
static size_t multicast_sources(size_t want)
{
    size_t held = 0;

    for (size_t s = 0; held < want && s < POOLS_MAX_COUNT; s++) {
        struct ip_mreqn m = {.imr_multiaddr.s_addr = htonl(0xef010000u + (unsigned)s),
                             .imr_ifindex = 1};
        struct ip_mreq_source src = {.imr_multiaddr = m.imr_multiaddr,
                                     .imr_interface.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) < 0)
            return held;
        for (unsigned i = 1; i <= 64; i++) {
            src.imr_sourceaddr.s_addr = htonl(0x0a000000u + i);
            if (setsockopt(fd, IPPROTO_IP, IP_BLOCK_SOURCE, &src, sizeof(src)) < 0)
                break;
            held += 64;
        }
    }
    return held;
}

/* Extension headers that the socket is to send: up to 2 KiB each. */
static size_t ip6_headers(size_t want)
{
    size_t held = 0;

    for (size_t s = 0; held < want && s < POOLS_MAX_COUNT; s++) {
        char header[2048] = {0, 255};
        int fd = socket(AF_INET6, SOCK_DGRAM, 0);
        if (fd < 0)
            return held;
        for (size_t at = 2; at < sizeof(header); at += 257)
            header[at] = 1, header[at + 1] = (char)MIN((size_t)255, sizeof(header) - at - 2);
        if (setsockopt(fd, IPPROTO_IPV6, IPV6_DSTOPTS, header, sizeof(header)) < 0)
            return held;
        held += sizeof(header);
    }
    return held;
}

/* Labels of flows, which are kept for a time after the socket is gone, in one table of the machine. */
static size_t flow_labels(size_t want)
{
    struct {
        struct in6_addr dst;
        uint32_t label;
        uint8_t action, share;
        uint16_t flags, expires, linger;
        uint32_t pad;
    } m = {.dst = IN6ADDR_LOOPBACK_INIT,
           .action = 0,
           .share = 1,
           .flags = 1,
           .expires = 6,
           .linger = 6};
    size_t n = pools_count(MIN(want, (size_t)1 << 20), 192), made = 0;

    for (; made < n; made++) {
        int fd = socket(AF_INET6, SOCK_DGRAM, 0);
        m.label = 0;
        if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, 32 /* IPV6_FLOWLABEL_MGR */, &m, sizeof(m)) < 0)
            break;
    }
    return made * 192;
}

/* Keys for signatures of TCP segments. */
static size_t tcp_md5(size_t want)
{
    size_t held = 0;

    for (size_t s = 0; held < want && s < POOLS_MAX_COUNT; s++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0)
            return held;
        for (unsigned i = 1; i < 2000; i++) {
            struct tcp_md5sig m = {.tcpm_keylen = 80};
            struct sockaddr_in *sin = (struct sockaddr_in *)&m.tcpm_addr;
            sin->sin_family = AF_INET;
            sin->sin_addr.s_addr = htonl(0x0a000000u + i);
            memset(m.tcpm_key, 'x', 80);
            if (setsockopt(fd, IPPROTO_TCP, TCP_MD5SIG, &m, sizeof(m)) < 0)
                break;
            held += 192;
        }
        if (held == 0)
            return 0;
    }
    return held;
}

/* Errors of datagrams that came back, which are never read. */
static size_t error_queue(size_t want)
{
    struct sockaddr_in sin = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    size_t held = 0;

    for (size_t s = 0; held < want && s < POOLS_MAX_COUNT; s++) {
        int on = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
        if (fd < 0 || setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)) < 0)
            return held;
        for (int i = 0; i < 300; i++)
            sendto(fd, "x", 1, MSG_DONTWAIT, (struct sockaddr *)&sin, sizeof(sin));
        size_t got = pools_queued(fd);
        if (got == 0)
            return held;
        held += got;
    }
    return held;
}

/* Sockets with nothing in them. */
static size_t empty(size_t want, int family, int type, size_t each)
{
    size_t n = pools_count(want, each), made = 0;

    while (made < n && socket(family, type, 0) >= 0)
        made++;
    return made * each;
}

static size_t empty_tcp(size_t want)
{
    return empty(want, AF_INET6, SOCK_STREAM, 4096);
}

static size_t empty_udp(size_t want)
{
    return empty(want, AF_INET6, SOCK_DGRAM, 4096);
}

static size_t empty_unix(size_t want)
{
    return empty(want, AF_UNIX, SOCK_STREAM, 4096);
}

const struct pool pools_options[] = {
    {"multicast6", "groups of IPv6 that sockets are in", multicast, ""},
    {"multicast4", "groups of IPv4 that sockets are in", multicast4, ""},
    {"multicast_sources", "sources that a group is filtered by", multicast_sources, ""},
    {"ip6_headers", "extension headers of sockets", ip6_headers, ""},
    {"flow_labels", "IPv6 flow labels", flow_labels, ""},
    {"tcp_md5", "keys of TCP signatures", tcp_md5, ""},
    {"error_queue", "errors that wait in a socket", error_queue, ""},
    {"empty_tcp", "TCP sockets with nothing in them", empty_tcp, ""},
    {"empty_udp", "UDP sockets with nothing in them", empty_udp, ""},
    {"empty_unix", "unix sockets with nothing in them", empty_unix, ""},
    {0},
};
