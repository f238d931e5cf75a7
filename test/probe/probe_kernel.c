/* Kernel surface that a sandbox has no business with (class 7 of the threat model). */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/reboot.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif

static void io_uring(struct finding *f)
{
    char params[120] = {0};

    found_call(f, "io_uring_setup", syscall(SYS_io_uring_setup, 4, params));
}

static void bpf_map(struct finding *f)
{
    union bpf_attr attr = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};

    found_call(f, "bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}

static void perf_event(struct finding *f)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_CPU_CLOCK};

    found_call(f, "perf_event_open", syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}

static void userfault(struct finding *f)
{
    found_call(f, "userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC));
}

static void keyring_add(struct finding *f)
{
    found_call(f, "add_key", syscall(SYS_add_key, "user", "cay-probe", "x", 1, -2));
}

static void keyring_control(struct finding *f)
{
    found_call(f, "keyctl", syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -3, 1));
}

static void keyring_request(struct finding *f)
{
    found_reached(f, "request_key", syscall(SYS_request_key, "user", "cay-probe", NULL, -2));
}

static void open_by_handle(struct finding *f)
{
    struct {
        unsigned bytes;
        int type;
        unsigned char handle[8];
    } h = {.bytes = 8, .type = 1, .handle = {2}};
    int dir = open("/", O_RDONLY | O_DIRECTORY);

    found_reached(f, "open_by_handle_at", syscall(SYS_open_by_handle_at, dir, &h, O_RDONLY));
}

static void load_module(struct finding *f)
{
    /* A file that is no module: refused as such (ENOEXEC) only where loading is allowed at all. */
    int fd = (int)syscall(SYS_memfd_create, "m", 0);
    long r = syscall(SYS_finit_module, fd, "", 0);

    if (r < 0 && (errno == ENOEXEC || errno == EINVAL || errno == EBADF))
        found_open(f, "finit_module looked at the file: %s", strerror(errno));
    else
        found_call(f, "finit_module", r);
}

static void kexec(struct finding *f)
{
    long r = syscall(SYS_kexec_load, 0, 0, NULL, 0);

    found_call(f, "kexec_load", r);
}

static void port_io(struct finding *f)
{
    found_call(f, "ioperm", ioperm(0x80, 1, 1));
}

static void port_io_level(struct finding *f)
{
    found_call(f, "iopl", iopl(3));
}

static void swap(struct finding *f)
{
    long r = swapoff("/cay-probe-no-such-file");

    if (r < 0 && errno == ENOENT)
        found_open(f, "swapoff looked for the file");
    else
        found_call(f, "swapoff", r);
}

static void quota(struct finding *f)
{
    found_call(f, "quotactl Q_SYNC", quotactl(QCMD(Q_SYNC, USRQUOTA), NULL, 0, NULL));
}

static void accounting(struct finding *f)
{
    found_call(f, "acct", acct(NULL));
}

static void reboot_call(struct finding *f)
{
    /* Only switches Ctrl-Alt-Del between two harmless meanings; inside a pid namespace root could
     * end only its own namespace. */
    found_reached(f, "reboot CAD_OFF", reboot(RB_DISABLE_CAD));
}

static void clock_set(struct finding *f)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    found_call(f, "clock_settime", clock_settime(CLOCK_REALTIME, &ts));
}

static void syslog_read(struct finding *f)
{
    found_call(f, "syslog SIZE_BUFFER", syscall(SYS_syslog, 10, NULL, 0));
}

static void clone3_unseen(struct finding *f)
{
    /* A filter cannot look behind the pointer: the only safe answer is that there is no clone3. */
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.flags = 0x10000000 /* CLONE_NEWUSER */, .exit_signal = 17};
    long r = syscall(SYS_clone3, &args, sizeof(args));

    if (r == 0)
        _exit(0);
    found_call(f, "clone3 with a new user namespace", r);
}

static void i386_call(struct finding *f)
{
#ifdef __x86_64__
    long r;

    /* getpid by int 0x80: another numbering, which an x86-64-only filter does not see. */
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
    if (r > 0)
        found_open(f, "int 0x80 getpid answered %ld", r);
    else
        found_refused(f, "int 0x80: %s", strerror((int)-r));
#else
    found_none(f, "only on x86-64");
#endif
}

static void x32_call(struct finding *f)
{
#ifdef __x86_64__
    long r = syscall(0x40000000 + 39 /* getpid */);

    if (r < 0 && errno == ENOSYS)
        found_refused(f, "x32 getpid: %s", strerror(errno));
    else
        found_call(f, "x32 getpid", r);
#else
    found_none(f, "only on x86-64");
#endif
}

int probe_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    const char *name = master < 0 || unlockpt(master) < 0 ? NULL : ptsname(master);

    return name && setsid() >= 0 ? open(name, O_RDWR) : -1;
}

static void tty_inject(struct finding *f)
{
    int fd = probe_terminal();

    if (fd < 0)
        found_none(f, "no terminal: %s", strerror(errno));
    else
        found_call(f, "TIOCSTI", ioctl(fd, TIOCSTI, "#"));
}

static void handle_of_root(struct finding *f)
{
    struct {
        unsigned bytes;
        int type;
        unsigned char handle[128];
    } h = {.bytes = 128};
    int id;
    long r = syscall(SYS_name_to_handle_at, -100, "/etc/passwd", &h, &id, 0);

    if (r < 0) {
        found_refused(f, "name_to_handle_at: %s", strerror(errno));
        return;
    }
    r = syscall(SYS_open_by_handle_at, -100, &h, O_RDONLY);
    found_call(f, "open_by_handle_at of an own handle", r);
}

const struct probe_case probe_kernel_cases[] = {
    {"kernel.io_uring", "io_uring does network and file calls past a filter", io_uring, 1},
    {"kernel.bpf", "load a map or program into the kernel", bpf_map, 1},
    {"kernel.perf_event", "sample the kernel", perf_event, 1},
    {"kernel.userfaultfd", "stop the kernel in the middle of a copy", userfault, 1},
    {"kernel.add_key", "use up or read keys of the user on the host", keyring_add, 1},
    {"kernel.keyctl", "reach a keyring", keyring_control, 1},
    {"kernel.request_key", "have the kernel start a helper program", keyring_request, 1},
    {"kernel.open_by_handle", "open the host's root by its inode number (shocker)", open_by_handle,
     1},
    {"kernel.own_handle", "open a file by its handle", handle_of_root, 1},
    {"kernel.module", "load a kernel module", load_module, 1},
    {"kernel.kexec", "load another kernel", kexec, 1},
    {"kernel.ioperm", "talk to devices by port", port_io, 1},
    {"kernel.iopl", "raise the I/O privilege level", port_io_level, 1},
    {"kernel.swap", "switch swap space", swap, 1},
    {"kernel.quotactl", "change disk quotas", quota, 1},
    {"kernel.acct", "switch process accounting", accounting, 1},
    {"kernel.reboot", "reboot or change Ctrl-Alt-Del", reboot_call, 1},
    {"kernel.clock", "set the host's clock", clock_set, 1},
    {"kernel.syslog", "read the kernel's log", syslog_read, 1},
    {"kernel.clone3", "make a user namespace by the call whose flags a filter cannot see",
     clone3_unseen, 1},
    {"kernel.int80", "32-bit system calls", i386_call, 0},
    {"kernel.x32", "x32 system calls", x32_call, 1},
    {"kernel.tiocsti", "type into a terminal that another session reads", tty_inject, 1},
    {0},
};
