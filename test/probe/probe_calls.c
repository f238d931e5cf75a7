/* Neighbours of the calls in probe_kernel.c (class 7): the next number, the other flag, and the same value
 * with something in the upper half of the register, where the kernel does not look but a filter may. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#define HIGH (1L << 32)

#define CALL_CASE(fn, name, ...)                      \
    static void fn(struct finding *f)                 \
    {                                                 \
        found_reached(f, name, syscall(__VA_ARGS__)); \
    }

/* A family or protocol that is refused looks like one that the kernel does not have. */
#define SOCKET_CASE(fn, name, ...)                 \
    static void fn(struct finding *f)              \
    {                                              \
        found_call(f, name, syscall(__VA_ARGS__)); \
    }

CALL_CASE(uring_enter, "io_uring_enter", 426, -1, 0, 0, 0, NULL, 0)
CALL_CASE(uring_register, "io_uring_register", 427, -1, 0, NULL, 0)
CALL_CASE(bpf_prog, "bpf(PROG_LOAD)", SYS_bpf, 5, NULL, 0)
CALL_CASE(bpf_next, "bpf(MAP_GET_NEXT_ID)", SYS_bpf, 12, NULL, 0)
CALL_CASE(old_module, "init_module", SYS_init_module, NULL, 0, "")
CALL_CASE(no_module, "delete_module", SYS_delete_module, "cay_probe_no_such", O_NONBLOCK)
CALL_CASE(kexec_file, "kexec_file_load", SYS_kexec_file_load, -1, -1, 0, NULL, 0)
CALL_CASE(swap_on, "swapon", SYS_swapon, "/cay-probe-no-such-file", 0)
CALL_CASE(quota_fd, "quotactl_fd", 443, -1, 0, 0, NULL)
CALL_CASE(fanotify, "fanotify_init", SYS_fanotify_init, 0x200 /* REPORT_FID */, O_RDONLY)
CALL_CASE(time_of_day, "settimeofday", SYS_settimeofday, NULL, NULL)
CALL_CASE(ldt, "modify_ldt", SYS_modify_ldt, 0, NULL, 0)
CALL_CASE(join_keyring, "keyctl(JOIN_SESSION_KEYRING)", SYS_keyctl, 1, NULL)
CALL_CASE(old_stat, "ustat", SYS_ustat, 0, NULL)
CALL_CASE(fs_pick, "fspick", 433, AT_FDCWD, "/", 0)
CALL_CASE(fs_mount, "fsmount", 432, -1, 0, 0)
CALL_CASE(fs_config, "fsconfig", 431, -1, 0, NULL, NULL, 0)
CALL_CASE(tree_attr, "open_tree_attr", 467, AT_FDCWD, "/", 1, NULL, 0)
SOCKET_CASE(vsock_high, "socket(AF_VSOCK | 1 << 32)", SYS_socket, HIGH | AF_VSOCK, SOCK_STREAM, 0)
SOCKET_CASE(packet_high, "socket(AF_PACKET | 1 << 32)", SYS_socket, HIGH | AF_PACKET, SOCK_RAW, 0)
SOCKET_CASE(raw_high, "socket(AF_INET, SOCK_RAW | 1 << 32)", SYS_socket, AF_INET, HIGH | SOCK_RAW,
            1)
SOCKET_CASE(nf_high, "socket(NETLINK_NETFILTER | 1 << 32)", SYS_socket, AF_NETLINK, SOCK_RAW,
            HIGH | 12)
SOCKET_CASE(vsock_pair, "socketpair(AF_TIPC)", SYS_socketpair, 30, SOCK_STREAM, 0, (int[2]){0})
SOCKET_CASE(kcm, "socket(AF_KCM)", SYS_socket, 41, SOCK_DGRAM, 0)
SOCKET_CASE(rds, "socket(AF_RDS)", SYS_socket, 21, SOCK_SEQPACKET, 0)
SOCKET_CASE(tipc, "socket(AF_TIPC)", SYS_socket, 30, SOCK_STREAM, 0)
SOCKET_CASE(can, "socket(AF_CAN)", SYS_socket, 29, SOCK_RAW, 1)
SOCKET_CASE(smc, "socket(AF_SMC)", SYS_socket, 43, SOCK_STREAM, 0)
SOCKET_CASE(key, "socket(AF_KEY)", SYS_socket, 15, SOCK_RAW, 2)
SOCKET_CASE(xfrm, "socket(NETLINK_XFRM)", SYS_socket, AF_NETLINK, SOCK_RAW, 6)
SOCKET_CASE(generic, "socket(NETLINK_GENERIC)", SYS_socket, AF_NETLINK, SOCK_RAW, 16)
SOCKET_CASE(sock_diag, "socket(NETLINK_SOCK_DIAG)", SYS_socket, AF_NETLINK, SOCK_RAW, 4)
SOCKET_CASE(mptcp, "socket(MPTCP)", SYS_socket, AF_INET, SOCK_STREAM, 262)
SOCKET_CASE(udplite, "socket(UDPLITE)", SYS_socket, AF_INET, SOCK_DGRAM, 136)
SOCKET_CASE(raw_packet, "socket(SOCK_PACKET)", SYS_socket, AF_INET, SOCK_PACKET, 0)
SOCKET_CASE(sctp6, "socket(AF_INET6, SCTP)", SYS_socket, AF_INET6, SOCK_SEQPACKET, 132)

static void same_host_name(struct finding *f)
{
    char name[65] = "";

    gethostname(name, sizeof(name) - 1);
    found_call(f, "sethostname", sethostname(name, strlen(name)));
}

static void same_domain_name(struct finding *f)
{
    found_call(f, "setdomainname", syscall(SYS_setdomainname, "(none)", 6));
}

/* Flags that are namespaces; the child of a success ends at once. */
static void clone_flag(struct finding *f, unsigned long flags, const char *name)
{
    long r = syscall(SYS_clone, flags | 17 /* SIGCHLD */, 0, 0, 0, 0);

    if (r == 0)
        _exit(0);
    found_call(f, name, r);
}

#define CLONE_CASE(fn, flags)                      \
    static void fn(struct finding *f)              \
    {                                              \
        clone_flag(f, flags, "clone(" #flags ")"); \
    }
CLONE_CASE(clone_net, CLONE_NEWNET)
CLONE_CASE(clone_mount, CLONE_NEWNS)
CLONE_CASE(clone_pid, CLONE_NEWPID)
CLONE_CASE(clone_uts, CLONE_NEWUTS)
CLONE_CASE(clone_ipc, CLONE_NEWIPC)
CLONE_CASE(clone_cgroup, CLONE_NEWCGROUP)
CLONE_CASE(clone_high, (unsigned long)(HIGH | CLONE_NEWUSER))

#define UNSHARE_CASE(fn, flag)                              \
    static void fn(struct finding *f)                       \
    {                                                       \
        found_call(f, "unshare(" #flag ")", unshare(flag)); \
    }
UNSHARE_CASE(unshare_ipc, CLONE_NEWIPC)
UNSHARE_CASE(unshare_uts, CLONE_NEWUTS)
UNSHARE_CASE(unshare_cgroup, CLONE_NEWCGROUP)
UNSHARE_CASE(unshare_time, 0x80 /* CLONE_NEWTIME */)

static void console_selection(struct finding *f)
{
    char what = 6; /* TIOCL_GETSHIFTSTATE: only asks */
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY);

    if (fd < 0)
        found_none(f, "no terminal: %s", strerror(errno));
    else
        found_reached(f, "TIOCLINUX", ioctl(fd, TIOCLINUX, &what));
}

static void tty_inject_high(struct finding *f)
{
    int fd = probe_terminal();

    if (fd < 0)
        found_none(f, "no terminal: %s", strerror(errno));
    else
        found_call(f, "TIOCSTI | 1 << 32", syscall(SYS_ioctl, fd, HIGH | TIOCSTI, "#"));
}

const struct probe_case probe_calls_cases[] = {
    {"kernel.io_uring_enter", "the next call of io_uring", uring_enter, 1},
    {"kernel.io_uring_register", "and the third", uring_register, 1},
    {"kernel.bpf_prog", "load a program into the kernel", bpf_prog, 1},
    {"kernel.bpf_next", "walk the host's maps", bpf_next, 1},
    {"kernel.init_module", "load a module from memory", old_module, 1},
    {"kernel.delete_module", "unload a module", no_module, 1},
    {"kernel.kexec_file", "load another kernel from a file", kexec_file, 1},
    {"kernel.swapon", "swap to a file", swap_on, 1},
    {"kernel.quotactl_fd", "change disk quotas by descriptor", quota_fd, 1},
    {"kernel.fanotify", "watch a file system", fanotify, 1},
    {"kernel.settimeofday", "set the clock the old way", time_of_day, 1},
    {"kernel.modify_ldt", "segments of one's own", ldt, 1},
    {"kernel.join_keyring", "another session keyring", join_keyring, 1},
    {"kernel.ustat", "an obsolete call", old_stat, 1},
    {"kernel.hostname", "set the host name", same_host_name, 1},
    {"kernel.domainname", "set the domain name", same_domain_name, 1},
    {"kernel.tioclinux", "the console's selection", console_selection, 0},
    {"kernel.tiocsti_high", "TIOCSTI with an upper half", tty_inject_high, 1},
    {"mount.fspick", "the new mount API: reconfigure", fs_pick, 1},
    {"mount.fsmount", "the new mount API: a mount", fs_mount, 1},
    {"mount.fsconfig", "the new mount API: parameters", fs_config, 1},
    {"mount.open_tree_attr", "the new mount API: clone and change", tree_attr, 1},
    {"ns.clone_net", "a network namespace by clone", clone_net, 1},
    {"ns.clone_mount", "a mount namespace by clone", clone_mount, 1},
    {"ns.clone_pid", "a pid namespace by clone", clone_pid, 1},
    {"ns.clone_uts", "a uts namespace by clone", clone_uts, 1},
    {"ns.clone_ipc", "an ipc namespace by clone", clone_ipc, 1},
    {"ns.clone_cgroup", "a cgroup namespace by clone", clone_cgroup, 1},
    {"ns.clone_high", "a user namespace by clone, with an upper half", clone_high, 1},
    {"ns.ipc", "an ipc namespace", unshare_ipc, 1},
    {"ns.uts", "a uts namespace", unshare_uts, 1},
    {"ns.cgroup", "a cgroup namespace", unshare_cgroup, 1},
    {"ns.time", "a time namespace", unshare_time, 1},
    {"net.vsock_high", "AF_VSOCK with an upper half", vsock_high, 1},
    {"net.packet_high", "AF_PACKET with an upper half", packet_high, 1},
    {"net.raw_high", "SOCK_RAW with an upper half", raw_high, 1},
    {"net.netfilter_high", "netfilter with an upper half", nf_high, 1},
    {"net.socketpair", "another family by socketpair", vsock_pair, 1},
    {"net.kcm", "AF_KCM", kcm, 1},
    {"net.rds", "AF_RDS", rds, 1},
    {"net.tipc", "AF_TIPC", tipc, 1},
    {"net.can", "AF_CAN", can, 1},
    {"net.smc", "AF_SMC", smc, 1},
    {"net.key", "AF_KEY", key, 1},
    {"net.xfrm", "IPsec policy", xfrm, 1},
    {"net.generic", "generic netlink", generic, 1},
    {"net.sock_diag", "sockets of others", sock_diag, 1},
    {"net.mptcp", "multipath TCP", mptcp, 1},
    {"net.udplite", "UDP-Lite", udplite, 1},
    {"net.sock_packet", "frames by the obsolete SOCK_PACKET", raw_packet, 1},
    {"net.sctp6", "another transport by IPv6", sctp6, 1},
    {0},
};
