/* Identity, capabilities, descriptors (class 8) and PID 1 against root inside. */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* Bits of linux/capability.h that no sandbox may ever have. */
static const struct {
    int bit;
    const char *name;
} forbidden[] = {
    {1, "DAC_READ_SEARCH (open_by_handle_at)"}, /* not needed by anything inside */
    {12, "NET_ADMIN"},
    {13, "NET_RAW"},
    {16, "SYS_MODULE"},
    {17, "SYS_RAWIO"},
    {19, "SYS_PTRACE"},
    {21, "SYS_ADMIN"},
    {22, "SYS_BOOT"},
    {25, "SYS_TIME"},
    {34, "SYSLOG"},
    {38, "PERFMON"},
    {39, "BPF"},
    {40, "CHECKPOINT_RESTORE"},
};

static void bounding_set(struct finding *f)
{
    for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++) {
        if (forbidden[i].bit == 1)
            continue;
        if (prctl(PR_CAPBSET_READ, forbidden[i].bit, 0, 0, 0) == 1) {
            found_open(f, "%s is in the bounding set", forbidden[i].name);
            return;
        }
    }
    found_refused(f, "none of the dangerous capabilities is in the bounding set");
}

static void ambient_set(struct finding *f)
{
    for (int bit = 0; bit <= 40; bit++) {
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, bit, 0, 0) == 1) {
            found_open(f, "capability %d is ambient", bit);
            return;
        }
    }
    found_refused(f, "the ambient set is empty");
}

static void inherited_fds(struct finding *f)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;
    int extra = -1;

    if (!d) {
        found_none(f, "/proc/self/fd: %s", strerror(errno));
        return;
    }
    while ((e = readdir(d))) {
        int fd = atoi(e->d_name);
        struct stat st;

        /* The directory itself and the probe's own pipe are no inheritance. */
        if (fd > 2 && fd != dirfd(d) && fstat(fd, &st) == 0 && !S_ISFIFO(st.st_mode))
            extra = fd;
    }
    if (extra >= 0)
        found_open(f, "descriptor %d came from outside", extra);
    else
        found_refused(f, "no descriptor but 0 to 2");
    closedir(d);
}

static void groups(struct finding *f)
{
    gid_t list[64];
    int n = getgroups(64, list);

    for (int i = 0; i < n; i++) {
        if (list[i] == 65534) {
            found_open(f, "a supplementary group of the host is left (shown as %u)", list[i]);
            return;
        }
    }
    found_refused(f, "no supplementary group of the host");
}

static void trace_init(struct finding *f)
{
    if (probe_spared(f))
        return;
    found_call(f, "ptrace(ATTACH, 1)", ptrace(PTRACE_SEIZE, probe_target(), NULL, NULL));
}

static void read_init(struct finding *f)
{
    char byte;
    struct iovec local = {&byte, 1}, remote = {(void *)0x400000, 1};
    ssize_t r = process_vm_readv(probe_target(), &local, 1, &remote, 1, 0);

    if (r < 0 && errno == EFAULT)
        found_open(f, "process_vm_readv may read PID 1");
    else
        found_call(f, "process_vm_readv(1)", r);
}

static void steal_fd(struct finding *f)
{
    int pidfd = (int)syscall(434 /* pidfd_open */, probe_target(), 0);

    if (pidfd < 0) {
        found_refused(f, "pidfd_open(1): %s", strerror(errno));
        return;
    }
    for (int fd = 0; fd < 16; fd++) {
        if (syscall(438 /* pidfd_getfd */, pidfd, fd, 0) >= 0) {
            found_open(f, "descriptor %d of PID 1 was taken", fd);
            return;
        }
    }
    found_refused(f, "pidfd_getfd(1): %s", strerror(errno));
}

/* The call itself may answer success; what counts is that it lives, and goes on. */
static char state_after(int sig)
{
    char path[64], line[256] = "", *end;
    int fd;

    kill(probe_target(), sig);
    usleep(50000);
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)probe_target());
    fd = open(path, O_RDONLY);
    if (fd < 0 || read(fd, line, sizeof(line) - 1) <= 0)
        return 'X';
    end = strrchr(line, ')');
    return end ? end[2] : 'X';
}

static void signal_init(struct finding *f, int sig, const char *name)
{
    char state;

    if (probe_spared(f))
        return;
    state = state_after(sig);
    if (strchr("XZTt", state))
        found_open(f, "after %s the state of PID 1 is %c", name, state);
    else
        found_refused(f, "PID 1 goes on after %s", name);
}

static void kill_init(struct finding *f)
{
    signal_init(f, SIGKILL, "SIGKILL");
}

static void stop_init(struct finding *f)
{
    signal_init(f, SIGSTOP, "SIGSTOP");
}

static void limit_init(struct finding *f)
{
    struct rlimit lim = {.rlim_cur = 8, .rlim_max = 8};

    if (probe_spared(f))
        return;
    found_call(f, "prlimit of PID 1", prlimit(probe_target(), RLIMIT_NPROC, &lim, NULL));
}

static void renice_init(struct finding *f)
{
    if (probe_spared(f))
        return;
    found_call(f, "setpriority of PID 1", setpriority(PRIO_PROCESS, (id_t)probe_target(), 19));
}

static void write_own_exe(struct finding *f)
{
    char path[64];

    /* "Text file busy" comes after the permission. */
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)probe_target());
    found_reached(f, path, open(path, O_WRONLY));
}

static void raise_limit(struct finding *f)
{
    struct rlimit lim;

    getrlimit(RLIMIT_NOFILE, &lim);
    lim.rlim_max += 1;
    found_call(f, "raise the hard limit of open files", setrlimit(RLIMIT_NOFILE, &lim));
}

static void real_time(struct finding *f)
{
    struct sched_param {
        int priority;
    } p = {1};

    found_call(f, "sched_setscheduler(FIFO)", syscall(SYS_sched_setscheduler, 0, 1, &p));
}

const struct probe_case probe_identity_cases[] = {
    {"id.bounding", "a capability that reaches the kernel or the network", bounding_set, 1},
    {"id.ambient", "capabilities that survive exec", ambient_set, 1},
    {"id.fds", "a descriptor left open by the runtime", inherited_fds, 0},
    {"id.groups", "a group of the host", groups, 1},
    {"id.raise_nofile", "raise one's own limits", raise_limit, 1},
    {"id.real_time", "take the processor for oneself", real_time, 1},
    {"init.ptrace", "attach to PID 1", trace_init, 1},
    {"init.vm_read", "read PID 1's memory", read_init, 1},
    {"init.pidfd_getfd", "take PID 1's descriptors", steal_fd, 1},
    {"init.kill", "kill PID 1", kill_init, 1},
    {"init.stop", "stop PID 1", stop_init, 1},
    {"init.prlimit", "starve PID 1 by limits", limit_init, 1},
    {"init.renice", "starve PID 1 of the processor", renice_init, 1},
    {"init.exe", "overwrite the runtime's binary (CVE-2019-5736)", write_own_exe, 1},
    {0},
};
