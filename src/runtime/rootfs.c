/* The file system tree of a sandbox, built inside its mount namespace by its own root.
 *
 * All of it happens below one tmpfs ("the stage") that is attached over the working directory; /dev
 * and /run are directories of it, as each file system costs an entry in a table of each control
 * group there is. Layers come as detached, idmapped trees; the only names that are looked up are
 * ours, relative to held descriptors, and inside the new root with openat2 that follows no link: a
 * template may be hostile. */

#include "runtime/internal.h"

#include "base/ids.h"
#include "base/io.h"
#include "sys/mnt.h"
#include "sys/net_bounds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

const char *const inside_devices[INSIDE_DEVICES] = {
    "null", "zero", "full", "random", "urandom",      "tty",
#ifdef CAY_TEST_SWITCHES
    "kmsg", "mem",  "kvm",  "fuse",   "loop-control", "net/tun", "vsock",
#endif
};

/* Namespaces of each kind of a sandbox's command sandboxes: of the eight that may live, and of
 * three that are still going, or that a descriptor keeps. The sandbox's own count for the user who
 * made them. */
#define COMMAND_NAMESPACES_MAX 11
#define STRICT                 ROOTFS_STRICT

struct build {
    const struct inside *in;
    int stage_fd, root_fd, proc_fd, sys_fd, dev_fd;
};

/* A directory at path (one or more existing components and a last one that is made when
 * missing). */
static int target_dir(int dir_fd, const char *path, unsigned mode)
{
    int fd = mnt_open_beneath(dir_fd, path, O_PATH | O_DIRECTORY, 0);
    if (fd != -ENOENT)
        return fd;
    if (mkdirat(dir_fd, path, mode) < 0)
        return -errno;
    return mnt_open_beneath(dir_fd, path, O_PATH | O_DIRECTORY, 0);
}

/* Attaches a detached tree at a directory and closes nothing: descriptors end with exec. */
static int attach_at(int tree_fd, int dir_fd, const char *path)
{
    CLEANUP_CLOSE int target = target_dir(dir_fd, path, 0755);
    return target < 0 ? target : mnt_attach(tree_fd, target, "");
}

/* --- layers
 * ------------------------------------------------------------------------------------ */

/* One tmpfs for the mount points, /dev, /run and /dev/shm: each file system costs every memory
 * control group of the host an entry in a table, whosever they are, so that at thousands of
 * sandboxes those tables are most of what they take. A sandbox that fills it does so to itself. It
 * came with /dev and its nodes (stage.c). */
static int open_stage(struct build *b)
{
    static const struct {
        const char *name;
        mode_t mode;
    } dirs[] = {
        {"lower", 0755}, {"mask", 0755},  {"usr", 0755}, {"upper", 0755}, {"root", 0755},
        {"view", 0755},  {"empty", 0755}, {"run", 0755}, {"shm", 01777},  {"run/lock", 01777},
    };
    b->stage_fd = b->in->stage_fd;
    int rc = mnt_attach(b->stage_fd, AT_FDCWD, "");
    if (rc < 0)
        return rc;
    if (fchdir(b->stage_fd) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        if (mkdir(dirs[i].name, dirs[i].mode) < 0 || chmod(dirs[i].name, dirs[i].mode) < 0)
            return -errno;
    return 0;
}

/* The writable layer as a tmpfs of the sandbox's own, where there is no disk. */
static int memory_upper(const struct inside *in)
{
    char size[32];
    snprintf(size, sizeof(size), "%llu", (unsigned long long)in->start->limits.disk_bytes);
    const struct mnt_option options[] = {{"mode", "0755"}, {"size", size}, {NULL, NULL}};
    int fd = mnt_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    for (const char *const *dir = disk_layer_dirs; fd >= 0 && *dir; dir++) {
        if (mkdirat(fd, *dir, 0755) < 0) {
            int rc = -errno;
            close(fd);
            return rc;
        }
    }
    return fd;
}

static int attach_layers(const struct build *b)
{
    const struct inside *in = b->in;
    int upper = in->upper_fd >= 0 ? in->upper_fd : memory_upper(in);
    int rc = upper < 0 ? upper : mnt_attach(upper, b->stage_fd, "upper");
    if (rc == 0)
        rc = mnt_attach(in->lower_fd, b->stage_fd, "lower");
    if (rc == 0 && in->view_fd >= 0)
        rc = mnt_attach(in->view_fd, b->stage_fd, "view");
    if (rc == 0 && in->usr_fd >= 0) {
        rc = mnt_attach(in->mask_fd, b->stage_fd, "mask");
        if (rc == 0)
            rc = mnt_attach(in->usr_fd, b->stage_fd, "usr");
    }
    return rc;
}

/* Mounted by the sandbox's root, whose ids the layers have through their maps. `userxattr`: marks
 * are kept in user.* attributes, as trusted.* is the host's. Relative names are all that mountinfo
 * shows later. `volatile`: the file system below is one for all sandboxes, and without this each
 * sync, fsync and end of a sandbox commits all of it (milliseconds, for all). What a sandbox wrote
 * is thereby on disk when the kernel gets to it; a caller that wants it there (a pause that is to
 * survive the host) calls syncfs on the layer. A layer is mounted so only once in its life: the
 * kernel leaves work/incompat behind and refuses it then. */
static int overlay(const char *lower, const char *upper, const char *work, uint64_t attr)
{
    const struct mnt_option options[] = {
        {"lowerdir", lower}, {"upperdir", upper}, {"workdir", work},
        {"userxattr", NULL}, {"volatile", NULL},  {NULL, NULL},
    };
    int rc = mnt_new("overlay", options, MOUNT_ATTR_NODEV | attr);
    if (rc != -EIO)
        return rc;
    /* A write that failed on the disk, of any process, has not been reported yet: the kernel wants
     * it taken note of. Once; one that fails again fails. */
    CLEANUP_CLOSE int fd = mnt_open_beneath(AT_FDCWD, upper, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || (syncfs(fd) < 0 && errno != EIO && errno != ENOSPC && errno != EDQUOT))
        return rc;
    return mnt_new("overlay", options, MOUNT_ATTR_NODEV | attr);
}

static int make_file(int dir_fd, const char *name)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, name,
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : 0;
}

/* The agent writes into them once the sandbox has a name. They are made before the layer is an
 * overlay's, and so hide what the template has by these names, a link too; to remove and make them
 * anew through the overlay costs the work of a whole rename. The layer is new: nothing in it
 * belongs to a tenant. */
static int make_name_files(const struct build *b)
{
    struct stat st;

    if (mkdirat(b->stage_fd, "upper/root/etc", 0755) < 0) {
        if (errno != EEXIST || !b->in->start->kept ||
            fstatat(b->stage_fd, "upper/root/etc", &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
        /* The tenant of a layer that was kept has put something else there: it stays, and the
         * sandbox starts without these files. Where it is a directory, disk.c has made room. */
        if (!S_ISDIR(st.st_mode))
            return 0;
    }
    int rc = make_file(b->stage_fd, "upper/root" AGENT_NAMES_DIR "/" AGENT_HOSTS_NAME);
    return rc < 0 ? rc
                  : make_file(b->stage_fd, "upper/root" AGENT_NAMES_DIR "/" AGENT_HOSTNAME_NAME);
}

static int mount_root(struct build *b)
{
    int rc = attach_layers(b);
    if (rc == 0)
        rc = make_name_files(b);
    if (rc < 0)
        return rc;
    b->root_fd = overlay(b->in->view_fd >= 0 ? "lower:view" : "lower", "upper/root",
                         "upper/root.work", 0);
    if (b->root_fd < 0)
        return b->root_fd;
    rc = mnt_attach(b->root_fd, b->stage_fd, "root");
    if (rc < 0 || b->in->usr_fd < 0)
        return rc;
    CLEANUP_CLOSE int usr = overlay("mask:usr", "upper/usr", "upper/usr.work", 0);
    return usr < 0 ? usr : attach_at(usr, b->root_fd, "usr");
}

/* --- /dev
 * -------------------------------------------------------------------------------------- */

/* Each over itself: no program can then remove it or put another in its place, and it alone is a
 * device there, as /dev is nodev. The copy is of the stage, which is not. */
static int attach_own_device(const struct build *b, const char *name)
{
    char path[32];
    snprintf(path, sizeof(path), "dev/%s", name);
    CLEANUP_CLOSE int node = mnt_clone(b->stage_fd, path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    return node < 0 ? node : mnt_attach(node, b->dev_fd, name);
}

/* Only in test builds. */
static int attach_host_device(const struct build *b, size_t i)
{
    CLEANUP_CLOSE int node = openat(b->dev_fd, inside_devices[i],
                                    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    return node < 0 ? -errno : mnt_attach(b->in->device_fds[i], b->dev_fd, inside_devices[i]);
}

static int make_devices(const struct build *b)
{
    if (TEST_BYPASS(DEVICES) && mkdirat(b->dev_fd, "net", 0755) < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(inside_devices); i++) {
        int rc = b->in->device_fds[i] >= 0  ? attach_host_device(b, i)
                 : i < INSIDE_DEVICES_USUAL ? attach_own_device(b, inside_devices[i])
                                            : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int make_links(const struct build *b)
{
    static const char *const links[][2] = {
        {"/proc/self/fd", "fd"},       {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
        {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlinkat(links[i][0], b->dev_fd, links[i][1]) < 0)
            return -errno;
    return 0;
}

static int mount_shm(const struct build *b)
{
    CLEANUP_CLOSE int fd = mnt_clone(b->stage_fd, "shm", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? fd : attach_at(fd, b->dev_fd, "shm");
}

static int new_terminals(unsigned max)
{
    /* The kernel's pool of terminals is one for the whole host (kernel.pty.max, which cay-keep
     * sets), and what one of them holds is charged to no group: a maximum for each instance. No
     * `gid`: mountinfo would show it in the host's numbers; cay-init gives the terminals that it
     * opens to the group tty by itself. */
    char number[16];
    const struct mnt_option tty[] = {
        {"mode", "0620"}, {"ptmxmode", "0666"}, {"max", number}, {"gid", "5"}, {NULL, NULL}};
    const struct mnt_option usual[] = {
        {"mode", "0620"}, {"ptmxmode", "0666"}, {"max", number}, {NULL, NULL}};
    const struct mnt_option *options = TEST_BYPASS(MASKS) ? tty : usual;

    snprintf(number, sizeof(number), "%u", max);

    return mnt_new("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

/* Two instances, one over the other: below is that of all command sandboxes, who take the upper one
 * away (command_sandbox.c). An instance for each of them would bound nothing: a terminal that one
 * of them hands on, by a socket that is a file, outlives it, and its successor would have as many
 * again. Test: test_pools_kept.py. */
static int mount_terminals(const struct build *b)
{
    CLEANUP_CLOSE int commands = new_terminals(PRIVSEP_COMMAND_TERMINALS_MAX);
    int rc = commands < 0 ? commands : attach_at(commands, b->dev_fd, "pts");
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int own = new_terminals(PRIVSEP_TERMINALS_MAX);
    return own < 0 ? own : attach_at(own, b->dev_fd, "pts");
}

static int mount_dev(struct build *b)
{
    b->dev_fd = mnt_clone(b->stage_fd, "dev", STRICT);
    int rc = b->dev_fd < 0 ? b->dev_fd : attach_at(b->dev_fd, b->root_fd, "dev");
    if (rc == 0)
        rc = make_devices(b);
    if (rc == 0)
        rc = make_links(b);
    if (rc < 0)
        return rc;
    rc = mount_terminals(b);
    return rc == 0 ? mount_shm(b) : rc;
}

/* --- /proc, /sys
 * ------------------------------------------------------------------------------- */

/* Only ever shown what the sandbox's own namespaces allow; on top of that, what container runtimes
 * hide, and what is of the host's devices: bus (their registers), fs (its disks, whose file systems
 * a reader locks), irq (how often each has interrupted); and cgroups, which counts the control
 * groups of the whole host: how many sandboxes and command sandboxes there are. Test: probe
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
static int make_empty(const struct build *b)
{
    CLEANUP_CLOSE int fd = mnt_clone(b->stage_fd, "empty", STRICT | MOUNT_ATTR_RDONLY);
    return fd < 0 ? fd : mnt_attach(fd, b->stage_fd, "empty");
}

/* Covers a file with /dev/null or a directory with the empty one; what is not there needs no mask.
 * The names are the kernel's own: no process can change where they lead, and a link as the last of
 * them is not followed. */
static int mask(const struct build *b, int dir_fd, const char *path)
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

int rootfs_make_read_only(int dir_fd, const char *path)
{
    if (TEST_BYPASS(READ_ONLY))
        return 0;
    CLEANUP_CLOSE int copy = mnt_clone(dir_fd, path, STRICT | MOUNT_ATTR_RDONLY);
    if (copy < 0)
        return copy == -ENOENT ? 0 : copy;
    return mnt_attach(copy, dir_fd, path);
}

/* The host's boot_id names the host; each boot of a sandbox has its own. */
static int make_boot_id(const struct build *b)
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
    CLEANUP_CLOSE int tree = mnt_clone(b->stage_fd, "boot_id", STRICT | MOUNT_ATTR_RDONLY);
    CLEANUP_CLOSE int target = mnt_open_beneath(b->proc_fd, ROOTFS_BOOT_ID, O_PATH, 0);
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

/* What a network namespace may hold beside what its sockets are charged with. Of the network
 * namespace that the calling process is in: where a kernel has one of them for the whole host only,
 * it is not to be seen here, and `cay doctor` looks at it. Test: probe "pool". */
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

/* What a command sandbox hands on (by a socket that is a file, or as who is outside of it may open
 * what it has) keeps its namespaces alive when it has ended, with what each of them may hold and no
 * group is charged with: a socket its network, a file of its /proc that file system, a queue its
 * IPC namespace (docs/kernel-pools.md). What ended and is not kept goes a moment later, for which
 * the next one waits (command_sandbox.c). Mount namespaces are not counted, as the kernel counts
 * detached mounts among them; each of these has a /proc, and with it a pid namespace. Test:
 * test_pools_kept.py. */
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
int rootfs_set_sysctls(int proc_fd, bool command_sandbox)
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

static int mount_proc(struct build *b)
{
    b->proc_fd = mnt_new("proc", NULL, STRICT);
    int rc = b->proc_fd < 0 ? b->proc_fd : attach_at(b->proc_fd, b->root_fd, "proc");
    if (rc == 0)
        rc = rootfs_set_sysctls(b->proc_fd, false);
    if (rc == 0)
        rc = make_empty(b);
    for (size_t i = 0; rc == 0 && i < ROOTFS_PROC_READ_ONLY; i++)
        rc = rootfs_make_read_only(b->proc_fd, rootfs_proc_read_only[i]);
    for (size_t i = 0; rc == 0 && i < ROOTFS_PROC_MASKED; i++)
        rc = mask(b, b->proc_fd, rootfs_proc_masked[i]);
    return rc == 0 ? make_boot_id(b) : rc;
}

/* The files are in the root's least layer (sysfs_stub.h); what the template has beside them is as
 * little to be written to. */
static int show_sys(const struct build *b)
{
    CLEANUP_CLOSE int target = target_dir(b->root_fd, "sys", 0755);
    if (target < 0)
        return target;
    CLEANUP_CLOSE int copy = mnt_clone(target, "", STRICT | MOUNT_ATTR_RDONLY);
    return copy < 0 ? copy : mnt_attach(copy, target, "");
}

/* Only in test builds, to show what it would give away without masks, or to be written to. */
static bool shows_real_sys(void)
{
    if (TEST_BYPASS(MASKS))
        return true;
    return TEST_BYPASS(READ_ONLY);
}

static int mount_sys(struct build *b)
{
    if (!shows_real_sys())
        return show_sys(b);
    if (TEST_BYPASS(
            NETWORK_NAMESPACE)) /* sysfs needs one that is owned by the own user namespace */
        return 0;
    b->sys_fd = mnt_new("sysfs", NULL, STRICT | (TEST_BYPASS(READ_ONLY) ? 0 : MOUNT_ATTR_RDONLY));
    int rc = b->sys_fd < 0 ? b->sys_fd : attach_at(b->sys_fd, b->root_fd, "sys");
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(sys_masked); i++)
        rc = mask(b, b->sys_fd, sys_masked[i]);
    return rc;
}

/* --- the rest
 * ---------------------------------------------------------------------------------- */

static int mount_run(const struct build *b)
{
    CLEANUP_CLOSE int fd = mnt_clone(b->stage_fd, "run", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    return fd < 0 ? fd : attach_at(fd, b->root_fd, "run");
}

/* As an overlay of its own, like the sandbox's root, and for the same reasons: what is asked of its
 * files (ioctl, fsync, sockets, locks, leases) is answered by this sandbox's overlay, not by the
 * disk that all share, nor by an inode that another sandbox has too. Set-id programs work on no
 * volume: another sandbox made them. Tests: test_volumes_privd.py. */
static int overlay_volume(const char *place, bool read_only)
{
    char lower[48], upper[32], work[48];

    snprintf(lower, sizeof(lower), "%s/root:empty", place);
    snprintf(upper, sizeof(upper), "%s/root", place);
    snprintf(work, sizeof(work), "%s/root.work", place);
    if (!read_only)
        return overlay("empty", upper, work, MOUNT_ATTR_NOSUID);
    const struct mnt_option options[] = {{"lowerdir", lower}, {"userxattr", NULL}, {NULL, NULL}};
    return mnt_new("overlay", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY);
}

static int mount_volume(const struct build *b, size_t i, int volumes_fd)
{
    bool read_only = b->in->start->volumes[i].flags & PRIVSEP_MOUNT_READ_ONLY;
    char place[16], name[16];

    snprintf(place, sizeof(place), "volume%zu", i);
    snprintf(name, sizeof(name), "%zu", i);
    int rc = attach_at(b->in->volume_fds[i], b->stage_fd, place);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int tree = overlay_volume(place, read_only);
    return tree < 0 ? tree : attach_at(tree, volumes_fd, name);
}

/* At places of cay's own, in /run, which is new with each start: none of a tenant's names is looked
 * up. cay-init, which has no right on the host, makes links to them where they are wanted. */
static int mount_volumes(const struct build *b)
{
    CLEANUP_CLOSE int dir = -1;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < PRIVSEP_CREATE_VOLUMES; i++) {
        if (b->in->volume_fds[i] < 0)
            continue;
        if (dir < 0)
            dir = target_dir(b->root_fd, &AGENT_VOLUMES_DIR[1], 0755);
        rc = dir < 0 ? dir : mount_volume(b, i, dir);
    }
    return rc;
}

static int open_tmp(const struct build *b)
{
    struct stat st;
    CLEANUP_CLOSE int fd = target_dir(b->root_fd, "tmp", 0777);
    /* A template, or the tenant of a layer that was kept, may have put a link or a file there: it
     * stays so. */
    if (fd == -ELOOP || fd == -ENOTDIR)
        return 0;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if ((st.st_mode & 07777) == 01777)
        return 0;
    return fchmodat(b->root_fd, "tmp", 01777, 0) < 0 ? -errno : 0;
}

int rootfs_build(const struct inside *in)
{
    struct build b = {
        .in = in, .stage_fd = -1, .root_fd = -1, .proc_fd = -1, .sys_fd = -1, .dev_fd = -1};
    int (*const steps[])(struct build * b) = {open_stage, mount_root, mount_dev, mount_proc,
                                              mount_sys};
    int rc = mnt_make_private();
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(steps); i++)
        rc = steps[i](&b);
    if (rc == 0)
        rc = mount_run(&b);
    if (rc == 0)
        rc = mount_volumes(&b);
    if (rc == 0)
        rc = open_tmp(&b);
    return rc < 0 ? rc : b.root_fd;
}
