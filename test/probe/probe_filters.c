/* Filters of one's own (class 7): programs of the kernel's BPF machine that any user may attach to a socket
 * or to itself. Each case attaches one, which ends with its process; filling what they share would stop the
 * machine (docs/kernel-pools.md). */
#include "probe.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIGH (1L << 32)

static struct sock_filter pass_all[] = {{BPF_RET | BPF_K, 0, 0, 0x7fff0000 /* all, or ALLOW */}};
static struct sock_fprog program = {1, pass_all};

static void attach(struct finding *f, int family, int type, long level, long option)
{
    int on = 1, fd = socket(family, type, 0);

    if (fd < 0) {
        found_none(f, "no such socket: %s", strerror(errno));
        return;
    }
    if (option == SO_ATTACH_REUSEPORT_CBPF)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    found_call(f, "setsockopt",
               syscall(SYS_setsockopt, fd, level, option, &program, sizeof(program)));
}

#define ATTACH_CASE(fn, family, type, option)        \
    static void fn(struct finding *f)                \
    {                                                \
        attach(f, family, type, SOL_SOCKET, option); \
    }
ATTACH_CASE(on_unix, AF_UNIX, SOCK_STREAM, SO_ATTACH_FILTER)
ATTACH_CASE(on_unix_datagram, AF_UNIX, SOCK_DGRAM, SO_ATTACH_FILTER)
ATTACH_CASE(on_tcp, AF_INET, SOCK_STREAM, SO_ATTACH_FILTER)
ATTACH_CASE(on_udp6, AF_INET6, SOCK_DGRAM, SO_ATTACH_FILTER)
ATTACH_CASE(on_group, AF_INET, SOCK_DGRAM, SO_ATTACH_REUSEPORT_CBPF)
ATTACH_CASE(high_option, AF_UNIX, SOCK_STREAM, HIGH | SO_ATTACH_FILTER)

static void high_level(struct finding *f)
{
    attach(f, AF_UNIX, SOCK_STREAM, HIGH | SOL_SOCKET, SO_ATTACH_FILTER);
}

/* An eBPF program has to be loaded first, so a descriptor that is none stands for it: a kernel that looks
 * at it says EBADF. */
static void attach_loaded(struct finding *f, int option)
{
    int none = -1, on = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);

    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    if (setsockopt(fd, SOL_SOCKET, option, &none, sizeof(none)) < 0 && errno == ENOPROTOOPT)
        found_refused(f, "setsockopt: %s", strerror(errno));
    else
        found_open(f, "setsockopt looked at the program: %s", strerror(errno));
}

static void loaded(struct finding *f)
{
    attach_loaded(f, SO_ATTACH_BPF);
}

static void loaded_on_group(struct finding *f)
{
    attach_loaded(f, SO_ATTACH_REUSEPORT_EBPF);
}

static void by_seccomp(struct finding *f)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    found_call(f, "seccomp(SET_MODE_FILTER)",
               syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
}

static void by_seccomp_high(struct finding *f)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    found_call(f, "seccomp(SET_MODE_FILTER | 1 << 32)",
               syscall(SYS_seccomp, HIGH | SECCOMP_SET_MODE_FILTER, 0, &program));
}

static void by_prctl(struct finding *f)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    found_call(f, "prctl(PR_SET_SECCOMP)", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void by_prctl_high(struct finding *f)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    found_call(f, "prctl(PR_SET_SECCOMP | 1 << 32)",
               syscall(SYS_prctl, HIGH | PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
}

/* A filter with a listener: a descriptor besides the program. */
static void with_listener(struct finding *f)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    found_call(
        f, "seccomp(NEW_LISTENER)",
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
}

const struct probe_case probe_filters_cases[] = {
    {"kernel.filter_unix", "a packet filter on a unix socket: memory that all share", on_unix, 1},
    {"kernel.filter_datagram", "on a unix datagram socket", on_unix_datagram, 1},
    {"kernel.filter_tcp", "on a TCP socket", on_tcp, 1},
    {"kernel.filter_udp6", "on a UDP socket of IPv6", on_udp6, 1},
    {"kernel.filter_reuseport", "on a group of sockets of one port", on_group, 1},
    {"kernel.filter_high", "with something in the upper half of the option", high_option, 1},
    {"kernel.filter_level_high", "in the upper half of the level", high_level, 1},
    {"kernel.filter_bpf", "a loaded program on a socket", loaded, 1},
    {"kernel.filter_reuseport_bpf", "on a group of sockets", loaded_on_group, 1},
    {"kernel.seccomp", "a system call filter of one's own", by_seccomp, 1},
    {"kernel.seccomp_high", "with something in the upper half of the operation", by_seccomp_high,
     1},
    {"kernel.seccomp_prctl", "by the older call", by_prctl, 1},
    {"kernel.seccomp_prctl_high", "by that, with something in the upper half", by_prctl_high, 1},
    {"kernel.seccomp_listener", "one that asks a program of one's own", with_listener, 1},
    {NULL, NULL, NULL, 0},
};
