/* /proc, /sys, /dev and cgroup (class 5), and what is denied to readers (class 2). */
#include "probe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static void try_open(struct finding *f, const char *path, int flags)
{
    int fd = open(path, flags);

    if (fd < 0)
        found_refused(f, "%s: %s", path, strerror(errno));
    else
        found_open(f, "%s opened", path);
}

/* A masked file opens, and reads as empty (/dev/null): that is a refusal too. */
static void try_read(struct finding *f, const char *path)
{
    char byte[8192]; /* one record of the kernel's log is read as a whole or not at all */
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    ssize_t got;

    if (fd < 0) {
        found_refused(f, "%s: %s", path, strerror(errno));
        return;
    }
    got = read(fd, byte, sizeof(byte));
    if (got > 0)
        found_open(f, "%s can be read", path);
    else
        found_refused(f, "%s is empty or unreadable (%s)", path,
                      got < 0 ? strerror(errno) : "end of file");
}

#define OPEN_CASE(fn, path)           \
    static void fn(struct finding *f) \
    {                                 \
        try_open(f, path, O_WRONLY);  \
    }
#define READ_CASE(fn, path)           \
    static void fn(struct finding *f) \
    {                                 \
        try_read(f, path);            \
    }

OPEN_CASE(core_pattern, "/proc/sys/kernel/core_pattern")
OPEN_CASE(modprobe_path, "/proc/sys/kernel/modprobe")
OPEN_CASE(uevent_helper, "/sys/kernel/uevent_helper")
OPEN_CASE(hostname_sysctl, "/proc/sys/kernel/hostname")
OPEN_CASE(net_sysctl, "/proc/sys/net/ipv4/ip_forward")
OPEN_CASE(irq_affinity, "/proc/irq/default_smp_affinity")
OPEN_CASE(userns_limit, "/proc/sys/user/max_user_namespaces")
READ_CASE(kcore, "/proc/kcore")
READ_CASE(keys, "/proc/keys")
READ_CASE(cgroup_counts, "/proc/cgroups")
READ_CASE(timer_list, "/proc/timer_list")
READ_CASE(config_firmware, "/sys/firmware/acpi/tables/DSDT")
READ_CASE(dev_mem, "/dev/mem")
READ_CASE(dev_kmsg, "/dev/kmsg")
READ_CASE(init_environ, "/proc/1/environ")
READ_CASE(init_maps, "/proc/1/maps")
OPEN_CASE(kvm, "/dev/kvm")
OPEN_CASE(fuse, "/dev/fuse")
OPEN_CASE(loop_control, "/dev/loop-control")
OPEN_CASE(net_tun, "/dev/net/tun")
OPEN_CASE(vsock_device, "/dev/vsock")

/* The entries of such a directory are of the host's devices. */
static void try_entries(struct finding *f, const char *path)
{
    struct dirent *e = NULL;
    DIR *dir = opendir(path);

    if (!dir) {
        found_refused(f, "%s: %s", path, strerror(errno));
        return;
    }
    while ((e = readdir(dir)) != NULL && e->d_name[0] == '.')
        ;
    if (e)
        found_open(f, "%s has %.60s", path, e->d_name);
    else
        found_refused(f, "%s is empty", path);
    closedir(dir);
}

#define ENTRIES_CASE(fn, path)        \
    static void fn(struct finding *f) \
    {                                 \
        try_entries(f, path);         \
    }

ENTRIES_CASE(host_buses, "/proc/bus")
ENTRIES_CASE(host_disks, "/proc/fs")
ENTRIES_CASE(host_interrupts, "/proc/irq")

static void sysrq(struct finding *f)
{
    /* Opening is enough: nothing is written. A mask of /dev/null is character device 1:3. */
    struct stat st;
    int fd = open("/proc/sysrq-trigger", O_WRONLY);

    if (fd < 0)
        found_refused(f, "/proc/sysrq-trigger: %s", strerror(errno));
    else if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode))
        found_refused(f, "/proc/sysrq-trigger is a mask");
    else
        found_open(f, "/proc/sysrq-trigger opened for writing");
}

static void init_mem(struct finding *f)
{
    try_open(f, "/proc/1/mem", O_RDWR);
}

static void init_root(struct finding *f)
{
    DIR *d = opendir("/proc/1/root");

    if (d)
        found_open(f, "/proc/1/root can be listed");
    else
        found_refused(f, "/proc/1/root: %s", strerror(errno));
}

static void init_fds(struct finding *f)
{
    DIR *d = opendir("/proc/1/fd");

    if (d)
        found_open(f, "/proc/1/fd can be listed");
    else
        found_refused(f, "/proc/1/fd: %s", strerror(errno));
}

static void kallsyms(struct finding *f)
{
    char line[64] = "";
    int fd = open("/proc/kallsyms", O_RDONLY);

    if (fd < 0 || read(fd, line, 16) < 16) {
        found_refused(f, "/proc/kallsyms: %s", fd < 0 ? strerror(errno) : "empty");
        return;
    }
    if (strncmp(line, "0000000000000000", 16) == 0)
        found_refused(f, "all addresses read as zero");
    else
        found_open(f, "addresses are shown");
}

static void host_disk(struct finding *f)
{
    char path[] = "/tmp/cay-probe-disk";

    unlink(path);
    if (mknod(path, S_IFBLK | 0600, makedev(254, 0)) < 0 &&
        mknod(path, S_IFBLK | 0600, makedev(7, 0)) < 0) {
        found_refused(f, "mknod of a block device: %s", strerror(errno));
        return;
    }
    try_open(f, path, O_RDONLY);
    unlink(path);
}

static void mount_cgroup(struct finding *f)
{
    mkdir("/tmp/cay-probe-cg", 0700);
    if (mount("cgroup", "/tmp/cay-probe-cg", "cgroup", 0, "memory") == 0 ||
        mount("cgroup2", "/tmp/cay-probe-cg", "cgroup2", 0, NULL) == 0) {
        found_open(f, "a cgroup file system was mounted");
        umount("/tmp/cay-probe-cg");
    } else {
        found_refused(f, "mount of cgroup: %s", strerror(errno));
    }
    rmdir("/tmp/cay-probe-cg");
}

static void cgroup_visible(struct finding *f)
{
    static const char *const paths[] = {
        "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/unified/cgroup.procs"};

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        int fd = open(paths[i], O_WRONLY);

        if (fd >= 0) {
            found_open(f, "%s opened for writing", paths[i]);
            return;
        }
    }
    found_refused(f, "no cgroup file can be written: %s", strerror(errno));
}

static void binfmt(struct finding *f)
{
    mkdir("/tmp/cay-probe-bf", 0700);
    if (mount("binfmt_misc", "/tmp/cay-probe-bf", "binfmt_misc", 0, NULL) == 0) {
        found_open(f, "binfmt_misc was mounted");
        umount("/tmp/cay-probe-bf");
    } else {
        found_refused(f, "mount of binfmt_misc: %s", strerror(errno));
    }
    rmdir("/tmp/cay-probe-bf");
}

static void oom_of_init(struct finding *f)
{
    int fd = open("/proc/1/oom_score_adj", O_WRONLY);

    if (fd < 0)
        found_refused(f, "/proc/1/oom_score_adj: %s", strerror(errno));
    else
        found_open(f, "/proc/1/oom_score_adj opened for writing");
}

const struct probe_case probe_proc_cases[] = {
    {"proc.core_pattern", "have the host run a program at a crash", core_pattern, 1},
    {"proc.modprobe", "have the host run a program for a module", modprobe_path, 1},
    {"proc.uevent_helper", "have the host run a program at a device event", uevent_helper, 1},
    {"proc.binfmt", "register an interpreter on the host", binfmt, 1},
    {"proc.sysrq", "press SysRq", sysrq, 1},
    {"proc.hostname", "change a sysctl", hostname_sysctl, 1},
    {"proc.net_sysctl", "change a network sysctl", net_sysctl, 1},
    {"proc.userns_limit", "raise the number of user namespaces", userns_limit, 1},
    {"proc.irq", "move interrupts", irq_affinity, 1},
    {"proc.irq_counts", "count the interrupts of each device of the host", host_interrupts, 1},
    {"proc.disks", "look into the file systems of the host", host_disks, 1},
    {"proc.buses", "read registers of the host's devices", host_buses, 1},
    {"proc.cgroups", "count the control groups of the host", cgroup_counts, 1},
    {"proc.kcore", "read kernel memory", kcore, 1},
    {"proc.keys", "list keys of the host", keys, 1},
    {"proc.timer_list", "read kernel timers of the host", timer_list, 1},
    {"proc.kallsyms", "read kernel addresses", kallsyms, 1},
    {"proc.firmware", "read firmware tables", config_firmware, 1},
    {"proc.init_mem", "write the memory of PID 1", init_mem, 1},
    {"proc.init_environ", "read the environment of PID 1", init_environ, 0},
    {"proc.init_maps", "read the memory map of PID 1", init_maps, 1},
    {"proc.init_root", "walk through PID 1's root", init_root, 1},
    {"proc.init_fds", "walk through PID 1's descriptors", init_fds, 1},
    {"proc.init_oom", "have PID 1 chosen first when memory is out", oom_of_init, 0},
    {"dev.mem", "read physical memory", dev_mem, 1},
    {"dev.kmsg", "read the kernel's log", dev_kmsg, 1},
    {"dev.kvm", "make a virtual machine", kvm, 1},
    {"dev.fuse", "serve a file system", fuse, 1},
    {"dev.loop", "make a loop device", loop_control, 1},
    {"dev.tun", "make a network interface", net_tun, 1},
    {"dev.vsock", "talk to the hypervisor", vsock_device, 1},
    {"dev.mknod_disk", "make the host's disk and read it", host_disk, 1},
    {"cgroup.mount", "mount a cgroup hierarchy (release_agent)", mount_cgroup, 1},
    {"cgroup.write", "raise one's own limits", cgroup_visible, 1},
    {0},
};
