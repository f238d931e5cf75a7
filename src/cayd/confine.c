#include "cayd/confine.h"

#include "base/util.h"

#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* No program is started, nothing is made that could hold one, and nothing of the kernel's less used
 * ways in is left open. */
static const int denied[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsmount),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fspick),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(setns),
    SCMP_SYS(unshare),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(personality),
    SCMP_SYS(mknod),
    SCMP_SYS(mknodat),
    SCMP_SYS(link),
    SCMP_SYS(linkat),
    SCMP_SYS(symlink),
    SCMP_SYS(symlinkat),
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(setfsuid),
    SCMP_SYS(setfsgid),
    SCMP_SYS(capset),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(process_madvise),
    SCMP_SYS(kcmp),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(memfd_create),
    SCMP_SYS(memfd_secret),
    SCMP_SYS(shmget),
    SCMP_SYS(shmat),
    SCMP_SYS(msgget),
    SCMP_SYS(semget),
    SCMP_SYS(mq_open),
    SCMP_SYS(quotactl),
    SCMP_SYS(acct),
    SCMP_SYS(syslog),
    SCMP_SYS(vhangup),
    SCMP_SYS(ioperm),
    SCMP_SYS(iopl),
    SCMP_SYS(modify_ldt),
    SCMP_SYS(lookup_dcookie),
    SCMP_SYS(uselib),
    SCMP_SYS(vmsplice),
    SCMP_SYS(fanotify_init),
    SCMP_SYS(listen),
    SCMP_SYS(bind),
};

/* Sockets that cayd itself makes: unix ones to privd. Those into sandboxes come from privd ready
 * made. */
static int restrict_sockets(scmp_filter_ctx f)
{
    return seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
                            SCMP_A0(SCMP_CMP_NE, AF_UNIX));
}

/* Threads may still be started (the database's helper); processes not. The flags of clone3 are in
 * memory, which a filter cannot read: ENOSYS makes the C library use clone. */
static int restrict_clone(scmp_filter_ctx f)
{
    int rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);

    if (rc < 0)
        return rc;
    return seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                            SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
}

static int fill(scmp_filter_ctx f)
{
    int rc = seccomp_attr_set(f, SCMP_FLTATR_CTL_TSYNC, 1);

    if (rc == 0)
        rc = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    for (size_t i = 0; i < ARRAY_SIZE(denied) && rc == 0; i++) {
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), denied[i], 0);
        /* A call that this architecture does not have needs no rule. */
        if (rc == -EDOM || rc == -EFAULT)
            rc = 0;
    }
    if (rc == 0)
        rc = restrict_clone(f);
    return rc == 0 ? restrict_sockets(f) : rc;
}

int confine_self(void)
{
    scmp_filter_ctx f;
    int rc;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    f = seccomp_init(SCMP_ACT_ALLOW);
    if (!f)
        return -ENOMEM;
    rc = fill(f);
    if (rc == 0)
        rc = seccomp_load(f);
    seccomp_release(f);
    return rc;
}
