/* A /proc of the sandbox's own namespaces, in three steps: sysctls are written through it, then
 * files left writable in it become read-only, then files that tell of the host are covered. The
 * order matters: nothing is written once it is read-only. /sys is no sysfs but the plain files that
 * the root's least layer has (sysfs_stub.h). A name that this kernel lacks needs no mask. */

#include "runtime/rootfs_proc.h"

#include "base/ids.h"
#include "base/io.h"
#include "base/test_bypass.h"
#include "sys/mnt.h"
#include "sys/net_bounds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Namespaces of each kind of a sandbox's command sandboxes: of the eight that may live, and of
 * three that are still going, or that a descriptor keeps. The sandbox's own count for the user who
 * made them. */
#define COMMAND_NAMESPACES_MAX 11

/* Only ever shown what the sandbox's own namespaces allow; on top of that, the files that container
 * runtimes hide, and those of the host's devices: bus (their registers), fs (its disks, whose file
 * systems a reader locks), irq (how often each has interrupted); and cgroups, which counts the
 * control groups of the whole host: how many sandboxes and command sandboxes there are. Test: probe
 * "proc". */
const char *const rootfs_proc_read_only[ROOTFS_PROC_READ_ONLY] = {"sys", "sysrq-trigger"};
/* clang-format off */
const char *const rootfs_proc_masked[ROOTFS_PROC_MASKED] = {
    "acpi", "asound", "bootconfig", "bus", "cgroups", "cmdline", "diskstats", "driver", "fs",
    "interrupts", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg", "kpagecgroup",
    "kpagecount", "kpageflags", "latency_stats", "locks", "modules", "partitions", "pressure",
    "sched_debug", "scsi", "timer_list", "timer_stats",
};
/* fs: cgroups, and the disk's uuid with every other sandbox's usage; block: where the image is. */
static const char *const sys_masked[] = {
    "firmware", "fs", "devices/virtual/block", "devices/virtual/dmi", "devices/virtual/powercap",
    "hypervisor", "kernel/debug", "kernel/security", "kernel/slab", "kernel/tracing", "module",
};
/* clang-format on */

/* An empty directory that stays so, where each mask of a directory is copied from. */
static int make_empty(const struct rootfs *b)
{
    CLEANUP_CLOSE int fd = mnt_clone(b->stage_fd, "empty", ROOTFS_STRICT | MOUNT_ATTR_RDONLY);
    return fd < 0 ? fd : mnt_attach(fd, b->stage_fd, "empty");
}

/* Covers a file with /dev/null or a directory with the empty one; an absent name needs no mask. The
 * names are the kernel's own: no process can change where they lead, and a link as the last of them
 * is not followed. */
static int mask(const struct rootfs *b, int dir_fd, const char *path)
{
    struct stat st;
    if (TEST_BYPASS(MASKS))
        return 0;
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || errno == EACCES ? 0 : -errno;
    CLEANUP_CLOSE int cover = S_ISDIR(st.st_mode) ? mnt_copy(b->stage_fd, "empty")
                                                  : mnt_copy(b->dev_fd, "null");
    return cover < 0 ? cover : mnt_attach(cover, dir_fd, path);
}

int rootfs_proc_make_read_only(int dir_fd, const char *path)
{
    if (TEST_BYPASS(READ_ONLY))
        return 0;
    CLEANUP_CLOSE int copy = mnt_clone(dir_fd, path, ROOTFS_STRICT | MOUNT_ATTR_RDONLY);
    if (copy < 0)
        return copy == -ENOENT ? 0 : copy;
    return mnt_attach(copy, dir_fd, path);
}

/* The host's boot_id names the host; each boot of a sandbox has its own. */
static int make_boot_id(const struct rootfs *b)
{
    uint8_t r[16];
    char hex[33], text[40];

    ids_random_bytes(r, sizeof(r));
    r[6] = (uint8_t)((r[6] & 0x0f) | 0x40); /* RFC 9562, version 4 */
    r[8] = (uint8_t)((r[8] & 0x3f) | 0x80);
    ids_hex(r, sizeof(r), hex);
    snprintf(text, sizeof(text), "%.8s-%.4s-%.4s-%.4s-%.12s\n", hex, hex + 8, hex + 12, hex + 16,
             hex + 20);
    CLEANUP_CLOSE int file = openat(b->stage_fd, "boot_id", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                    0444);
    if (file < 0)
        return -errno;
    int rc = io_write_full(file, text, strlen(text));
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int tree = mnt_clone(b->stage_fd, "boot_id", ROOTFS_STRICT | MOUNT_ATTR_RDONLY);
    CLEANUP_CLOSE int target = mnt_open_beneath(b->proc_fd, ROOTFS_PROC_BOOT_ID, O_PATH, 0);
    if (tree < 0 || target < 0)
        return tree < 0 ? tree : target;
    return mnt_attach(tree, target, "");
}

static int write_number(int proc_fd, const char *path, uint32_t value)
{
    char number[16];

    snprintf(number, sizeof(number), "%u", value);
    return io_write_text_at(proc_fd, path, number);
}

/* Bounds the memory of a network namespace that its sockets are not charged with. It is the
 * namespace of the calling process: where a kernel has one of them for the whole host only, it is
 * not to be seen here, and `cay doctor` looks at it. Test: probe "pool". */
static int bound_network(int proc_fd, bool command_sandbox)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(net_bounds); i++) {
        rc = write_number(proc_fd, net_bounds[i].path,
                          command_sandbox ? net_bounds[i].of_command_sandbox : net_bounds[i].value);
        if (rc == -ENOENT)
            rc = 0;
    }
    return rc;
}

/* A descriptor that leaves a command sandbox (by a socket that is a file, or opened from outside of
 * it) keeps its namespaces alive when it has ended, with the memory of each that no group is
 * charged with: a socket its network, a file of its /proc that file system, a queue its IPC
 * namespace (docs/kernel-pools.md). Namespaces that are not kept go a moment after the end, for
 * which the next command sandbox waits (command_sandbox.c). Mount namespaces are not counted, as
 * the kernel counts detached mounts among them; each of these has a /proc, and with it a pid
 * namespace. Test: test_pools_kept.py. */
static int bound_command_sandboxes(int proc_fd)
{
    static const char *const kinds[] = {"sys/user/max_net_namespaces",
                                        "sys/user/max_pid_namespaces",
                                        "sys/user/max_ipc_namespaces"};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(kinds); i++)
        rc = write_number(proc_fd, kinds[i], COMMAND_NAMESPACES_MAX);
    return rc;
}

/* Of the sandbox's own user and network namespace, through its own proc: in the host's, names of
 * all these namespaces would stand in one hash chain, and each sandbox would look through those of
 * all others. */
int rootfs_proc_set_sysctls(int proc_fd, bool command_sandbox)
{
    int rc = 0;
    /* No nested user namespaces: they open the largest part of the kernel that a filter cannot
     * see. */
    if (!TEST_BYPASS(USERNS_LIMIT))
        rc = io_write_text_at(proc_fd, "sys/user/max_user_namespaces", "0");
    rc = rc == 0 ? bound_command_sandboxes(proc_fd) : rc;
    /* Services of the sandbox's ordinary user may listen on port 80, as in other container
     * systems. */
    if (rc < 0 || TEST_BYPASS(NETWORK_NAMESPACE))
        return rc;
    rc = io_write_text_at(proc_fd, "sys/net/ipv4/ip_unprivileged_port_start", "0");
    if (rc < 0 || TEST_BYPASS(NETWORK_BOUNDS))
        return rc;
    return bound_network(proc_fd, command_sandbox);
}

int rootfs_proc_mount(struct rootfs *b)
{
    b->proc_fd = mnt_new("proc", NULL, ROOTFS_STRICT);
    int rc = b->proc_fd < 0 ? b->proc_fd : rootfs_attach_at(b->proc_fd, b->root_fd, "proc");
    if (rc == 0)
        rc = rootfs_proc_set_sysctls(b->proc_fd, false);
    if (rc == 0)
        rc = make_empty(b);
    for (size_t i = 0; rc == 0 && i < ROOTFS_PROC_READ_ONLY; i++)
        rc = rootfs_proc_make_read_only(b->proc_fd, rootfs_proc_read_only[i]);
    for (size_t i = 0; rc == 0 && i < ROOTFS_PROC_MASKED; i++)
        rc = mask(b, b->proc_fd, rootfs_proc_masked[i]);
    return rc == 0 ? make_boot_id(b) : rc;
}

/* The files are in the root's least layer (sysfs_stub.h); what the template has beside them is as
 * little to be written to. */
static int show_sys(const struct rootfs *b)
{
    CLEANUP_CLOSE int target = rootfs_target_dir(b->root_fd, "sys", 0755);
    if (target < 0)
        return target;
    CLEANUP_CLOSE int copy = mnt_clone(target, "", ROOTFS_STRICT | MOUNT_ATTR_RDONLY);
    return copy < 0 ? copy : mnt_attach(copy, target, "");
}

/* Only in test builds, to show what it would give away without masks, or to be written to. */
static bool shows_real_sys(void)
{
    if (TEST_BYPASS(MASKS))
        return true;
    return TEST_BYPASS(READ_ONLY);
}

int rootfs_proc_mount_sys(struct rootfs *b)
{
    if (!shows_real_sys())
        return show_sys(b);
    if (TEST_BYPASS(
            NETWORK_NAMESPACE)) /* sysfs needs one that is owned by the own user namespace */
        return 0;
    b->sys_fd = mnt_new("sysfs", NULL,
                        ROOTFS_STRICT | (TEST_BYPASS(READ_ONLY) ? 0 : MOUNT_ATTR_RDONLY));
    int rc = b->sys_fd < 0 ? b->sys_fd : rootfs_attach_at(b->sys_fd, b->root_fd, "sys");
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(sys_masked); i++)
        rc = mask(b, b->sys_fd, sys_masked[i]);
    return rc;
}
