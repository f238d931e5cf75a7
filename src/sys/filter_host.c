#include "sys/filter_host.h"

#include "base/test_bypass.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#define X32_BIT 0x40000000u

/* Each is in the sandboxes' list of what is refused too (filter.c). */
static const int daemon_denied[] = {
    SYS_acct,
    SYS_add_key,
    SYS_adjtimex,
    SYS_bpf,
    SYS_clock_adjtime,
    SYS_clock_settime,
    SYS_delete_module,
    SYS_fanotify_init,
    SYS_finit_module,
    SYS_init_module,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_uring_setup,
    SYS_kexec_load,
    SYS_keyctl,
    SYS_lookup_dcookie,
    SYS_migrate_pages,
    SYS_move_pages,
    SYS_nfsservctl,
    SYS_open_by_handle_at,
    SYS_perf_event_open,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_reboot,
    SYS_request_key,
    SYS_settimeofday,
    SYS_swapoff,
    SYS_swapon,
    SYS_syslog,
    SYS_userfaultfd,
    SYS_vhangup,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
#ifdef SYS_ioperm
    SYS_ioperm,
    SYS_iopl,
#endif
#ifdef SYS_modify_ldt
    SYS_modify_ldt,
#endif
};

/* Debuggers work inside sandboxes; no job needs one, nor another's namespaces or descriptors. */
static const int job_denied[] = {
#ifndef __SANITIZE_ADDRESS__ /* its leak checker traces the process that it is in */
    SYS_ptrace,
#endif
    SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp, SYS_setns,
};

#define PROGRAM_MAX (ARRAY_SIZE(daemon_denied) + 8)

#if defined(__x86_64__)
#define THIS_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCH AUDIT_ARCH_AARCH64
#endif

static unsigned short write_program(struct sock_filter *f, const int *denied, size_t n)
{
    const uint32_t kill = SECCOMP_RET_KILL_PROCESS, refuse = SECCOMP_RET_ERRNO | EPERM;
    size_t at = 0;

    f[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                           offsetof(struct seccomp_data, arch));
    f[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCH, 1, 0);
    f[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, kill);
    f[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                           offsetof(struct seccomp_data, nr));
    f[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
    f[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, kill);
    /* A match jumps to the last instruction: n - 1 - i comparisons and the "allow" are in
     * between. */
    for (size_t i = 0; i < n; i++)
        f[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)denied[i],
                                               (uint8_t)(n - i), 0);
    f[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, refuse);
    return (unsigned short)at;
}

int filter_host_install(enum filter_host which)
{
    struct sock_filter code[PROGRAM_MAX];
    struct sock_fprog program = {.filter = code};

    if (TEST_BYPASS(SECCOMP))
        return 0;
    program.len = which == FILTER_HOST_JOB
                      ? write_program(code, job_denied, ARRAY_SIZE(job_denied))
                      : write_program(code, daemon_denied, ARRAY_SIZE(daemon_denied));
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) < 0)
        return -errno;
    return 0;
}
