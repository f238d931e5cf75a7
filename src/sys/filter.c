/* The lists are data; building them into BPF programs takes milliseconds and is done once, at
 * privd's start, in memory that every start then shares. Nothing is loaded here for privd
 * itself: filter_install is called by a sandbox's first process, as its last step but the
 * execution of cay-init. */

#include "sys/filter_internal.h"

#include "base/ids.h"
#include "base/io.h"
#include "base/test_bypass.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

/* Calls that programs need and that the kernel checks well by itself within a user namespace. A
 * name that this libseccomp does not know is left out: the program then sees ENOSYS, as on an older
 * kernel. io_setup and its like are not here, as what they take is counted for the whole machine
 * (fs.aio-max-nr), nor is memfd_secret, whose pages the kernel can neither move nor reclaim, nor
 * Landlock: each domain is freed, with all of its rules, by an item of its own in the queue of the
 * whole host that filters are freed in (docs/kernel-pools.md), nor copy_file_range, which shares
 * blocks as FICLONE does (refuse_clones). */
/* clang-format off */
static const char *const allowed[] = {
    "accept", "accept4", "access", "alarm", "arch_prctl", "bind", "brk", "cachestat", "capget",
    "capset", "chdir", "chmod", "chown", "chroot", "clock_getres", "clock_gettime",
    "clock_nanosleep", "close", "close_range", "connect", "creat", "dup",
    "dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2",
    "epoll_wait", "eventfd", "eventfd2", "execve", "execveat", "exit", "exit_group",
    "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat",
    "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock",
    "fork", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futex",
    "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "futimesat", "get_mempolicy",
    "get_robust_list", "get_thread_area", "getcpu", "getcwd", "getdents", "getdents64",
    "getegid", "geteuid", "getgid", "getgroups", "getitimer", "getpeername", "getpgid",
    "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid", "getresuid",
    "getrlimit", "getrusage", "getsid", "getsockname", "getsockopt", "gettid", "gettimeofday",
    "getuid", "getxattr", "inotify_add_watch", "inotify_init", "inotify_init1",
    "inotify_rm_watch", "ioctl", "ioprio_get", "ioprio_set", "kcmp", "kill", "lchown",
    "lgetxattr", "link",
    "linkat", "listen", "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr",
    "lstat", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "mincore", "mkdir",
    "mkdirat", "mknod", "mknodat", "mlock", "mlock2",
    "mlockall", "mmap", "mprotect", "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive",
    "mq_timedsend", "mq_unlink", "mremap", "mseal", "msgctl", "msgget", "msgrcv", "msgsnd",
    "msync", "munlock", "munlockall", "munmap", "name_to_handle_at", "nanosleep", "newfstatat",
    "open", "openat", "openat2", "pause", "pidfd_getfd", "pidfd_open", "pidfd_send_signal",
    "pipe", "pipe2", "pkey_alloc", "pkey_free", "pkey_mprotect", "poll", "ppoll", "prctl",
    "pread64", "preadv", "preadv2", "prlimit64", "process_madvise", "process_mrelease",
    "process_vm_readv", "process_vm_writev", "pselect6", "ptrace", "pwrite64", "pwritev",
    "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "recvfrom", "recvmmsg",
    "recvmsg", "remap_file_pages", "removexattr", "rename", "renameat", "renameat2",
    "restart_syscall", "rmdir", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
    "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo",
    "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity", "sched_getattr",
    "sched_getparam", "sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "select",
    "semctl", "semget", "semop", "semtimedop", "sendfile", "sendmmsg", "sendmsg", "sendto",
    "set_mempolicy", "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid",
    "setfsuid", "setgid", "setgroups", "setitimer", "setpgid", "setpriority", "setregid",
    "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setsockopt", "setuid",
    "setxattr", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "sigaltstack", "signalfd",
    "signalfd4", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync",
    "sync_file_range", "syncfs", "sysinfo", "tee", "tgkill", "time", "timer_create",
    "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime", "timerfd_create",
    "timerfd_gettime", "timerfd_settime", "times", "tkill", "truncate", "umask", "uname",
    "unlink", "unlinkat", "utime", "utimensat", "utimes", "vfork", "vmsplice", "wait4",
    "waitid", "write", "writev",
};
/* clang-format on */

/* Known, and refused as a privileged call is refused, so that programs report it in the usual way.
 * mbind: a policy for each page of a file in memory, which is charged to no process. */
/* clang-format off */
static const char *const denied[] = {
    "acct", "add_key", "adjtimex", "bpf", "clock_adjtime", "clock_settime", "create_module",
    "delete_module", "fanotify_init", "fanotify_mark", "finit_module", "fsconfig", "fsmount",
    "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup",
    "ioperm", "iopl", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mbind",
    "migrate_pages", "modify_ldt", "mount", "mount_setattr", "move_mount", "move_pages",
    "nfsservctl", "open_by_handle_at", "open_tree", "perf_event_open", "pivot_root", "quotactl",
    "quotactl_fd", "reboot", "request_key", "setdomainname", "set_mempolicy_home_node",
    "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2",
    "userfaultfd", "ustat", "uselib", "vhangup", "vserver",
};
/* clang-format on */

#define EPERM_ACTION SCMP_ACT_ERRNO(EPERM)

/* Every namespace but CLONE_NEWTIME, whose bit is part of clone(2)'s exit signal. */
#define CLONE_NEW_ANY                                                                             \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)

static int add_names(scmp_filter_ctx ctx, uint32_t action, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int nr = seccomp_syscall_resolve_name(names[i]);
        if (nr < 0)
            continue;
        int rc = seccomp_rule_add(ctx, action, nr, 0);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* No new namespaces: not by flags that a filter can see, and not by clone3, whose flags are behind
 * a pointer; the C library falls back to clone when clone3 is ENOSYS (the default action). */
static int add_namespaces(scmp_filter_ctx ctx)
{
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEW_ANY, 0));
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(unshare), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEW_ANY | CLONE_NEWTIME, 0));
    for (int bit = 0; rc == 0 && bit < 32; bit++) {
        uint64_t flag = UINT64_C(1) << bit;
        if (flag & CLONE_NEW_ANY)
            rc = seccomp_rule_add(ctx, EPERM_ACTION, SCMP_SYS(clone), 1,
                                  SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
        if (rc == 0 && (flag & (CLONE_NEW_ANY | CLONE_NEWTIME)))
            rc = seccomp_rule_add(ctx, EPERM_ACTION, SCMP_SYS(unshare), 1,
                                  SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag));
    }
    return rc;
}

/* A protocol that is not of its type's has the kernel look for a module, by the host's modprobe. */
static int allow_internet(scmp_filter_ctx ctx, int family)
{
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM};
    static const struct {
        unsigned protocol;
        int type; /* -1: any */
    } protocols[] = {{0, -1},
                     {1 /* icmp */, SOCK_DGRAM},
                     {6 /* tcp */, SOCK_STREAM},
                     {17 /* udp */, SOCK_DGRAM},
                     {58 /* icmpv6 */, SOCK_DGRAM}};
    int rc = 0;

    for (size_t t = 0; rc == 0 && t < ARRAY_SIZE(types); t++) {
        for (size_t p = 0; rc == 0 && p < ARRAY_SIZE(protocols); p++) {
            bool fits = protocols[p].type < 0 || protocols[p].type == types[t];

            rc = seccomp_rule_add(ctx, fits ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPROTONOSUPPORT),
                                  SCMP_SYS(socket), 3, SCMP_A0(SCMP_CMP_EQ, (unsigned)family),
                                  SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, (unsigned)types[t]),
                                  SCMP_A2(SCMP_CMP_EQ, protocols[p].protocol));
        }
        if (rc == 0)
            rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 3,
                                  SCMP_A0(SCMP_CMP_EQ, (unsigned)family),
                                  SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, (unsigned)types[t]),
                                  SCMP_A2(SCMP_CMP_GT, 58));
    }
    if (rc == 0)
        rc = seccomp_rule_add(ctx, EPERM_ACTION, SCMP_SYS(socket), 2,
                              SCMP_A0(SCMP_CMP_EQ, (unsigned)family),
                              SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_RAW));
    return rc;
}

/* Unix, inet (TCP, UDP, ping: no SCTP, DCCP or raw) and route netlink, of which cay-init makes few.
 * vsock above all knows no network namespace. Other families answer as on a kernel without them:
 * programs know how to live with that. */
static int add_sockets(scmp_filter_ctx ctx)
{
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                              SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    if (rc == 0)
        rc = allow_internet(ctx, AF_INET);
    if (rc == 0)
        rc = allow_internet(ctx, AF_INET6);
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(socket), 2,
                              SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), FILTER_IS(2, 0));
    for (uint32_t protocol = 1; rc == 0 && protocol < MAX_LINKS; protocol++)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPROTONOSUPPORT), SCMP_SYS(socket), 2,
                              SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), FILTER_IS(2, protocol));
    for (unsigned family = 0; rc == 0 && family <= AF_NETLINK; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_INET6 || family == AF_NETLINK)
            continue;
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_EQ, family));
    }
    if (rc == 0)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), SCMP_SYS(socket), 1,
                              SCMP_A0(SCMP_CMP_GT, AF_NETLINK));
    return rc;
}

/* Linux, Linux32, their uname26 forms, and the question; not the bits that weaken address
 * randomness. */
static int add_personality(scmp_filter_ctx ctx)
{
    static const uint32_t values[] = {0, 0x0008, 0x20000, 0x20008, 0xffffffff};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(values); i++)
        rc = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
                              SCMP_A0(SCMP_CMP_EQ, values[i]));
    return rc;
}

static int fill_allow_list(scmp_filter_ctx ctx, const struct filter *f)
{
    (void)f;
    int rc = add_names(ctx, SCMP_ACT_ALLOW, allowed, ARRAY_SIZE(allowed));
    if (rc == 0)
        rc = add_names(ctx, EPERM_ACTION, denied, ARRAY_SIZE(denied));
    if (rc == 0)
        rc = add_namespaces(ctx);
    if (rc == 0)
        rc = add_sockets(ctx);
    return rc == 0 ? add_personality(ctx) : rc;
}

static int answer_value(scmp_filter_ctx ctx, int nr, unsigned arg, uint32_t value, int errnum)
{
    const struct scmp_arg_cmp cmp = FILTER_IS(arg, value);
    return seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint16_t)errnum), nr, 1, &cmp);
}

static int deny_value(scmp_filter_ctx ctx, int nr, unsigned arg, uint32_t value)
{
    return answer_value(ctx, nr, arg, value, EPERM);
}

/* Parts of the kernel that few programs ask for and that are chosen by a value: line disciplines of
 * terminals other than the usual one (each is a driver, which the host may load for it), protocols
 * on top of TCP (TLS in the kernel and its like), and who shares a core (which is the host's to
 * schedule). Answered as by a kernel without them. */
static int refuse_rare(scmp_filter_ctx ctx)
{
    const struct scmp_arg_cmp ulp[] = {FILTER_IS(1, IPPROTO_TCP), FILTER_IS(2, TCP_ULP)};
    /* Bridges and VLANs, for which the host's modprobe is started, and where on the host's disk a
     * file is. */
    static const uint32_t requests[] = {0x8940, 0x8941, 0x8982, 0x8983, 0x89a0, 0x89a1};
    int rc = answer_value(ctx, SCMP_SYS(ioctl), 1, TIOCSETD, EINVAL);
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(requests); i++)
        rc = answer_value(ctx, SCMP_SYS(ioctl), 1, requests[i], ENOTTY);
    if (rc == 0)
        rc = answer_value(ctx, SCMP_SYS(ioctl), 1, FS_IOC_FIEMAP, EOPNOTSUPP);
    if (rc == 0)
        rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(ENOPROTOOPT), SCMP_SYS(setsockopt), 2, ulp);
    return rc == 0 ? answer_value(ctx, SCMP_SYS(prctl), 0, PR_SCHED_CORE, EINVAL) : rc;
}

/* Blocks that several files share, or one file many times: they cost the sandbox next to nothing,
 * and the file system, which counts who has them, seconds in which it serves no one else when the
 * sandbox ends (docs/kernel-pools.md). Answered as by a file system without them: cp and its like
 * copy then. */
static int refuse_clones(scmp_filter_ctx ctx)
{
    static const uint32_t requests[] = {FICLONE, FICLONERANGE, FIDEDUPERANGE};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(requests); i++)
        rc = answer_value(ctx, SCMP_SYS(ioctl), 1, requests[i], EOPNOTSUPP);
    return rc;
}

/* Programs for the kernel's BPF machine, each with memory of a pool that the whole host shares
 * (net.core.bpf_jit_limit) and a deferred free of its own: enough of them, freed together, stop the
 * host for good (docs/kernel-pools.md). They attach to sockets of every family. ENOPROTOOPT, as on
 * a kernel without them: libpcap and its like then filter by themselves. The options that lock or
 * detach a filter are open: they make none. Tests: kernel.filter_*. */
static int refuse_socket_filters(scmp_filter_ctx ctx)
{
    static const uint32_t options[] = {SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
                                       SO_ATTACH_REUSEPORT_EBPF};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(options); i++) {
        const struct scmp_arg_cmp cmp[] = {FILTER_IS(1, SOL_SOCKET), FILTER_IS(2, options[i])};
        rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(ENOPROTOOPT), SCMP_SYS(setsockopt), 2, cmp);
    }
    return rc;
}

/* System call filters of a tenant's own are such programs too: EINVAL, as on a kernel that has
 * none. All of seccomp(2) answers so: its questions then agree, and strict mode is EINVAL for every
 * process that has a filter. Tests: kernel.seccomp*. */
static int refuse_call_filters(scmp_filter_ctx ctx)
{
    const struct scmp_arg_cmp set = FILTER_IS(0, PR_SET_SECCOMP);
    int rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(seccomp), 0);
    return rc == 0 ? seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl), 1, &set)
                   : rc;
}

/* The operation and its flags are in registers, which nothing changes while the caller waits for
 * the answer; the program behind the pointer does not matter to it. Questions, which make nothing,
 * pass. The answers: agent/filters.h. */
static int notify_of_call_filters(scmp_filter_ctx ctx)
{
    const struct scmp_arg_cmp by_seccomp = FILTER_IS(0, SECCOMP_SET_MODE_FILTER);
    const struct scmp_arg_cmp by_prctl = FILTER_IS(0, PR_SET_SECCOMP);
    int rc = seccomp_rule_add_array(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(seccomp), 1, &by_seccomp);
    return rc == 0 ? seccomp_rule_add_array(ctx, SCMP_ACT_NOTIFY, SCMP_SYS(prctl), 1, &by_prctl)
                   : rc;
}

/* Setting the core size limit says yes and does nothing: no core is written in any case, and with
 * any value but the one set at the start a host that pipes cores into a program would run it. */
static int keep_core_limit(scmp_filter_ctx ctx)
{
    const struct scmp_arg_cmp set = {0, SCMP_CMP_MASKED_EQ, 0xffffffff, RLIMIT_CORE};
    const struct scmp_arg_cmp get_or_set[] = {{1, SCMP_CMP_MASKED_EQ, 0xffffffff, RLIMIT_CORE},
                                              {2, SCMP_CMP_NE, 0, 0}};
    int rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(setrlimit), 1, &set);
    if (rc == 0)
        rc = seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO(0), SCMP_SYS(prlimit64), 2, get_or_set);
    return rc;
}

/* Pages of the template's files, and of the host's /usr, are in memory once for all. Advice that
 * has them thrown away is taken and does nothing: it would slow every neighbour, and tell it
 * something. Each sandbox's own pages go when its limit is reached. Tests: share.page_cache,
 * share.page_out. */
static int keep_pages(scmp_filter_ctx ctx)
{
    int rc = answer_value(ctx, SCMP_SYS(fadvise64), 3, POSIX_FADV_DONTNEED, 0);
    if (rc == 0)
        rc = answer_value(ctx, SCMP_SYS(madvise), 2, MADV_PAGEOUT, 0);
    return rc == 0 ? answer_value(ctx, SCMP_SYS(process_madvise), 3, MADV_PAGEOUT, EINVAL) : rc;
}

static int fill_arguments(scmp_filter_ctx ctx, const struct filter *f)
{
    /* The agent has this id so that prlimit and its like, which go by equal ids, cannot reach
     * it. */
    static const struct {
        int nr;
        unsigned args;
    } setters[] = {
        {SCMP_SYS(setuid), 1},   {SCMP_SYS(setgid), 1},    {SCMP_SYS(setreuid), 2},
        {SCMP_SYS(setregid), 2}, {SCMP_SYS(setresuid), 3}, {SCMP_SYS(setresgid), 3},
        {SCMP_SYS(setfsuid), 1}, {SCMP_SYS(setfsgid), 1},
    };
    /* Input pushed into a terminal, and the console's selection: no way to the other side of a
     * pty. */
    int rc = deny_value(ctx, SCMP_SYS(ioctl), 1, TIOCSTI);
    if (rc == 0)
        rc = deny_value(ctx, SCMP_SYS(ioctl), 1, TIOCLINUX);
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(setters); i++)
        for (unsigned arg = 0; rc == 0 && arg < setters[i].args; arg++)
            rc = deny_value(ctx, setters[i].nr, arg, f->reserved_id);
    if (rc == 0)
        rc = refuse_socket_filters(ctx);
    if (rc == 0)
        rc = f->notifies ? notify_of_call_filters(ctx) : refuse_call_filters(ctx);
    if (rc == 0)
        rc = refuse_rare(ctx);
    if (rc == 0)
        rc = refuse_clones(ctx);
    if (rc == 0)
        rc = keep_pages(ctx);
    if (rc == 0)
        rc = filter_refuse_pools(ctx);
    if (rc == 0)
        rc = filter_send_netlink(ctx, f->netlink_pass);
    return rc == 0 ? keep_core_limit(ctx) : rc;
}

/* libseccomp 2.5 writes programs to descriptors only. */
static int export_program(scmp_filter_ctx ctx, struct sock_fprog *out)
{
    struct stat st;
    CLEANUP_CLOSE int fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = seccomp_export_bpf(ctx, fd);
    if (rc < 0)
        return rc;
    if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -errno;
    if (st.st_size <= 0 || (size_t)st.st_size > BPF_MAXINSNS * sizeof(struct sock_filter))
        return -E2BIG;
    CLEANUP_FREE struct sock_filter *code = malloc((size_t)st.st_size);
    if (!code)
        return -ENOMEM;
    rc = io_read_full(fd, code, (size_t)st.st_size);
    if (rc < 0)
        return rc;
    out->len = (unsigned short)((size_t)st.st_size / sizeof(struct sock_filter));
    out->filter = TAKE_PTR(code);
    return 0;
}

static int build(uint32_t action, int (*fill)(scmp_filter_ctx ctx, const struct filter *f),
                 const struct filter *f, struct sock_fprog *out)
{
    scmp_filter_ctx ctx = seccomp_init(action);
    if (!ctx)
        return -ENOMEM;
    /* int 0x80 is another architecture, x32 a number range of this one: both end the process. */
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree */
    if (rc == 0)
        rc = fill(ctx, f);
    if (rc == 0)
        rc = export_program(ctx, out);
    seccomp_release(ctx);
    return rc;
}

int filter_build(uint32_t reserved_id, bool notifies, struct filter *out)
{
    struct filter f = {.reserved_id = reserved_id, .notifies = notifies};
    ids_random_bytes(f.netlink_pass, sizeof(f.netlink_pass));
    int rc = build(SCMP_ACT_ERRNO(ENOSYS), fill_allow_list, &f, &f.programs[0]);
    if (rc == 0)
        rc = build(SCMP_ACT_ALLOW, fill_arguments, &f, &f.programs[1]);
    if (rc < 0)
        filter_free(&f);
    else
        *out = f;
    return rc;
}

void filter_free(struct filter *f)
{
    for (int i = 0; i < FILTER_PROGRAMS; i++) {
        free(f->programs[i].filter);
        f->programs[i] = (struct sock_fprog){0};
    }
}

int filter_install(const struct filter *f, int *listener_fd)
{
    *listener_fd = -1;
    /* The argument filter last: it refuses further filters, and the allow list lets this call
     * through. */
    for (int i = 0; i < FILTER_PROGRAMS; i++) {
        if (TEST_BYPASS(SECCOMP) || (i > 0 && TEST_BYPASS(SECCOMP_ARGUMENTS)))
            continue;
        long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, filter_flags(i), &f->programs[i]);
        if (rc < 0)
            return -errno;
        if (i > 0)
            *listener_fd = (int)rc;
    }
    return 0;
}
