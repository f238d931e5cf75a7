/* checkpoint_prepare PID CALL...: stands in for what cay-init does itself before its sandbox is
 * dumped. Stops PID, which waits in a system call, and lets it make others, each "number:a:b:c",
 * then go on with its own. Prints what each answered. As root. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#define SYSCALL_LENGTH 2
#define SYSCALL_BYTES  0x050f

static int call(pid_t pid, const struct user_regs_struct *own, const char *text)
{
    struct user_regs_struct r = *own;
    unsigned long number, a, b, c;
    int status;

    if (sscanf(text, "%lu:%lu:%lu:%lu", &number, &a, &b, &c) != 4)
        return -1;
    r.rip = own->rip - SYSCALL_LENGTH;
    r.orig_rax = (unsigned long)-1;
    r.rax = number;
    r.rdi = a;
    r.rsi = b;
    r.rdx = c;
    r.r10 = r.r8 = 0;
    if (ptrace(PTRACE_SETREGS, pid, 0, &r) < 0 || ptrace(PTRACE_SINGLESTEP, pid, 0, 0) < 0 ||
        waitpid(pid, &status, 0) != pid || ptrace(PTRACE_GETREGS, pid, 0, &r) < 0)
        return -1;
    printf("%ld\n", (long)r.rax);
    return 0;
}

int main(int argc, char **argv)
{
    pid_t pid = argc > 1 ? atoi(argv[1]) : 0;
    struct user_regs_struct own;
    int status, failed = 0;

    if (pid <= 0 || ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 ||
        ptrace(PTRACE_INTERRUPT, pid, 0, 0) < 0 || waitpid(pid, &status, 0) != pid ||
        ptrace(PTRACE_GETREGS, pid, 0, &own) < 0) {
        perror("stopping it");
        return 1;
    }
    long text = ptrace(PTRACE_PEEKTEXT, pid, own.rip - SYSCALL_LENGTH, 0);
    failed = (text & 0xffff) != SYSCALL_BYTES;
    for (int i = 2; i < argc && !failed; i++)
        failed = call(pid, &own, argv[i]) < 0;
    if (ptrace(PTRACE_SETREGS, pid, 0, &own) < 0 || ptrace(PTRACE_DETACH, pid, 0, 0) < 0)
        failed = 1;
    return failed;
}
