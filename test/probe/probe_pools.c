/* Memory of the kernel that no limit of a sandbox sees, and what is one for the whole host (class 15). Each case takes
 * one thing, or a few KiB, and shows what it would have been charged with by how; nothing is filled. The pools and
 * their bounds: docs/kernel-pools.md. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

#define HIGH (1L << 32)
#define NETLINK_MANY \
    64 /* more than a sandbox may have, and little for the host: none of them holds anything */
#define BUFFER_BIG (1 << 20)

static int udp_to_itself(void)
{
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(sin);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&sin, len) < 0 ||
        getsockname(fd, (struct sockaddr *)&sin, &len) < 0 ||
        connect(fd, (struct sockaddr *)&sin, len) < 0)
        return -1;
    return fd;
}

/* --- netlink ----------------------------------------------------------------------------------- */

static void netlink_many(struct finding *f)
{
    int made = 0;

    while (made < NETLINK_MANY && socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) >= 0)
        made++;
    if (made == NETLINK_MANY)
        found_open(f, "%d netlink sockets at a time", made);
    else
        found_refused(f, "%d netlink sockets, then: %s", made, strerror(errno));
}

/* In other processes and on their way in a queue they count as well. */
static void netlink_passed_on(struct finding *f)
{
    int pair[2], made = 0;

    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0) {
        found_none(f, "socketpair: %s", strerror(errno));
        return;
    }
    for (; made < NETLINK_MANY; made++) {
        union {
            char space[CMSG_SPACE(sizeof(int))];
            struct cmsghdr head;
        } control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
        struct iovec iov = {(char[]){"x"}, 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control.space,
                           .msg_controllen = sizeof(control.space)};
        int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_ROUTE);
        if (fd < 0)
            break;
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
        if (made % 8 == 7 && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) < 0)
            break;
        if (sendmsg(pair[0], &m, MSG_DONTWAIT) < 0)
            break;
        close(fd);
    }
    if (made == NETLINK_MANY)
        found_open(f, "%d netlink sockets on their way", made);
    else
        found_refused(f, "%d netlink sockets on their way, then: %s", made, strerror(errno));
}

/* The upper half of an argument is where cay-init's own pass is. */
static void netlink_pass(struct finding *f)
{
    static const long guesses[] = {HIGH, -1L & ~0xffffffffL, 0x5a5a5a5aL << 32};
    int made = 0;

    for (int i = 0; i < NETLINK_MANY; i++) {
        long guess = guesses[i % 3];
        made += syscall(SYS_socket, AF_NETLINK, guess | SOCK_RAW | SOCK_CLOEXEC, guess) >= 0;
    }
    if (made == NETLINK_MANY)
        found_open(f, "%d netlink sockets with something in the upper half", made);
    else
        found_refused(f, "%d of %d: %s", made, NETLINK_MANY, strerror(errno));
}

/* --- options ----------------------------------------------------------------------------------- */

static void receive_buffer(struct finding *f)
{
    int size = BUFFER_BIG, now = 0, fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t len = sizeof(now);

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
    getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &now, &len);
    if (now >= BUFFER_BIG)
        found_open(f, "a receive buffer of %d bytes", now);
    else
        found_refused(f, "the receive buffer stays at %d bytes", now);
}

/* A datagram to a closed port: its refusal would wait in the queue of errors. */
static void error_queue(struct finding *f, int family, int level, int option)
{
    struct sockaddr_in sin = {
        .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 sin6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(9), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int on = 1, fd = socket(family, SOCK_DGRAM, 0);
    char room[256], control[512];
    struct iovec iov = {room, sizeof(room)};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};

    (void)setsockopt(fd, level, option, &on, sizeof(on));
    for (int i = 0; i < 3; i++)
        (void)(family == AF_INET ? sendto(fd, "x", 1, 0, (struct sockaddr *)&sin, sizeof(sin))
                                 : sendto(fd, "x", 1, 0, (struct sockaddr *)&sin6, sizeof(sin6)));
    (void)poll(NULL, 0, 50);
    if (recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
        found_open(f, "errors wait in the socket");
    else
        found_refused(f, "no error waits: %s", strerror(errno));
}

static void errors4(struct finding *f)
{
    error_queue(f, AF_INET, IPPROTO_IP, IP_RECVERR);
}

static void errors6(struct finding *f)
{
    error_queue(f, AF_INET6, IPPROTO_IPV6, IPV6_RECVERR);
}

/* By an option, or by a control message that no filter sees: bytes sent come back with their
 * time. */
static void time_stamps(struct finding *f, bool by_message)
{
    unsigned flags = (1 << 1) | (1 << 4); /* TX_SOFTWARE, SOFTWARE */
    union {
        char space[CMSG_SPACE(sizeof(unsigned))];
        struct cmsghdr head;
    } control = {.head = {CMSG_LEN(sizeof(unsigned)), SOL_SOCKET, 37 /* SO_TIMESTAMPING */}};
    struct iovec iov = {(char[]){"x"}, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    char room[256];
    int fd = udp_to_itself();

    if (fd < 0) {
        found_none(f, "no socket: %s", strerror(errno));
        return;
    }
    if (by_message) {
        flags = 1 << 1;
        memcpy(CMSG_DATA(&control.head), &flags, sizeof(flags));
        m.msg_control = control.space;
        m.msg_controllen = sizeof(control.space);
    } else {
        (void)setsockopt(fd, SOL_SOCKET, 37, &flags, sizeof(flags));
    }
    (void)sendmsg(fd, &m, 0);
    (void)poll(NULL, 0, 50);
    if (recv(fd, room, sizeof(room), MSG_ERRQUEUE | MSG_DONTWAIT) >= 0)
        found_open(f, "the bytes sent wait in the socket");
    else
        found_refused(f, "nothing waits: %s", strerror(errno));
}

static void stamps_by_option(struct finding *f)
{
    time_stamps(f, false);
}

static void stamps_by_message(struct finding *f)
{
    time_stamps(f, true);
}

/* The bytes that MSG_MORE keeps in the sender. */
static void corked(struct finding *f, long flags)
{
    unsigned info[9] = {0};
    socklen_t len = sizeof(info);
    int fd = udp_to_itself();
    char data[8192] = "";
    long rc = syscall(SYS_sendto, fd, data, sizeof(data), flags, NULL, 0);

    getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &len);
    if (rc >= 0 && info[2] > sizeof(data) / 2)
        found_open(f, "%u bytes wait in the sender", info[2]);
    else
        found_refused(f, "sendto: %s", strerror(errno));
}

static void corked_more(struct finding *f)
{
    corked(f, MSG_MORE);
}

static void corked_high(struct finding *f)
{
    corked(f, HIGH | MSG_MORE);
}

static void corked_message(struct finding *f)
{
    char data[8192] = "";
    struct iovec iov = {data, sizeof(data)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

    found_call(f, "sendmsg(MSG_MORE)", sendmsg(udp_to_itself(), &m, MSG_MORE));
}

static void corked_messages(struct finding *f)
{
    char data[8192] = "";
    struct iovec iov = {data, sizeof(data)};
    struct mmsghdr m = {.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};

    found_call(f, "sendmmsg(MSG_MORE)", sendmmsg(udp_to_itself(), &m, 1, MSG_MORE));
}

static void corked_option(struct finding *f)
{
    int on = 1;

    found_call(f, "UDP_CORK", setsockopt(udp_to_itself(), IPPROTO_UDP, 1, &on, sizeof(on)));
}

static void tcp_keys(struct finding *f)
{
    struct tcp_md5sig m = {.tcpm_keylen = 1, .tcpm_key = "x"};
    struct sockaddr_in *sin = (struct sockaddr_in *)&m.tcpm_addr;

    sin->sin_family = AF_INET;
    sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    found_call(f, "TCP_MD5SIG",
               setsockopt(socket(AF_INET, SOCK_STREAM, 0), IPPROTO_TCP, TCP_MD5SIG, &m, sizeof(m)));
}

static void group4(struct finding *f)
{
    struct ip_mreqn m = {.imr_multiaddr.s_addr = htonl(0xefff0001), .imr_ifindex = 1};

    found_call(
        f, "IP_ADD_MEMBERSHIP",
        setsockopt(socket(AF_INET, SOCK_DGRAM, 0), IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)));
}

static void group6(struct finding *f)
{
    struct ipv6_mreq m = {.ipv6mr_interface = 1};

    inet_pton(AF_INET6, "ff02::ca1", &m.ipv6mr_multiaddr);
    found_call(
        f, "IPV6_JOIN_GROUP",
        setsockopt(socket(AF_INET6, SOCK_DGRAM, 0), IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof(m)));
}

static void group6_generic(struct finding *f)
{
    struct group_req m = {.gr_interface = 1};
    struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)&m.gr_group;

    sin6->sin6_family = AF_INET6;
    inet_pton(AF_INET6, "ff02::ca1", &sin6->sin6_addr);
    found_call(
        f, "MCAST_JOIN_GROUP",
        setsockopt(socket(AF_INET6, SOCK_DGRAM, 0), IPPROTO_IPV6, MCAST_JOIN_GROUP, &m, sizeof(m)));
}

static void flow_label(struct finding *f)
{
    struct {
        struct in6_addr dst;
        uint32_t label;
        uint8_t action, share;
        uint16_t flags, expires, linger;
        uint32_t pad;
    } m = {.dst = IN6ADDR_LOOPBACK_INIT, .share = 1, .flags = 1, .expires = 6};

    found_call(f, "IPV6_FLOWLABEL_MGR",
               setsockopt(socket(AF_INET6, SOCK_DGRAM, 0), IPPROTO_IPV6, 32, &m, sizeof(m)));
}

/* --- pages that nothing is charged with -------------------------------------------------------- */

static void spliced(struct finding *f)
{
    int pipe_fds[2];
    int zero = open("/dev/zero", O_RDONLY);

    if (pipe(pipe_fds) == 0)
        found_call(f, "splice", splice(zero, NULL, pipe_fds[1], NULL, 4096, SPLICE_F_NONBLOCK));
}

static void sent_to_a_pipe(struct finding *f)
{
    int pipe_fds[2];
    int zero = open("/dev/zero", O_RDONLY);

    if (pipe(pipe_fds) == 0)
        found_call(f, "sendfile", sendfile(pipe_fds[1], zero, NULL, 4096));
}

static void teed(struct finding *f)
{
    int from[2], to[2];

    if (pipe(from) == 0 && pipe(to) == 0 && write(from[1], "x", 1) == 1)
        found_call(f, "tee", tee(from[0], to[1], 1, SPLICE_F_NONBLOCK));
}

static void merged(struct finding *f)
{
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (madvise(at, 4096, MADV_MERGEABLE) == 0)
        found_open(f, "madvise(MADV_MERGEABLE) succeeded");
    else
        found_call(f, "PR_SET_MEMORY_MERGE", prctl(67, 1, 0, 0, 0));
}

/* Two files on the sandbox's disk, the first with a block of data. -1: there are none. */
static int two_files(struct finding *f, int fds[2])
{
    static char block[4096];
    static const char *const paths[] = {"/var/tmp/cay-probe-from", "/var/tmp/cay-probe-to"};

    memset(block, 'x', sizeof(block));
    for (int i = 0; i < 2; i++) {
        fds[i] = open(paths[i], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fds[i] < 0 || unlink(paths[i]) < 0 ||
            (i == 0 && (write(fds[i], block, sizeof(block)) < 0 || fsync(fds[i]) < 0))) {
            found_none(f, "%s: %s", paths[i], strerror(errno));
            return -1;
        }
    }
    return 0;
}

static void cloned(struct finding *f)
{
    int fds[2];

    if (two_files(f, fds) == 0)
        found_call(f, "FICLONE", ioctl(fds[1], FICLONE, fds[0]));
}

static void copied_by_the_kernel(struct finding *f)
{
    int fds[2];

    if (two_files(f, fds) == 0)
        found_call(f, "copy_file_range", copy_file_range(fds[0], NULL, fds[1], NULL, 4096, 0));
}

/* Takes none on, so that none is left to be freed. */
static void domain(struct finding *f)
{
    found_call(f, "landlock_create_ruleset", syscall(444 /* landlock_create_ruleset */, 0, 0, 1));
}

/* The kernel asks modprobe for it; ENOPKG or EPERM come from behind that. */
static void modules(struct finding *f)
{
    char request[64] = "eth0";
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    int other = socket(AF_INET, SOCK_STREAM, 17);

    if (ioctl(fd, 0x8982, request) >= 0 || errno != ENOTTY)
        found_open(f, "SIOCGIFVLAN looked for its module: %s", strerror(errno));
    else if (other >= 0)
        found_open(f, "a stream socket of UDP");
    else
        found_refused(f, "SIOCGIFVLAN: %s", strerror(ENOTTY));
}

/* --- memory ------------------------------------------------------------------------------------ */

/* A kernel without a huge page to give says ENOMEM as well: where there is none, an address that no huge page can
 * be at tells who answered. */
static void huge_map(struct finding *f)
{
    void *at = mmap((void *)0x10000, 4096, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB, -1, 0);

    if (at == MAP_FAILED && errno == EINVAL)
        found_open(f, "mmap(MAP_HUGETLB) looked at its arguments: %s", strerror(errno));
    else
        found_call(f, "mmap(MAP_HUGETLB)", at == MAP_FAILED ? -1 : 0);
}

static void huge_segment(struct finding *f)
{
    long r = shmget(IPC_PRIVATE, 1,
                    IPC_CREAT | SHM_HUGETLB | (60 << 26) | 0600); /* of 2^60 bytes */

    if (r < 0 && errno == EINVAL)
        found_open(f, "shmget(SHM_HUGETLB) looked at the size of the pages: %s", strerror(errno));
    else
        found_call(f, "shmget(SHM_HUGETLB)", r);
}

static void huge_memfd(struct finding *f)
{
    found_call(f, "memfd_create(MFD_HUGETLB)", memfd_create("huge", MFD_HUGETLB));
}

static void secret_memory(struct finding *f)
{
    found_call(f, "memfd_secret", syscall(447, 0));
}

static void page_policies(struct finding *f)
{
    unsigned long node = 1;
    int fd = memfd_create("policies", 0);
    char *at = ftruncate(fd, 8192) < 0 ? MAP_FAILED
                                       : mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);

    found_call(f, "mbind", syscall(SYS_mbind, at, 4096, 2 /* BIND */, &node, 64, 0));
}

/* --- flushes ----------------------------------------------------------------------------------- */

/* The kernel looks at the descriptor; an option accepted without it did nothing. */
static void sync_one(struct finding *f)
{
    if (syncfs(-1) < 0)
        found_open(f, "syncfs looked at its argument: %s", strerror(errno));
    else
        found_refused(f, "syncfs says yes and does nothing");
}

static void sync_mapping(struct finding *f)
{
    if (msync((void *)4096, 4096, MS_SYNC) < 0)
        found_open(f, "msync(MS_SYNC) looked at its arguments: %s", strerror(errno));
    else
        found_refused(f, "msync(MS_SYNC) says yes and does nothing");
}

/* --- terminals --------------------------------------------------------------------------------- */

static void many_terminals(struct finding *f)
{
    int made = 0;

    while (made < 200 && open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0)
        made++;
    if (made == 200)
        found_open(f, "%d terminals", made);
    else
        found_refused(f, "%d terminals, then: %s", made, strerror(errno));
}

const struct probe_case probe_pools_cases[] = {
    {"pool.netlink", "more netlink sockets than a sandbox may have: uncharged memory", netlink_many,
     1},
    {"pool.netlink_passed", "netlink sockets on their way between programs", netlink_passed_on, 1},
    {"pool.netlink_pass", "netlink sockets with a guess of cay-init's pass", netlink_pass, 1},
    {"pool.receive_buffer", "a receive buffer of any size", receive_buffer, 1},
    {"pool.errors", "errors that wait in a socket, uncharged", errors4, 1},
    {"pool.errors6", "the same by IPv6", errors6, 1},
    {"pool.stamps", "copies of what was sent, by an option", stamps_by_option, 1},
    {"pool.stamps_message", "by a control message", stamps_by_message, 1},
    {"pool.corked", "datagrams kept in the sender, uncharged", corked_more, 1},
    {"pool.corked_high", "with something in the upper half of the flags", corked_high, 1},
    {"pool.corked_message", "by sendmsg", corked_message, 1},
    {"pool.corked_messages", "by sendmmsg", corked_messages, 1},
    {"pool.corked_option", "by an option", corked_option, 1},
    {"pool.tcp_keys", "keys of TCP signatures, uncharged", tcp_keys, 1},
    {"pool.group", "multicast groups, uncharged", group4, 1},
    {"pool.group6", "of IPv6, without an end", group6, 1},
    {"pool.group6_generic", "by the newer option", group6_generic, 1},
    {"pool.flow_label", "flow labels: one table for the host", flow_label, 1},
    {"pool.huge_map", "huge pages: one pool for the host", huge_map, 1},
    {"pool.huge_segment", "as a System V segment", huge_segment, 1},
    {"pool.huge_memfd", "as a memfd", huge_memfd, 1},
    {"pool.secret_memory", "memory that the kernel can neither move nor reclaim", secret_memory, 1},
    {"pool.page_policies", "a policy for each page, uncharged", page_policies, 1},
    {"pool.splice", "pages of /dev/zero in a pipe, uncharged", spliced, 1},
    {"pool.sendfile", "by sendfile", sent_to_a_pipe, 1},
    {"pool.tee", "the same pages once more", teed, 1},
    {"pool.clones", "a block in many files, whose end holds up the file system", cloned, 1},
    {"pool.copy_range", "the same by copy_file_range", copied_by_the_kernel, 1},
    {"pool.merged", "pages that are one with those of others", merged, 1},
    {"pool.domain", "a Landlock domain, which the queue of all deferred frees ends", domain, 1},
    {"pool.modules", "modules that the host loads for a sandbox", modules, 1},
    {"pool.syncfs", "flush a file system that all share", sync_one, 1},
    {"pool.msync", "flush a mapping past the overlay", sync_mapping, 1},
    {"pool.terminals", "terminals: one pool for the host", many_terminals, 1},
    {NULL, NULL, NULL, 0},
};
