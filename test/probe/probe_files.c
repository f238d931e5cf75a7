/* Neighbours of the paths in probe_proc.c (classes 2, 5, 9): other files, other spellings, other devices,
 * and things of the host that the test has put there: CAY_PROBE_SECRET and the like name them. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

static void opened(struct finding *f, const char *path, int fd)
{
    struct stat st;

    if (fd < 0)
        found_refused(f, "%s: %s", path, strerror(errno));
    else if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))
        found_refused(f, "%s is a mask", path);
    else
        found_open(f, "%s opened", path);
}

static void read_it(struct finding *f, const char *path)
{
    char byte[16];
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, byte, sizeof(byte));

    if (n > 0)
        found_open(f, "%s can be read", path);
    else
        found_refused(f, "%s: %s", path, n < 0 ? strerror(errno) : "empty");
}

#define WRITE_CASE(fn, path)                                           \
    static void fn(struct finding *f)                                  \
    {                                                                  \
        opened(f, path, open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK)); \
    }
#define READ_CASE(fn, path)           \
    static void fn(struct finding *f) \
    {                                 \
        read_it(f, path);             \
    }

#define OPEN_CASE(fn, path)                                 \
    static void fn(struct finding *f)                       \
    {                                                       \
        opened(f, path, open(path, O_RDONLY | O_NONBLOCK)); \
    }

WRITE_CASE(w_core_self, "/proc/self/root/proc/sys/kernel/core_pattern")
WRITE_CASE(w_core_dots, "/proc/../proc//sys/./kernel/core_pattern")
WRITE_CASE(w_core_limit, "/proc/sys/kernel/core_pipe_limit")
WRITE_CASE(w_poweroff, "/proc/sys/kernel/poweroff_cmd")
WRITE_CASE(w_aslr, "/proc/sys/kernel/randomize_va_space")
WRITE_CASE(w_panic, "/proc/sys/kernel/panic")
WRITE_CASE(w_caches, "/proc/sys/vm/drop_caches")
WRITE_CASE(w_overcommit, "/proc/sys/vm/overcommit_memory")
WRITE_CASE(w_suid_dump, "/proc/sys/fs/suid_dumpable")
WRITE_CASE(w_file_max, "/proc/sys/fs/file-max")
WRITE_CASE(w_port_start, "/proc/sys/net/ipv4/ip_unprivileged_port_start")
WRITE_CASE(w_inotify, "/proc/sys/user/max_inotify_instances")
WRITE_CASE(w_power, "/sys/power/state")
WRITE_CASE(w_thp, "/sys/kernel/mm/transparent_hugepage/enabled")
WRITE_CASE(w_pci, "/sys/bus/pci/rescan")
WRITE_CASE(w_cpu, "/sys/devices/system/cpu/cpu1/online")
READ_CASE(r_kcore_self, "/proc/self/root/proc/kcore")
READ_CASE(r_kmsg, "/proc/kmsg")
READ_CASE(r_kpage, "/proc/kpagecount")
READ_CASE(r_modules, "/proc/modules")
READ_CASE(r_diskstats, "/proc/diskstats")
READ_CASE(r_partitions, "/proc/partitions")
READ_CASE(r_interrupts, "/proc/interrupts")
READ_CASE(r_cmdline, "/proc/cmdline")
READ_CASE(r_key_users, "/proc/key-users")
READ_CASE(r_slabinfo, "/proc/slabinfo")
READ_CASE(r_vmalloc, "/proc/vmallocinfo")
READ_CASE(r_pagetype, "/proc/pagetypeinfo")
READ_CASE(r_module, "/sys/module/kernel/parameters/panic")
READ_CASE(r_block, "/sys/devices/virtual/block/loop0/size")
READ_CASE(r_btrfs, "/sys/fs/btrfs/features/supported_checksums")
READ_CASE(d_port, "/dev/port")
OPEN_CASE(d_disk, "/dev/vda")
OPEN_CASE(d_loop, "/dev/loop0")
OPEN_CASE(d_zram, "/dev/zram0")
READ_CASE(d_hwrng, "/dev/hwrng")
WRITE_CASE(d_btrfs, "/dev/btrfs-control")
WRITE_CASE(d_console, "/dev/console")
WRITE_CASE(d_uffd, "/dev/userfaultfd")
WRITE_CASE(d_latency, "/dev/cpu_dma_latency")

/* Nodes that would be what is missing in /dev, in each place where one might be made. */
static void make_node(struct finding *f, unsigned major_, unsigned minor_)
{
    static const char *const places[] = {"/tmp/cay-probe-node", "/dev/shm/cay-probe-node",
                                         "/run/cay-probe-node", "/dev/cay-probe-node"};

    found_refused(f, "no place for a node");
    for (size_t i = 0; i < ARRAY_SIZE(places) && f->verdict == REFUSED; i++) {
        unlink(places[i]);
        if (mknod(places[i], S_IFCHR | 0666, makedev(major_, minor_)) < 0)
            found_refused(f, "mknod %s: %s", places[i], strerror(errno));
        else
            opened(f, places[i], open(places[i], O_RDONLY | O_NONBLOCK));
        unlink(places[i]);
    }
}

static void node_kmsg(struct finding *f)
{
    make_node(f, 1, 11);
}

static void node_mem(struct finding *f)
{
    make_node(f, 1, 1);
}

static void node_fuse(struct finding *f)
{
    make_node(f, 10, 229);
}

static void node_loop_control(struct finding *f)
{
    make_node(f, 10, 237);
}

/* --- what the test has put on the host ----------------------------------------------------------- */

static const char *told(struct finding *f, const char *name)
{
    const char *value = getenv(name);

    if (!value)
        found_none(f, "%s is not set", name);
    return value;
}

static void secret_by(struct finding *f, const char *prefix)
{
    const char *secret = told(f, "CAY_PROBE_SECRET");
    char path[4096];

    if (!secret)
        return;
    snprintf(path, sizeof(path), "%s%s", prefix, secret);
    read_it(f, path);
}

#define SECRET_CASE(fn, prefix)       \
    static void fn(struct finding *f) \
    {                                 \
        secret_by(f, prefix);         \
    }
SECRET_CASE(secret_direct, "")
SECRET_CASE(secret_dots, "../../../../../../../../../../../../..")
SECRET_CASE(secret_root, "/proc/self/root")
SECRET_CASE(secret_cwd, "/proc/self/cwd/../../../../../../../../..")
SECRET_CASE(secret_fd, "/dev/fd/../../../../..")

static void secret_init_root(struct finding *f)
{
    char prefix[64];

    snprintf(prefix, sizeof(prefix), "/proc/%d/root", (int)probe_target());
    secret_by(f, prefix);
}

static void secret_link(struct finding *f)
{
    const char *secret = told(f, "CAY_PROBE_SECRET"), *path = "/tmp/cay-probe-link";

    if (!secret)
        return;
    unlink(path);
    if (symlink(secret, path) < 0)
        found_refused(f, "symlink: %s", strerror(errno));
    else
        read_it(f, path);
    unlink(path);
}

static void secret_hard_link(struct finding *f)
{
    const char *secret = told(f, "CAY_PROBE_SECRET");
    char path[4096];

    if (!secret)
        return;
    snprintf(path, sizeof(path), "%s.link",
             getenv("CAY_PROBE_PID") ? secret : "/tmp/cay-probe-hard");
    unlink(path);
    if (link(secret, path) < 0)
        found_refused(f, "link: %s", strerror(errno));
    else
        read_it(f, path);
    unlink(path);
}

/* Of the host's /usr, which a sandbox of the template `host` has. */
static void usr_secret(struct finding *f)
{
    const char *path = told(f, "CAY_PROBE_USR_SECRET");

    if (path)
        read_it(f, path);
}

static void usr_settings(struct finding *f)
{
    const char *path = told(f, "CAY_PROBE_USR_SETTINGS");

    if (path)
        read_it(f, path);
}

static void connect_to(struct finding *f, const char *name, int abstract)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    size_t n;

    if (!name)
        return;
    n = strnlen(name, sizeof(sun.sun_path) - 2);
    memcpy(sun.sun_path + abstract, name, n);
    found_call(f, name,
               connect(fd, (struct sockaddr *)&sun,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1)));
}

static void bait_abstract(struct finding *f)
{
    connect_to(f, told(f, "CAY_PROBE_ABSTRACT"), 1);
}

static void bait_socket(struct finding *f)
{
    connect_to(f, told(f, "CAY_PROBE_SOCKET"), 0);
}

static void bait_shm(struct finding *f)
{
    const char *key = told(f, "CAY_PROBE_SHM");

    if (key)
        found_call(f, "shmget of the host's segment", shmget((key_t)atol(key), 4096, 0666));
}

static void bait_queue(struct finding *f)
{
    const char *name = told(f, "CAY_PROBE_QUEUE");

    if (name)
        found_call(f, "mq_open of the host's queue", mq_open(name, O_RDONLY));
}

static void own_cgroup(struct finding *f)
{
    char text[4096] = "";
    int fd = open("/proc/self/cgroup", O_RDONLY);

    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, "cay"))
        found_open(f, "/proc/self/cgroup names the host's groups");
    else
        found_refused(f, "/proc/self/cgroup shows only the own root");
}

static void agent_cgroup(struct finding *f)
{
    for (int fd = 3; fd < 16; fd++) {
        struct stat st;

        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && write(fd, "0", 1) == 1) {
            found_open(f, "descriptor %d took us into another group", fd);
            return;
        }
    }
    found_refused(f, "no descriptor of a control group");
}

const struct probe_case probe_files_cases[] = {
    {"proc.core_by_root", "core_pattern by /proc/self/root", w_core_self, 1},
    {"proc.core_by_dots", "core_pattern by another spelling", w_core_dots, 1},
    {"proc.core_pipe_limit", "another sysctl of core files", w_core_limit, 1},
    {"proc.poweroff_cmd", "a program that the host runs at power off", w_poweroff, 1},
    {"proc.aslr", "weaken address randomness", w_aslr, 1},
    {"proc.panic", "what the host does after a panic", w_panic, 1},
    {"proc.drop_caches", "drop the host's caches", w_caches, 1},
    {"proc.overcommit", "how the host hands out memory", w_overcommit, 1},
    {"proc.suid_dumpable", "core files of set-uid programs", w_suid_dump, 1},
    {"proc.file_max", "the host's open files", w_file_max, 1},
    {"proc.port_start", "a sysctl of the own network namespace", w_port_start, 1},
    {"proc.inotify_limit", "a sysctl of the own user namespace", w_inotify, 1},
    {"sys.power", "put the host to sleep", w_power, 1},
    {"sys.hugepages", "how the host uses huge pages", w_thp, 1},
    {"sys.pci", "rescan the host's bus", w_pci, 1},
    {"sys.cpu", "take a processor away", w_cpu, 1},
    {"proc.kcore_by_root", "kernel memory by /proc/self/root", r_kcore_self, 1},
    {"proc.kmsg", "the kernel's log", r_kmsg, 1},
    {"proc.kpagecount", "the host's pages", r_kpage, 1},
    {"proc.modules", "the host's modules", r_modules, 1},
    {"proc.diskstats", "the host's disks", r_diskstats, 1},
    {"proc.partitions", "the host's partitions", r_partitions, 1},
    {"proc.interrupts", "the host's interrupts: a clock for keystrokes", r_interrupts, 1},
    {"proc.cmdline", "the host's boot parameters", r_cmdline, 1},
    {"proc.key_users", "who has keys on the host", r_key_users, 1},
    {"proc.slabinfo", "the host's slabs", r_slabinfo, 1},
    {"proc.vmallocinfo", "the kernel's addresses", r_vmalloc, 1},
    {"proc.pagetypeinfo", "the host's pages by kind", r_pagetype, 1},
    {"sys.module", "parameters of modules", r_module, 1},
    {"sys.block", "the host's block devices", r_block, 1},
    {"sys.btrfs", "the state disk", r_btrfs, 1},
    {"dev.port", "I/O ports", d_port, 1},
    {"dev.disk", "the host's disk", d_disk, 1},
    {"dev.loop0", "the state disk's device", d_loop, 1},
    {"dev.zram", "the host's memory disk", d_zram, 1},
    {"dev.hwrng", "the host's random generator", d_hwrng, 1},
    {"dev.btrfs_control", "register file systems", d_btrfs, 1},
    {"dev.console", "the host's console", d_console, 1},
    {"dev.userfaultfd", "userfaultfd by its device", d_uffd, 1},
    {"dev.latency", "keep the host's processors awake", d_latency, 1},
    {"dev.mknod_kmsg", "make the node of the kernel's log", node_kmsg, 1},
    {"dev.mknod_mem", "make the node of physical memory", node_mem, 1},
    {"dev.mknod_fuse", "make the node of fuse", node_fuse, 1},
    {"dev.mknod_loop_control", "make the node of loop-control", node_loop_control, 1},
    {"file.direct", "a file of the host by its name", secret_direct, 1},
    {"file.dots", "by ..", secret_dots, 1},
    {"file.self_root", "by /proc/self/root", secret_root, 1},
    {"file.init_root", "by /proc/1/root", secret_init_root, 1},
    {"file.self_cwd", "by /proc/self/cwd and ..", secret_cwd, 1},
    {"file.dev_fd", "by /dev/fd and ..", secret_fd, 1},
    {"file.symlink", "by a link", secret_link, 1},
    {"file.hard_link", "by a hard link", secret_hard_link, 1},
    {"file.usr_secret", "a file in the host's /usr that only its root may read", usr_secret, 1},
    {"file.usr_settings", "one in its /usr/local/etc", usr_settings, 1},
    {"ipc.abstract_bait", "an abstract socket of the host's network namespace", bait_abstract, 1},
    {"ipc.socket_bait", "a socket in the host's files", bait_socket, 1},
    {"ipc.shm_bait", "a System V segment of the host", bait_shm, 1},
    {"ipc.queue_bait", "a POSIX queue of the host", bait_queue, 1},
    {"cgroup.path", "the names of the host's control groups", own_cgroup, 0},
    {"cgroup.move", "into another control group by a left descriptor", agent_cgroup, 0},
    {0},
};
