/* Each Linux facility after the other, for real. Most need root and say so when they are skipped. */

#include "base/io.h"
#include "skip.h"
#include "sys/btrfs.h"
#include "sys/caps.h"
#include "sys/cgroup.h"
#include "sys/fdpass.h"
#include "sys/filter.h"
#include "sys/filter_host.h"
#include "sys/loopdev.h"
#include "sys/memfd.h"
#include "sys/mnt.h"
#include "sys/netlink.h"
#include "sys/nft.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Of this process alone: another checkout's tests may run at the same time. */
static char cgroup_name[32];

/* Runs fn in a child; what it returns (0..255) is its exit status. */
static int in_child(int (*fn)(void))
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* --- fdpass -------------------------------------------------------------------------------------- */

static void test_fdpass_carries_descriptors(void **state)
{
    int pair[2], fds[4], got[4];
    char text[8];
    size_t n = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fdpass_send(pair[0], "hello", 6, fds, 2, 0), 0);
    assert_int_equal(fdpass_recv(pair[1], text, sizeof(text), got, 4, &n, 0), 6);
    assert_int_equal(n, 2);
    assert_string_equal(text, "hello");
    assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(got[1], "x", 1), 1);
    assert_int_equal(read(fds[0], text, 1), 1);
    assert_int_equal(fdpass_recv(pair[1], text, sizeof(text), got, 4, &n, MSG_DONTWAIT), -EAGAIN);
    for (int i = 0; i < 2; i++) {
        close(got[i]);
        close(fds[i]);
    }
    close(pair[0]);
    assert_int_equal(fdpass_recv(pair[1], text, sizeof(text), got, 4, &n, 0), 0);
    close(pair[1]);
}

/* The lowest free number tells whether something leaked. */
static int lowest_fd(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

static void test_fdpass_refuses_what_is_cut(void **state)
{
    int pair[2], got[4], two[2] = {0, 0};
    char text[4];
    size_t n = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    int before = lowest_fd();
    assert_int_equal(fdpass_send(pair[0], "too long", 8, two, 2, 0), 0);
    assert_int_equal(fdpass_recv(pair[1], text, sizeof(text), got, 4, &n, 0), -EBADMSG);
    assert_int_equal(fdpass_send(pair[0], "x", 1, two, 2, 0), 0);
    assert_int_equal(fdpass_recv(pair[1], text, sizeof(text), got, 1, &n, 0), -EBADMSG);
    int many[FDPASS_MAX + 1] = {0};
    assert_int_equal(fdpass_send(pair[0], "x", 1, many, FDPASS_MAX + 1, 0), -EINVAL);
    assert_int_equal(lowest_fd(), before);
    close(pair[0]);
    close(pair[1]);
}

/* --- pid ----------------------------------------------------------------------------------------- */

static void test_pid_reports_how_it_ended(void **state)
{
    int pidfd = -1, code = 0, status = 0;
    pid_t pid = ns_fork(0, SIGCHLD, &pidfd);
    if (pid == 0)
        _exit(7);
    assert_true(pid > 0);
    assert_int_equal(pid_wait(pidfd, &code, &status), 0);
    assert_int_equal(code, CLD_EXITED);
    assert_int_equal(status, 7);
    assert_int_equal(pid_kill(pidfd, SIGKILL), 0); /* gone is success */
    close(pidfd);

    pid = ns_fork(0, SIGCHLD, &pidfd);
    if (pid == 0)
        for (;;)
            pause();
    assert_int_equal(pid_reap(pidfd, &code, &status), -EAGAIN);
    assert_false(pid_has_ended(pidfd));
    assert_int_equal(pid_kill(pidfd, SIGKILL), 0);
    assert_int_equal(pid_wait(pidfd, &code, &status), 0);
    assert_int_equal(code, CLD_KILLED);
    assert_int_equal(status, SIGKILL);
    assert_true(pid_has_ended(pidfd));
    close(pidfd);
    assert_int_equal(pid_open(pid), -ESRCH);
}

/* The child of a child, reaped by its own parent: as a sandbox after its starter was started anew. */
static void test_pid_of_somebody_elses_child(void **state)
{
    int pipes[2], done[2], code = 0, status = 0;
    pid_t grandchild;
    char byte;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(pipe(done), 0);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t inner = fork();
        if (inner == 0)
            _exit(read(done[0], &byte, 1) == 1 ? 9 : 1);
        (void)!write(pipes[1], &inner, sizeof(inner));
        waitpid(inner, NULL, 0);
        _exit(0);
    }
    assert_int_equal(read(pipes[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
    int pidfd = pid_open(grandchild);
    assert_true(pidfd >= 0);
    assert_int_equal(pid_reap(pidfd, &code, &status), -EAGAIN);
    assert_int_equal(write(done[1], "x", 1), 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    int rc = pid_reap(pidfd, &code, &status);
    if (rc != -ECHILD) { /* -ECHILD: a kernel before 6.15 */
        assert_int_equal(rc, 0);
        assert_int_equal(code, CLD_EXITED);
        assert_int_equal(status, 9);
    }
    print_message("# status of another's child: %s\n", rc == 0 ? "known" : "unknown");
    close(pidfd);
    for (int i = 0; i < 2; i++) {
        close(pipes[i]);
        close(done[i]);
    }
}

/* --- caps ---------------------------------------------------------------------------------------- */

static int become_with_two(void)
{
    uint64_t keep = CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_KILL), effective, permitted;
    if (caps_become(1234, 1235, keep, CAPS_BIT(CAP_SYS_ADMIN)) < 0)
        return 1;
    if (caps_get(&effective, &permitted) < 0)
        return 2;
    if (effective != (keep | CAPS_BIT(CAP_SYS_ADMIN)) || permitted != effective)
        return 3;
    if (getuid() != 1234 || geteuid() != 1234 || getegid() != 1235 || setuid(0) == 0)
        return 4;
    execl("/bin/sh", "sh", "-c",
          "grep -q '^CapPrm:.*00000000000021$' /proc/self/status && "
          "grep -q '^CapBnd:.*00000000000021$' /proc/self/status",
          NULL);
    return 5;
}

static void test_caps_survive_exec_and_nothing_else(void **state)
{
    NEEDS_ROOT;
    assert_true(caps_last() >= CAP_CHECKPOINT_RESTORE);
    assert_int_equal(in_child(become_with_two), 0);
}

/* --- mnt ----------------------------------------------------------------------------------------- */

static void test_open_beneath_follows_nothing(void **state)
{
    char dir[] = "/tmp/cay-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(mkdirat(fd, "a", 0700), 0);
    assert_int_equal(symlinkat("a", fd, "link"), 0);
    assert_int_equal(symlinkat("/etc", fd, "out"), 0);
    int ok = mnt_open_beneath(fd, "a", O_RDONLY | O_DIRECTORY, 0);
    assert_true(ok >= 0);
    close(ok);
    assert_int_equal(mnt_open_beneath(fd, "link", O_RDONLY, 0), -ELOOP);
    assert_int_equal(mnt_open_beneath(fd, "out/passwd", O_RDONLY, 0), -ELOOP);
    assert_int_equal(mnt_open_beneath(fd, "../", O_RDONLY, 0), -EXDEV);
    assert_int_equal(mnt_open_beneath(fd, "/etc", O_RDONLY, 0), -EXDEV);
    assert_int_equal(mnt_open_beneath(fd, "none", O_RDONLY, 0), -ENOENT);
    unlinkat(fd, "link", 0);
    unlinkat(fd, "out", 0);
    unlinkat(fd, "a", AT_REMOVEDIR);
    close(fd);
    rmdir(dir);
}

static int use_detached_trees(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mnt_make_private() < 0)
        return 1;
    static const struct mnt_option options[] = {{"size", "64k"}, {NULL, NULL}};
    static const struct mnt_option bad[] = {{"size", "nonsense"}, {NULL, NULL}};
    int tree = mnt_new("tmpfs", options, MOUNT_ATTR_NODEV);
    if (tree < 0 || mnt_new("tmpfs", bad, 0) != -EINVAL || mnt_new("nosuchfs", NULL, 0) != -ENODEV)
        return 2;
    if (mnt_attach(tree, AT_FDCWD, "/mnt") < 0 || mkdir("/mnt/d", 0755) < 0)
        return 3;
    int copy = mnt_clone(tree, "d", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOATIME);
    if (copy < 0 || mkdirat(copy, "x", 0755) == 0 || errno != EROFS)
        return 4;
    return mkdirat(tree, "d/x", 0755) < 0 ? 5 : 0;
}

static void test_detached_trees(void **state)
{
    NEEDS_ROOT;
    assert_int_equal(in_child(use_detached_trees), 0);
}

/* --- network ------------------------------------------------------------------------------------- */

static int connect_errno(const char *address, int type)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    CLEANUP_CLOSE int fd = socket(AF_INET, type, 0);
    inet_pton(AF_INET, address, &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        return errno;
    return send(fd, "x", 1, 0) < 0 ? errno : 0;
}

#define TCP_PORT 3128
#define UDP_PORT 3153

static const struct nft_rate usual_rate = {500, 1000};

static socklen_t address_of(const char *text, uint16_t port, struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof(*v4);
    }
    inet_pton(AF_INET6, text, &v6->sin6_addr);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return sizeof(*v6);
}

/* The port where questions end is closed: the resolver is told, rather than left to wait. */
static bool question_is_refused(const char *text)
{
    struct sockaddr_storage to;
    socklen_t n = address_of(text, 53, &to);
    CLEANUP_CLOSE int fd = socket(to.ss_family, SOCK_DGRAM, 0);
    struct timeval patience = {.tv_usec = 100000};
    char byte;

    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (struct sockaddr *)&to, n) < 0)
        return false;
    /* In a namespace of this moment the kernel may still be taking up its IPv6 addresses, and an error that
     * it has no source for is lost: ask again, as resolvers do. */
    for (int i = 0; i < 30; i++) {
        if (send(fd, "q", 1, 0) < 0 || recv(fd, &byte, 1, 0) >= 0)
            return errno == ECONNREFUSED;
        if (errno != EAGAIN)
            return errno == ECONNREFUSED;
    }
    return false;
}

static int sealed_network(void)
{
    if (unshare(CLONE_NEWNET) < 0)
        return 1;
    if (netlink_setup_loopback() < 0)
        return 2;
    /* The positive control: without the rules a datagram to elsewhere is taken and lost. */
    if (connect_errno("198.51.100.1", SOCK_DGRAM) != 0)
        return 3;
    if (nft_setup_proxied(TCP_PORT, UDP_PORT, usual_rate) < 0)
        return 4;
    alarm(5);
    if (connect_errno("198.51.100.1", SOCK_STREAM) != ECONNREFUSED) /* a closed port */
        return 5;
    if (connect_errno("198.51.100.1", SOCK_DGRAM) == 0)
        return 6;
    if (!question_is_refused("8.8.8.8") || !question_is_refused("2001:4860:4860::8888"))
        return 9;
    if (connect_errno(NETLINK_OWN_IPV4, SOCK_STREAM) != ECONNREFUSED)
        return 7;
    return connect_errno("127.0.0.1", SOCK_DGRAM) == 0 ? 0 : 8;
}

static void test_network_is_sealed(void **state)
{
    NEEDS_ROOT;
    assert_int_equal(in_child(sealed_network), 0);
}

static int bound_everywhere(int type, uint16_t port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int fd = socket(AF_INET6, type, 0), off = 0;

    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
        (type == SOCK_STREAM && listen(fd, 8) < 0))
        return -1;
    return fd;
}

/* Does a connection to text:port end at the listener, which is told where it was meant to go? */
static bool arrives(int listener, const char *text, uint16_t port)
{
    struct sockaddr_storage to, meant = {0};
    socklen_t n = address_of(text, port, &to), n_meant = sizeof(meant);
    CLEANUP_CLOSE int client = socket(to.ss_family, SOCK_STREAM, 0);
    bool v4 = to.ss_family == AF_INET;

    if (connect(client, (struct sockaddr *)&to, n) < 0)
        return false;
    CLEANUP_CLOSE int server = accept(listener, NULL, NULL);
    if (getsockopt(server, v4 ? SOL_IP : SOL_IPV6, 80 /* SO_ORIGINAL_DST */, &meant, &n_meant) < 0)
        return false;
    char buf[2] = "";
    return memcmp(&meant, &to, v4 ? 8 : n) == 0 && send(server, "x", 1, 0) == 1 &&
           recv(client, buf, 1, 0) == 1;
}

/* Answers from the address that the question came to: the kernel would take the sender's own, and then
 * the answer would belong to no question. */
static bool answer_one(int resolver)
{
    char control[CMSG_SPACE(sizeof(struct in6_pktinfo))], byte;
    struct sockaddr_storage from;
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_name = &from,
                       .msg_namelen = sizeof(from),
                       .msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};

    return recvmsg(resolver, &m, 0) == 1 && sendmsg(resolver, &m, 0) == 1;
}

/* A question to any resolver is answered from the socket, as if by that resolver. */
static bool asks(int resolver, const char *text)
{
    struct sockaddr_storage to;
    socklen_t n = address_of(text, 53, &to);
    CLEANUP_CLOSE int client = socket(to.ss_family, SOCK_DGRAM, 0);
    char buf[8];

    return connect(client, (struct sockaddr *)&to, n) == 0 && send(client, "q", 1, 0) == 1 &&
           answer_one(resolver) && recv(client, buf, sizeof(buf), 0) == 1;
}

static long tracked(void)
{
    char text[32] = "";
    CLEANUP_CLOSE int fd = open("/proc/sys/net/netfilter/nf_conntrack_count", O_RDONLY);

    return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 ? atol(text) : -1;
}

static int proxied_network(void)
{
    if (unshare(CLONE_NEWNET) < 0 || netlink_setup_loopback() < 0)
        return 1;
    alarm(10);
    int listener = bound_everywhere(SOCK_STREAM, TCP_PORT);
    int resolver = bound_everywhere(SOCK_DGRAM, UDP_PORT), on = 1;
    setsockopt(resolver, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof(on));
    if (arrives(listener, "127.0.0.1", TCP_PORT) || tracked() > 0)
        return 2; /* the positive control: without the rules there is no original destination */
    if (nft_setup_proxied(TCP_PORT, UDP_PORT, usual_rate) < 0)
        return 3;
    if (!arrives(listener, "93.184.216.34", 443) || !arrives(listener, "198.18.0.20", 53) ||
        !arrives(listener, "2606:4700::1111", 80))
        return 4;
    if (!asks(resolver, "198.18.0.1") || !asks(resolver, "8.8.8.8") || !asks(resolver, "fd00::53"))
        return 5;
    long before = tracked();
    for (unsigned i = 0; i < 500; i++) /* to a closed port, and to an open one */
        if (connect_errno("127.0.0.1", SOCK_DGRAM) != 0 || !asks(resolver, "8.8.4.4"))
            return 6;
    long after = tracked();
    printf("# tracked: %ld, then %ld\n", before, after);
    return before >= 0 && after <= before + 502 ? 0 : 7; /* the 500 questions, not the datagrams */
}

static void test_network_is_proxied(void **state)
{
    NEEDS_ROOT;
    assert_int_equal(in_child(proxied_network), 0);
}

/* Connections and questions to places outside, each of a port of its own; their sockets stay open. */
static void begin_many(unsigned n_each)
{
    struct sockaddr_storage web, resolver;
    socklen_t n_web = address_of("93.184.216.34", 80, &web);
    socklen_t n_resolver = address_of("8.8.8.8", 53, &resolver);

    for (unsigned i = 0; i < n_each; i++) {
        int connection = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(connection, (struct sockaddr *)&web, n_web);
    }
    for (unsigned i = 0; i < n_each; i++) {
        int question = socket(AF_INET, SOCK_DGRAM, 0);
        (void)sendto(question, "q", 1, 0, (struct sockaddr *)&resolver, n_resolver);
    }
}

/* A single allowance for both kinds: with one of its own for each, twice as many would be tracked. */
static int limited_network(void)
{
    const struct nft_rate rate = {.per_second = 1, .burst = 100};

    if (unshare(CLONE_NEWNET) < 0 || netlink_setup_loopback() < 0 ||
        bound_everywhere(SOCK_STREAM, TCP_PORT) < 0 || bound_everywhere(SOCK_DGRAM, UDP_PORT) < 0 ||
        nft_setup_proxied(TCP_PORT, UDP_PORT, rate) < 0)
        return 1;
    alarm(40); /* and so no more than 40 others */
    long before = tracked();
    begin_many(150);
    long after = tracked();
    printf("# tracked: %ld, then %ld\n", before, after);
    return before == 0 && after >= 100 && after <= 140 ? 0 : 2;
}

static void test_network_is_limited(void **state)
{
    NEEDS_ROOT;
    assert_int_equal(in_child(limited_network), 0);
}

/* --- filter of the host's side ------------------------------------------------------------------- */

static int refused_by_host_filter(void)
{
    if (filter_host_install(FILTER_HOST_DAEMON) < 0)
        return 1;
    if (syscall(SYS_keyctl, 0, -3, 0, 0, 0) != -1 || errno != EPERM)
        return 2;
    if (syscall(SYS_vhangup + 0x7000, 0) != -1 || errno != ENOSYS) /* not ours to answer */
        return 3;
    if (syscall(SYS_userfaultfd, 0) != -1 || errno != EPERM)
        return 4;
    if (unshare(CLONE_NEWNS) < 0 || syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0) != 0)
        return 5;
    if (filter_host_install(FILTER_HOST_JOB) < 0)
        return 6;
    if (syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0) != -1 || errno != EPERM ||
        syscall(SYS_setns, -1, 0) != -1 || errno != EPERM || unshare(CLONE_NEWNS) < 0)
        return 7;
    return 0;
}

static int called_as_x32(void)
{
    if (filter_host_install(FILTER_HOST_DAEMON) < 0)
        return 1;
    syscall(0x40000000 | SYS_getpid);
    return 0;
}

/* The calls that a control without the filter may make: the same calls are answered by the
 * kernel itself. */
static int not_refused_without(void)
{
    return syscall(SYS_keyctl, 0, -3, 0, 0, 0) == -1 && errno == EPERM;
}

static void test_host_filter(void **state)
{
    NEEDS_ROOT;
    assert_int_equal(in_child(not_refused_without), 0);
    assert_int_equal(in_child(refused_by_host_filter), 0);
    assert_int_not_equal(in_child(called_as_x32), 0);
}

/* --- filter -------------------------------------------------------------------------------------- */

static struct filter filter;

static int refused(long rc)
{
    return rc < 0 ? errno : 0;
}

/* 0, or which of the ways to a filter of one's own was not refused as it should be. A program of no
 * instructions at all is EINVAL to a kernel that looks at it, so the errno tells who answered. */
static int filters_not_refused(void)
{
    static const int options[] = {SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
                                  SO_ATTACH_REUSEPORT_EBPF};
    struct sock_filter code = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &code}, none = {0, NULL};
    int zero = 0, unix_fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        if (refused(setsockopt(unix_fd, SOL_SOCKET, options[i], &none, sizeof(none))) !=
                ENOPROTOOPT ||
            refused(syscall(SYS_setsockopt, unix_fd, 0x100000000 | SOL_SOCKET,
                            0x100000000 | options[i], &none, sizeof(none))) != ENOPROTOOPT)
            return 1;
    }
    if (refused(setsockopt(unix_fd, SOL_SOCKET, SO_REUSEADDR, &zero, sizeof(zero))) != 0)
        return 2;
    if (refused(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) != EINVAL ||
        refused(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &(uint32_t){0})) != EINVAL ||
        refused(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) != EINVAL ||
        refused(syscall(SYS_prctl, 0x100000000 | PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL)) !=
            EINVAL)
        return 3;
    return prctl(PR_GET_SECCOMP) == SECCOMP_MODE_FILTER ? 0 : 4;
}

/* Memory that no limit sees, and what is one for the whole host. 0, or which was not refused as it should be. */
static int pools_not_refused(void)
{
    int big = 1 << 20, now = 0, fd = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t len = sizeof(now);
    struct msghdr none = {0};

    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &big, sizeof(big)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &now, &len) < 0 || now >= big)
        return 1;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big)) < 0)
        return 2;
    if (refused(send(fd, "x", 1, MSG_MORE)) != EOPNOTSUPP ||
        refused(sendmsg(fd, &none, MSG_MORE | MSG_DONTWAIT)) != EOPNOTSUPP ||
        refused(setsockopt(fd, IPPROTO_UDP, 1 /* UDP_CORK */, &big, sizeof(big))) != ENOPROTOOPT)
        return 3;
    if (mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) !=
            MAP_FAILED ||
        errno != ENOMEM || refused(memfd_create("x", MFD_HUGETLB)) != ENOMEM)
        return 4;
    if (refused(syscall(SYS_mbind, 0, 0, 0, 0, 0, 0)) != EPERM ||
        refused(syscall(447 /* memfd_secret */, 0)) != ENOSYS)
        return 5;
    /* The descriptor is not looked at: nothing is done. */
    return refused(syncfs(-1)) == 0 && refused(msync(NULL, 0, MS_ASYNC)) == 0 ? 0 : 6;
}

/* With the pass the kernel makes the socket; without it the call waits at the listener, and says ENOSYS once that is
 * closed. */
static int netlink_not_sent(int listener)
{
    uint64_t type = filter_netlink_argument(filter.netlink_pass[0], FILTER_NETLINK_TYPE);
    uint64_t protocol = filter_netlink_argument(filter.netlink_pass[1], 0);

    if (listener < 0 || refused(syscall(SYS_socket, AF_NETLINK, type, protocol)) != 0)
        return 1;
    close(listener);
    if (refused(socket(AF_NETLINK, SOCK_RAW, 0)) != ENOSYS)
        return 2;
    return refused(syscall(SYS_socket, AF_NETLINK, type, 0)) != ENOSYS ||
           refused(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)) != ENOSYS;
}

static int filtered(void)
{
    int listener;
    struct rlimit core = {0, 0}, now = {7, 7};
    if (setrlimit(RLIMIT_CORE, &now) < 0)
        core.rlim_max = 0; /* a lower hard limit than 7: nothing to see below */
    if (filter_install(&filter, &listener) < 0)
        return 1;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0)
        return 2;
    if (refused(unshare(CLONE_NEWUSER)) != EPERM || refused(unshare(CLONE_NEWNET)) != EPERM)
        return 3;
    if (refused(unshare(CLONE_FS)) != 0)
        return 4;
    if (refused(syscall(SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0)) != EPERM)
        return 5;
    if (refused(syscall(SYS_clone3, NULL, 0)) != ENOSYS)
        return 6;
    if (refused(socket(AF_VSOCK, SOCK_STREAM, 0)) != EAFNOSUPPORT ||
        refused(socket(AF_PACKET, SOCK_RAW, 0)) != EAFNOSUPPORT ||
        refused(socket(AF_ALG, SOCK_SEQPACKET, 0)) != EAFNOSUPPORT ||
        refused(socket(AF_NETLINK, SOCK_RAW, 12)) != EPROTONOSUPPORT)
        return 7;
    if (refused(socket(AF_INET, SOCK_RAW, 1)) != EPERM ||
        refused(socket(AF_INET, SOCK_STREAM, 132)) != EPROTONOSUPPORT)
        return 8;
    if (refused(socket(AF_UNIX, SOCK_STREAM, 0)) || refused(socket(AF_INET6, SOCK_DGRAM, 0)) ||
        netlink_not_sent(listener))
        return 9;
    if (refused(ioctl(0, TIOCSTI, "x")) != EPERM ||
        refused(syscall(SYS_ioctl, 0, 0xdeadbeef00000000 | TIOCSTI, "x")) != EPERM)
        return 10;
    if (refused(syscall(SYS_setuid, 4242)) != EPERM ||
        refused(syscall(SYS_setresuid, -1, 0x100000000 | 4242, -1)) != EPERM ||
        refused(syscall(SYS_setregid, -1, 4242)) != EPERM)
        return 11;
    if (refused(syscall(SYS_bpf, 0, 0, 0)) != EPERM || refused(syscall(SYS_keyctl, 0)) != EPERM ||
        refused(syscall(SYS_io_uring_setup, 1, 0)) != EPERM ||
        refused(syscall(SYS_userfaultfd, 0)) != EPERM ||
        refused(syscall(SYS_perf_event_open, 0, 0, 0, 0, 0)) != EPERM ||
        refused(syscall(SYS_open_by_handle_at, 0, 0, 0)) != EPERM ||
        refused(syscall(SYS_fsopen, "tmpfs", 0)) != EPERM)
        return 12;
    if (refused(syscall(999)) != ENOSYS)
        return 13;
    if (refused(syscall(SYS_personality, 0x0040000)) != ENOSYS ||
        refused(syscall(SYS_personality, 0xffffffff)) != 0)
        return 14;
    if (filters_not_refused())
        return 17;
    if (pools_not_refused())
        return 18;
    if (setrlimit(RLIMIT_CORE, &core) < 0 || getrlimit(RLIMIT_CORE, &now) < 0)
        return 15;
    return now.rlim_cur == 7 || core.rlim_max == 0 ? 0 : 16;
}

#ifdef __x86_64__
/* int 0x80 and x32 end the process. */
static int by_int80(void)
{
    int nr = 20, /* getpid of i386 */
        listener;
    if (filter_install(&filter, &listener) < 0)
        return 1;
    __asm__ volatile("int $0x80" : "+a"(nr)::"memory");
    return 0;
}

static int by_x32(void)
{
    int listener;

    if (filter_install(&filter, &listener) < 0)
        return 1;
    syscall(0x40000000 + SYS_getpid);
    return 0;
}

#endif

static void test_filter(void **state)
{
    NEEDS_ROOT;
    assert_int_equal(filter_build(4242, false, &filter), 0);
    assert_int_equal(in_child(filtered), 0);
#ifdef __x86_64__
    assert_int_equal(in_child(by_int80), 1000 + SIGSYS);
    assert_int_equal(in_child(by_x32), 1000 + SIGSYS);
#endif
    filter_free(&filter);
}

/* As the program does that filter_file is for: from the file alone. 0, or which step failed. */
static int filtered_by_file(void)
{
    static struct sock_filter code[BPF_MAXINSNS];
    uint32_t head[2]; /* flags, number of instructions */
    int fd = filter_file(&filter), n = 0;
    long listener = -1;

    if (fd < 0)
        return 1;
    while (read(fd, head, sizeof(head)) == sizeof(head)) {
        struct sock_fprog program = {.len = (unsigned short)head[1], .filter = code};
        ssize_t size = (ssize_t)(head[1] * sizeof(code[0]));

        if (head[1] == 0 || head[1] > BPF_MAXINSNS || read(fd, code, (size_t)size) != size)
            return 2;
        listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, head[0], &program);
        if (listener < 0)
            return 3;
        n++;
    }
    if (n != FILTER_PROGRAMS || listener == 0) /* the last one has a listener */
        return 4;
    if (refused(unshare(CLONE_NEWUSER)) != EPERM || refused(syscall(SYS_setuid, 4242)) != EPERM)
        return 5;
    return refused(unshare(CLONE_FS)) == 0 ? 0 : 6;
}

static void test_filter_file(void **state)
{
    NEEDS_ROOT;
    assert_int_equal(filter_build(4242, false, &filter), 0);
    assert_int_equal(in_child(filtered_by_file), 0);
    filter_free(&filter);
}

/* --- cgroup -------------------------------------------------------------------------------------- */

static struct cgroup *open_cgroup(void)
{
    struct cgroup *cg = NULL;
    char why[192] = "";
    snprintf(cgroup_name, sizeof(cgroup_name), "cay-test-sys-%d", (int)getpid());
    if (cgroup_open(cgroup_name, &cg, why, sizeof(why)) < 0) {
        SKIP(why);
    }
    return cg;
}

/* A child in the work leaf that counts into shared memory and forks once. */
static pid_t busy_child(const struct cgroup *cg, int *pidfd)
{
    pid_t pid = ns_fork(0, SIGCHLD, pidfd);
    if (pid == 0) {
        if (cgroup_enter(cg, 3, CGROUP_WORK) < 0)
            _exit(1);
        if (fork() == 0)
            for (;;)
                pause();
        for (;;)
            pause();
    }
    return pid;
}

static void await_pids(const struct cgroup *cg, int want)
{
    pid_t pids[8];
    for (int i = 0; i < 200; i++) {
        if (cgroup_pids(cg, 3, CGROUP_WORK, pids, 8) == want)
            return;
        usleep(5000);
    }
    fail_msg("never %d processes", want);
}

static void test_cgroup_freezes_kills_and_goes(void **state)
{
    struct cgroup_limits limits = {.memory_bytes = 64 << 20, .pids = 10, .cpu_milli = 500};
    struct cgroup_stat st;
    int pidfd = -1, code, status;
    NEEDS_ROOT;
    struct cgroup *cg = open_cgroup();
    assert_int_equal(cgroup_make(cg, 3), 0);
    assert_int_equal(cgroup_make(cg, 3), 0); /* again is fine */
    assert_int_equal(cgroup_limit(cg, 3, CGROUP_WHOLE, &limits), 0);
    assert_int_equal(cgroup_limit(cg, 3, CGROUP_WORK, &limits), 0);
    const uint64_t sizes[] = {16 << 20, 128 << 20, 0, 32 << 20}; /* down, up, none, down */
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        limits.memory_bytes = sizes[i];
        assert_int_equal(cgroup_limit(cg, 3, CGROUP_WORK, &limits), 0);
    }
    pid_t pid = busy_child(cg, &pidfd);
    await_pids(cg, 2);
    assert_true(cgroup_holds(cg, 3, pid));
    assert_false(cgroup_holds(cg, 3, getpid()));
    assert_false(cgroup_holds(cg, 30, pid));
    assert_int_equal(cgroup_stat(cg, 3, &st), 0);
    assert_int_equal(st.pids_used, 2);
    assert_int_equal(st.memory_limit_bytes, 32 << 20);
    assert_int_equal(cgroup_remove(cg, 3), -EBUSY);
    assert_int_equal(cgroup_freeze(cg, 3, true), 0);
    for (int i = 0; i < 200 && !cgroup_is_frozen(cg, 3); i++)
        usleep(1000);
    assert_true(cgroup_is_frozen(cg, 3));
    assert_int_equal(cgroup_kill(cg, 3), 0); /* frozen as it is */
    assert_int_equal(pid_wait(pidfd, &code, &status), 0);
    assert_int_equal(status, SIGKILL);
    close(pidfd);
    await_pids(cg, 0);
    for (int i = 0; i < 200 && cgroup_remove(cg, 3) == -EBUSY; i++)
        usleep(5000);
    assert_int_equal(cgroup_remove(cg, 3), 0);
    assert_int_equal(cgroup_remove_base(cg), 0);
    cgroup_close(cg);
}

/* --- btrfs on a loop device ---------------------------------------------------------------------- */

static char image[] = "/tmp/cay-test-XXXXXX";

static int fill_file(int dir_fd, const char *name, unsigned mib)
{
    static char block[1 << 20];
    CLEANUP_CLOSE int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    memset(block, 'x', sizeof(block));
    for (unsigned i = 0; i < mib; i++) {
        int rc = io_write_full(fd, block, sizeof(block));
        if (rc < 0)
            return -rc;
    }
    return fsync(fd) < 0 ? errno : 0;
}

static int use_btrfs(void)
{
    char device[32], again[32];
    uint64_t id, used = 0, limit = 0;
    if (unshare(CLONE_NEWNS) < 0 || mnt_make_private() < 0)
        return 1;
    CLEANUP_CLOSE int file = open(image, O_RDWR | O_CLOEXEC);
    CLEANUP_CLOSE int loop = loopdev_attach(file, device);
    if (loop < 0)
        return 2;
    CLEANUP_CLOSE int same = loopdev_find(file, again);
    if (same < 0 || strcmp(device, again) != 0)
        return 3;
    if (mount(device, "/mnt", "btrfs", MS_NOSUID | MS_NODEV, NULL) < 0)
        return 4;
    int root = open("/mnt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!btrfs_is(root) || btrfs_quota_is_on(root) != 0)
        return 5;
    if (btrfs_quota_on(root) < 0 || btrfs_quota_is_on(root) != 1)
        return 6;
    if (btrfs_subvolume_create(root, "a") < 0 || btrfs_subvolume_create(root, "a") != -EEXIST)
        return 7;
    int a = openat(root, "a", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (btrfs_limit(a, 16 << 20) < 0 || btrfs_subvolume_id(a, &id) < 0 || id < 256)
        return 8;
    if (fill_file(a, "small", 4) != 0 || fill_file(a, "big", 40) != EDQUOT)
        return 9;
    if (btrfs_usage(root, id, &used, &limit) < 0 || limit != 16 << 20 || used < 4 << 20 ||
        used > limit)
        return 10;
    if (btrfs_snapshot(a, root, "b", false) < 0 || faccessat(root, "b/small", F_OK, 0) < 0)
        return 11;
    if (btrfs_subvolume_destroy(root, "a") < 0 || faccessat(root, "a", F_OK, 0) == 0)
        return 12;
    if (btrfs_subvolume_destroy(root, "none") != -ENOENT)
        return 13;
    if (ftruncate(file, 400 << 20) < 0 || loopdev_grow(loop) < 0 || btrfs_grow(root) < 0)
        return 14;
    close(a);
    close(root);
    return umount2("/mnt", 0) < 0 ? 15 : 0;
}

static void test_btrfs_on_a_loop_device(void **state)
{
    char command[128], device[32];
    NEEDS_ROOT;
    int fd = mkstemp(image);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 256 << 20), 0);
    snprintf(command, sizeof(command), "mkfs.btrfs -q %s >/dev/null 2>&1", image);
    if (access("/dev/loop-control", F_OK) < 0 || system(command) != 0) {
        unlink(image);
        SKIP("needs loop devices and mkfs.btrfs");
    }
    int rc = in_child(use_btrfs);
    int left = -ENOENT; /* it gives itself back, a moment after the last close */
    for (int i = 0; i < 100 && (left = loopdev_find(fd, device)) >= 0; i++) {
        close(left);
        usleep(10000);
    }
    unlink(image);
    close(fd);
    assert_int_equal(rc, 0);
    assert_int_equal(left, -ENOENT);
}

/* --- ns ------------------------------------------------------------------------------------------ */

static void test_user_namespace_by_maps(void **state)
{
    int pipes[2], pidfd = -1, code, status;
    NEEDS_ROOT;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = ns_fork(CLONE_NEWUSER, SIGCHLD, &pidfd);
    if (pid == 0) {
        char go;
        if (io_read_full(pipes[0], &go, 1) < 0 || ns_become(5, 6) < 0)
            _exit(1);
        _exit(getuid() == 5 && getegid() == 6 ? 0 : 2);
    }
    assert_int_equal(ns_write_maps(pid, 2000000000, 65536), 0);
    int ns = ns_open(pid, "user");
    assert_true(ns >= 0);
    close(ns);
    assert_int_equal(ns_open(pid, "nonsense"), -ENOENT);
    assert_int_equal(write(pipes[1], "g", 1), 1);
    assert_int_equal(pid_wait(pidfd, &code, &status), 0);
    assert_int_equal(status, 0);
    close(pidfd);
    close(pipes[0]);
    close(pipes[1]);
}

/* A page of the file waits in a pipe, which its child empties after half a second. */
static int memory_file_held_elsewhere(pid_t *child)
{
    static const char page[4096] = {1};
    int pipes[2], fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    off_t at = 0;

    assert_true(fd >= 0);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(write(fd, page, sizeof(page)), (ssize_t)sizeof(page));
    assert_int_equal(splice(fd, &at, pipes[1], NULL, sizeof(page), 0), (ssize_t)sizeof(page));
    *child = fork();
    assert_true(*child >= 0);
    if (*child == 0) {
        char got[sizeof(page)];

        poll(NULL, 0, 500);
        _exit(io_read_full(pipes[0], got, sizeof(got)) < 0);
    }
    close(pipes[0]);
    close(pipes[1]);
    return fd;
}

static void test_a_memory_file_whose_pages_are_held_for_a_moment_is_sealed(void **state)
{
    pid_t child;
    int status, fd = memory_file_held_elsewhere(&child);

    (void)state;
    /* The control: a single call is refused. */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EBUSY);
    assert_int_equal(memfd_seal(fd), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(write(fd, "x", 1), -1);
    close(fd);

    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 4096), 0);
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(mapped != MAP_FAILED);
    assert_int_equal(memfd_seal(fd), -EBUSY);
    munmap(mapped, 4096);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_memory_file_whose_pages_are_held_for_a_moment_is_sealed),
        cmocka_unit_test(test_fdpass_carries_descriptors),
        cmocka_unit_test(test_fdpass_refuses_what_is_cut),
        cmocka_unit_test(test_pid_reports_how_it_ended),
        cmocka_unit_test(test_pid_of_somebody_elses_child),
        cmocka_unit_test(test_caps_survive_exec_and_nothing_else),
        cmocka_unit_test(test_open_beneath_follows_nothing),
        cmocka_unit_test(test_detached_trees),
        cmocka_unit_test(test_network_is_sealed),
        cmocka_unit_test(test_network_is_proxied),
        cmocka_unit_test(test_network_is_limited),
        cmocka_unit_test(test_host_filter),
        cmocka_unit_test(test_filter),
        cmocka_unit_test(test_filter_file),
        cmocka_unit_test(test_cgroup_freezes_kills_and_goes),
        cmocka_unit_test(test_btrfs_on_a_loop_device),
        cmocka_unit_test(test_user_namespace_by_maps),
    };
    return cmocka_run_group_tests_name("sys", tests, NULL, NULL);
}
