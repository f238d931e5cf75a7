/* A filter of system calls: the list that all confined daemons share, then the caller's own.
 * confine_install is called once, before threads are started, since a filter holds for its thread
 * and those that the thread makes. no_new_privs comes first: without it the kernel takes no filter
 * from a process without privilege. Another architecture's calls end the process; all that is not
 * listed is EPERM. */

#include "base/confine.h"

#include "base/util.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static const int common[] = {
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

/* Calls that are allowed in one form. clone3's flags are in memory, which a filter cannot read:
 * ENOSYS makes the C library use clone, of which only the making of threads passes. */
static const struct confine_form common_forms[] = {
    {SCMP_SYS(socket), 0, CONFINE_ANY_BITS, AF_UNIX},
    {SCMP_SYS(clone), 0, CLONE_THREAD, CLONE_THREAD},
    {SCMP_SYS(ioctl), 1, CONFINE_ANY_BITS, FIONBIO},
    {SCMP_SYS(ioctl), 1, CONFINE_ANY_BITS, FIOCLEX},
    {SCMP_SYS(ioctl), 1, CONFINE_ANY_BITS, FIONREAD},
    {SCMP_SYS(ioctl), 1, CONFINE_ANY_BITS, TIOCOUTQ},
    {SCMP_SYS(prctl), 0, CONFINE_ANY_BITS, PR_SET_NAME},
};

static int add_form(scmp_filter_ctx f, const struct confine_form *form)
{
    struct scmp_arg_cmp only = {.arg = form->arg};

    if (form->mask == CONFINE_ANY_BITS) {
        only.op = SCMP_CMP_EQ;
        only.datum_a = form->value;
    } else {
        only.op = SCMP_CMP_MASKED_EQ;
        only.datum_a = form->mask;
        only.datum_b = form->value;
    }
    return seccomp_rule_add(f, SCMP_ACT_ALLOW, form->call, 1, only);
}

static int add(scmp_filter_ctx f, const struct confine_list *list)
{
    int rc = 0;

    for (size_t i = 0; i < list->n_calls && rc == 0; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, list->calls[i], 0);
    for (size_t i = 0; i < list->n_forms && rc == 0; i++)
        rc = add_form(f, &list->forms[i]);
    return rc;
}

static int fill(scmp_filter_ctx f, const struct confine_list *own)
{
    const struct confine_list all = {common, ARRAY_SIZE(common), common_forms,
                                     ARRAY_SIZE(common_forms)};
    int rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

    if (rc == 0)
        rc = add(f, &all);
    if (rc == 0)
        rc = add(f, own);
    return rc == 0 ? seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) : rc;
}

int confine_install(const struct confine_list *own)
{
    scmp_filter_ctx f;
    int rc;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    f = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!f)
        return -ENOMEM;
    rc = fill(f, own);
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    return rc;
}
