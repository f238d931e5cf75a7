#include "cayd/confine.h"

#include "base/util.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static const int allowed[] = {
    /* descriptors */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(fcntl),
    SCMP_SYS(dup),
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2),
    /* the database's files, the keys' and nothing else that its user could reach */
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(stat),
    SCMP_SYS(lstat),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(statx),
    SCMP_SYS(access),
    SCMP_SYS(faccessat),
    SCMP_SYS(faccessat2),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(fchmod),
    SCMP_SYS(umask),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fallocate),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(flock),
    /* sockets; socket itself is below */
    SCMP_SYS(connect),
    SCMP_SYS(accept4),
    SCMP_SYS(sendto),
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendmsg),
    SCMP_SYS(recvmsg),
    SCMP_SYS(shutdown),
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    /* memory */
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(madvise),
    SCMP_SYS(msync),
    /* threads; clone itself is below */
    SCMP_SYS(futex),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq),
    SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(gettid),
    SCMP_SYS(getpid),
    SCMP_SYS(tgkill),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sigaltstack),
    /* time, numbers, oneself */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time),
    SCMP_SYS(getrandom),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(getrlimit),
    SCMP_SYS(setrlimit),
    SCMP_SYS(prlimit64),
    SCMP_SYS(sysinfo),
    SCMP_SYS(uname),
};

static int allow_if(scmp_filter_ctx f, int call, struct scmp_arg_cmp only)
{
    return seccomp_rule_add(f, SCMP_ACT_ALLOW, call, 1, only);
}

/* Calls that are allowed in one form. clone3's flags are in memory, which a filter cannot read: ENOSYS
 * makes the C library use clone, of which only the making of threads passes. */
static int allow_forms(scmp_filter_ctx f)
{
    int rc;

    if ((rc = allow_if(f, SCMP_SYS(socket), SCMP_A0(SCMP_CMP_EQ, AF_UNIX))) < 0 ||
        (rc = allow_if(f, SCMP_SYS(clone),
                       SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD))) < 0 ||
        (rc = allow_if(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_EQ, FIONBIO))) < 0 ||
        (rc = allow_if(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_EQ, FIOCLEX))) < 0 ||
        (rc = allow_if(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_EQ, FIONREAD))) < 0 ||
        (rc = allow_if(f, SCMP_SYS(ioctl), SCMP_A1(SCMP_CMP_EQ, TIOCOUTQ))) < 0 ||
        (rc = allow_if(f, SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME))) < 0)
        return rc;
    return seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static int fill(scmp_filter_ctx f)
{
    int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

    for (size_t i = 0; i < ARRAY_SIZE(allowed) && rc == 0; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, allowed[i], 0);
    return rc == 0 ? allow_forms(f) : rc;
}

int confine_self(void)
{
    scmp_filter_ctx f;
    int rc;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!f)
        return -ENOMEM;
    rc = fill(f);
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    return rc;
}
