/* The part of the argument filter that keeps a sandbox away from memory of the kernel that no limit
 * of it sees, and from what is one for the whole host. The cost of each: docs/kernel-pools.md.
 * Tests: probe "pool". */

#include "sys/filter_internal.h"

#include <errno.h>
#include <linux/memfd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>

/* Newer than the headers of Debian 12, or not among those of the C library. */
#define OPTION_TIMESTAMPING_OLD  37
#define OPTION_TIMESTAMPING_NEW  65
#define OPTION_WIFI_STATUS       41
#define OPTION_ZEROCOPY          60
#define OPTION_IP_RFC4884        26
#define OPTION_IP6_RFC4884       31
#define OPTION_IP6_ANYCAST       27
#define OPTION_IP6_FLOWLABEL_MGR 32
#define OPTION_TCP_MD5SIG_EXT    32
#define OPTION_TCP_AO_ADD_KEY    38
#define OPTION_MEMORY_MERGE      67 /* of prctl */

/* Options that allocate for a peer, or let one allocate, beside the socket's account; error: the
 * answer (0: yes, and nothing is done). They go by number alone, as a filter does not see what kind
 * of socket it is. */
static const struct {
    uint32_t level, option;
    int error;
} refused_options[] = {
    /* A receive buffer keeps the size that net.core.rmem_default gives it. The kernel cuts greater
     * ones without a word too, so programs live with what they get; TCP sizes its own better. */
    {SOL_SOCKET, SO_RCVBUF, 0},
    {SOL_SOCKET, SO_RCVBUFFORCE, EPERM},
    /* Fills the queue of errors, which is bounded by the receive buffer and charged to no group.
     * Resolvers ask for it and give up when it is refused; a connected socket still tells them of
     * an error. */
    {IPPROTO_IP, IP_RECVERR, 0},
    {IPPROTO_IPV6, IPV6_RECVERR, 0},
    {IPPROTO_IP, OPTION_IP_RFC4884, ENOPROTOOPT},
    {IPPROTO_IPV6, OPTION_IP6_RFC4884, ENOPROTOOPT},
    {SOL_SOCKET, OPTION_TIMESTAMPING_OLD, ENOPROTOOPT},
    {SOL_SOCKET, OPTION_TIMESTAMPING_NEW, ENOPROTOOPT},
    {SOL_SOCKET, OPTION_ZEROCOPY, ENOPROTOOPT},
    {SOL_SOCKET, OPTION_WIFI_STATUS, ENOPROTOOPT},
    /* Datagrams that are put together stay in the sender, charged to no group (MSG_MORE: below). */
    {IPPROTO_UDP, UDP_CORK, ENOPROTOOPT},
    /* Keys, 128 KiB of them for each socket. */
    {IPPROTO_TCP, TCP_MD5SIG, ENOPROTOOPT},
    {IPPROTO_TCP, OPTION_TCP_MD5SIG_EXT, ENOPROTOOPT},
    {IPPROTO_TCP, OPTION_TCP_AO_ADD_KEY, ENOPROTOOPT},
    /* Groups cost the interface an entry each, of IPv6 without a number that they end at. There is
     * no network that anything could be sent to: as on a host without one. */
    {IPPROTO_IP, IP_ADD_MEMBERSHIP, ENODEV},
    {IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, ENODEV},
    {IPPROTO_IP, MCAST_JOIN_GROUP, ENODEV},
    {IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, ENODEV},
    {IPPROTO_IPV6, IPV6_JOIN_GROUP, ENODEV},
    {IPPROTO_IPV6, OPTION_IP6_ANYCAST, ENODEV},
    {IPPROTO_IPV6, MCAST_JOIN_GROUP, ENODEV},
    {IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, ENODEV},
    /* There is a table of 4,096 labels for the whole host. */
    {IPPROTO_IPV6, OPTION_IP6_FLOWLABEL_MGR, EPERM},
};

static int refuse_options(scmp_filter_ctx ctx)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(refused_options); i++) {
        const struct scmp_arg_cmp cmp[] = {FILTER_IS(1, refused_options[i].level),
                                           FILTER_IS(2, refused_options[i].option)};
        rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((unsigned)refused_options[i].error),
                                    SCMP_SYS(setsockopt), 2, cmp);
    }
    return rc;
}

/* Calls that are refused while a bit of an argument is set.
 * MSG_MORE: 64 KiB that stay in each UDP socket, charged to no group; of TCP they would be, but the
 * filter does not see which it is. Huge pages are one pool for the whole host, and there is no
 * group that counts them. MS_SYNC: the one flush that goes past `volatile` of the overlay
 * (rootfs.c) and makes the disk that all share wait; as fsync(2) it says yes. */
static int refuse_bits(scmp_filter_ctx ctx)
{
    static const struct {
        int nr;
        unsigned arg;
        uint32_t bit;
        int error;
    } refused[] = {
        {SCMP_SYS(sendto), 3, MSG_MORE, EOPNOTSUPP},
        {SCMP_SYS(sendmsg), 2, MSG_MORE, EOPNOTSUPP},
        {SCMP_SYS(sendmmsg), 3, MSG_MORE, EOPNOTSUPP},
        {SCMP_SYS(mmap), 3, MAP_HUGETLB, ENOMEM},
        {SCMP_SYS(shmget), 2, SHM_HUGETLB, ENOMEM},
        {SCMP_SYS(memfd_create), 1, MFD_HUGETLB, ENOMEM},
        {SCMP_SYS(msync), 2, MS_SYNC, 0},
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(refused); i++) {
        const struct scmp_arg_cmp cmp = {refused[i].arg, SCMP_CMP_MASKED_EQ, refused[i].bit,
                                         refused[i].bit};
        rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((unsigned)refused[i].error), refused[i].nr,
                                    1, &cmp);
    }
    return rc;
}

/* sync(2) waits for, and starts, the writes of every file system of the host. Both say yes and do
 * nothing: what a sandbox writes is on disk when the kernel gets to it, as after its fsync(2). */
static int skip_syncs(scmp_filter_ctx ctx)
{
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(sync), 0);
    return rc == 0 ? seccomp_rule_add(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(syncfs), 0) : rc;
}

/* Where a file has no pages to give (a device, a file of /proc, anything opened with O_DIRECT),
 * splice(2) and sendfile(2) allocate some that are charged to no group, and the pipe or socket they
 * go into keeps them. A filter does not see what a descriptor is. EINVAL is what the calls answer
 * for a file that they do not serve: cp, Python, Go, Java and Node read and write then; nginx wants
 * "sendfile off". */
static int refuse_splices(scmp_filter_ctx ctx)
{
    static const int calls[] = {SCMP_SYS(splice), SCMP_SYS(tee), SCMP_SYS(sendfile)};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(calls); i++)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EINVAL), calls[i], 0);
    return rc;
}

/* Pages of equal content are made one for the whole host where it runs KSM: how long a write takes
 * then tells what others have in memory. As on a kernel without it. */
static int refuse_merging(scmp_filter_ctx ctx)
{
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(madvise), 1,
                              FILTER_IS(2, MADV_MERGEABLE));
    return rc == 0 ? seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl), 1,
                                      FILTER_IS(0, OPTION_MEMORY_MERGE))
                   : rc;
}

int filter_refuse_pools(scmp_filter_ctx ctx)
{
    int rc = refuse_options(ctx);
    if (rc == 0)
        rc = refuse_splices(ctx);
    if (rc == 0)
        rc = refuse_merging(ctx);
    if (rc == 0)
        rc = refuse_bits(ctx);
    return rc == 0 ? skip_syncs(ctx) : rc;
}

/* Unread bytes of a netlink socket are charged to no group, so their number is bounded: cay-init
 * makes them, and only while there are few (agent/netlink.h). Every socket(2) of that family is
 * sent to it, except its own: those carry two random numbers where the kernel does not look. 64
 * bits that no program of a tenant can read, and each attempt costs a round through cay-init. */
int filter_send_netlink(scmp_filter_ctx ctx, const uint32_t pass[static 2])
{
    const uint64_t type = filter_netlink_argument(pass[0], FILTER_NETLINK_TYPE);
    const uint64_t protocol = filter_netlink_argument(pass[1], 0);
    int rc = seccomp_rule_add(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(socket), 2, FILTER_IS(0, AF_NETLINK),
                              SCMP_A1(SCMP_CMP_NE, type));
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(socket), 3, FILTER_IS(0, AF_NETLINK),
                              SCMP_A1(SCMP_CMP_EQ, type), SCMP_A2(SCMP_CMP_NE, protocol));
    return rc;
}
