/* The process level outside of the sandbox: starts and ends as tasks of privd. */

#include "runtime/internal.h"

#include "base/io.h"
#include "sys/mnt.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct start_args {
    struct runtime *rt;
    const struct runtime_slot *slot;
    const struct runtime_start *start;
    int boot_fd;  /* the agent's end */
    int boot_own; /* the starter's end */
};

/* --- starts ------------------------------------------------------------------------------------ */

/* Detached, read-only, idmapped copies of the template's trees. Only names that we make ourselves, below
 * directories that only root can change, and no link is followed. */
static int open_lower(const struct start_args *a, struct inside *in)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", a->start->template_number);
    CLEANUP_CLOSE int dir = mnt_open_beneath(a->rt->disk.templates_fd, name, O_PATH | O_DIRECTORY,
                                             0);
    if (dir < 0)
        return dir;
    in->lower_fd = mnt_clone_idmapped(dir, "rootfs", RUNTIME_LOWER_ATTR, a->slot->userns_fd);
    if (in->lower_fd < 0)
        return in->lower_fd;
    in->mask_fd = mnt_clone_idmapped(dir, "usrmask", RUNTIME_LOWER_ATTR, a->slot->userns_fd);
    if (in->mask_fd == -ENOENT)
        return 0;
    if (in->mask_fd < 0)
        return in->mask_fd;
    in->usr_fd = mnt_clone_idmapped(AT_FDCWD, "/usr", RUNTIME_LOWER_ATTR, a->slot->userns_fd);
    return in->usr_fd < 0 ? in->usr_fd : 0;
}

static int open_layer(const struct start_args *a, struct inside *in)
{
    struct disk *disk = &a->rt->disk;
    const struct runtime_slot *s = a->slot;
    uint64_t bytes = WITHOUT(DISK_LIMIT) ? 0 : a->start->limits.disk_bytes;
    int rc = disk->backend->layer_limit(disk, s->number, s->gen, bytes);
    if (rc < 0)
        return rc;
    in->upper_fd = disk->backend->layer_tree(disk, s->number, s->gen, s->userns_fd);
    return in->upper_fd < 0 && in->upper_fd != -EOPNOTSUPP ? in->upper_fd : 0;
}

/* The host's own nodes, bound one by one: a user namespace cannot make device nodes that open. */
static int open_devices(struct inside *in)
{
    CLEANUP_CLOSE int dev = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (dev < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(inside_devices); i++) {
        in->device_fds[i] = -1;
        if (i >= INSIDE_DEVICES_USUAL &&
            (!WITHOUT(DEVICES) || faccessat(dev, inside_devices[i], F_OK, 0) < 0))
            continue;
        int fd = mnt_clone(dev, inside_devices[i], MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
        if (fd < 0)
            return fd;
        in->device_fds[i] = fd;
        /* What is bound over files that must not be read has to be the device and nothing else. */
        if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode))
            return -ENODEV;
    }
    return 0;
}

static int set_limits(const struct start_args *a)
{
    const struct privsep_limits *l = &a->start->limits;
    struct cgroup_limits work = {
        .memory_bytes = l->memory_bytes, .pids = l->pids, .cpu_milli = l->cpu_milli};
    struct cgroup_limits whole = {
        .memory_bytes = l->memory_bytes ? l->memory_bytes + RUNTIME_RESERVE_MEMORY_BYTES : 0,
        .pids = l->pids ? l->pids + RUNTIME_RESERVE_PIDS : 0,
        .cpu_milli = l->cpu_milli ? l->cpu_milli + RUNTIME_RESERVE_CPU_MILLI : 0};
    if (WITHOUT(LIMITS))
        return 0;
    int rc = cgroup_limit(a->rt->cgroups, a->slot->number, CGROUP_WHOLE, &whole);
    return rc < 0 ? rc : cgroup_limit(a->rt->cgroups, a->slot->number, CGROUP_WORK, &work);
}

static int write_boot(const struct start_args *a, int n_cgroup_fds)
{
    struct agent_boot boot = {
        .version = AGENT_BOOT_VERSION,
        .cgroup_fds = (uint32_t)n_cgroup_fds,
        .open_files = a->start->limits.open_files,
        .child_caps = runtime_child_caps(),
    };
#ifdef CAY_TEST_SWITCHES
    boot.flags = without_bits;
#endif
    return io_write_full(a->boot_own, &boot, sizeof(boot)); /* fits the socket's buffer */
}

/* Everything that needs the host's root: opening layers, devices and cgroups, before it is given up. */
static int prepare(const struct start_args *a, struct inside *in, struct task_result *out)
{
    int rc = open_lower(a, in);
    if (rc < 0)
        return process_fail(out, rc == -ENOENT ? PRIVSEP_STAGE_TEMPLATE : PRIVSEP_STAGE_MOUNTS, rc);
    rc = open_layer(a, in);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_LAYER, rc);
    rc = open_devices(in);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_MOUNTS, rc);
    rc = set_limits(a);
    if (rc == 0)
        rc = cgroup_open_attach(a->rt->cgroups, a->slot->number, CGROUP_WORK, in->cgroup_fds);
    if (rc >= 0) {
        in->n_cgroup_fds = rc;
        rc = cgroup_enter(a->rt->cgroups, a->slot->number, CGROUP_AGENT);
    }
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_CGROUP, rc);
    rc = write_boot(a, in->n_cgroup_fds);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_EXEC, rc) : 0;
}

/* Joins the slot's namespaces and becomes its root: from here on this process has no right on the host.
 * The working directory is the one thing that the next mount namespace takes over. */
static int enter_slot(const struct start_args *a)
{
    if (fchdir(a->rt->stage_fd) < 0)
        return -errno;
    int rc = ns_enter(a->slot->userns_fd, CLONE_NEWUSER);
    if (rc == 0 && !WITHOUT(NETWORK_NAMESPACE))
        rc = ns_enter(a->slot->netns_fd, CLONE_NEWNET);
    return rc == 0 ? ns_become(0, 0) : rc;
}

static uint64_t namespaces(void)
{
    return CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | (WITHOUT(IPC_NAMESPACE) ? 0 : CLONE_NEWIPC) |
           (WITHOUT(CGROUP_NAMESPACE) ? 0 : CLONE_NEWCGROUP);
}

/* CLONE_PARENT: the sandbox's PID 1 is privd's child, not this task's, and outlives it. */
static int fork_inside(struct inside *in, struct task_result *out)
{
    int pipes[2], pidfd = -1;
    struct inside_failure failure;

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, -errno);
    in->status_fd = pipes[1];
    pid_t pid = ns_fork(namespaces() | CLONE_PARENT, 0, &pidfd);
    if (pid == 0) {
        close(pipes[0]);
        inside_run(in);
    }
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, pid);
    }
    out->values[0] = (uint64_t)pid;
    out->fds[out->n_fds++] = pidfd;
    /* End of file: exec has closed it. */
    int rc = io_read_full(pipes[0], &failure, sizeof(failure));
    close(pipes[0]);
    return rc == 0 ? process_fail(out, (enum privsep_stage)failure.stage, failure.status) : 0;
}

static int start_sandbox(void *arg, struct task_result *out)
{
    const struct start_args *a = arg;
    struct inside in = {.start = a->start,
                        .filter = &a->rt->filter,
                        .agent_fd = a->rt->agent_fd,
                        .lower_fd = -1,
                        .mask_fd = -1,
                        .usr_fd = -1,
                        .upper_fd = -1,
                        .boot_fd = a->boot_fd,
                        .status_fd = -1};

    int rc = prepare(a, &in, out);
    if (rc < 0)
        return rc;
    rc = enter_slot(a);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    return fork_inside(&in, out);
}

int process_start_begin(struct runtime *rt, const struct runtime_slot *slot,
                        const struct runtime_start *start, struct task *out, int *boot_fd)
{
    int pair[2];
    if (start->flags != 0)
        return -EINVAL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    struct start_args args = {
        .rt = rt, .slot = slot, .start = start, .boot_fd = pair[1], .boot_own = pair[0]};
    int rc = task_spawn(start_sandbox, &args, out);
    close(pair[1]);
    /* After the fork, but the flag belongs to the shared open file: what the task writes is 24 bytes into
     * an empty buffer, which blocks neither way. */
    if (rc == 0)
        rc = io_set_nonblock(pair[0], true);
    if (rc < 0) {
        close(pair[0]);
        return rc;
    }
    *boot_fd = pair[0];
    return 0;
}

int process_start_finish(struct runtime *rt, struct task *t, struct runtime_started *out,
                         uint32_t *stage)
{
    struct task_result result = {.stage = PRIVSEP_STAGE_NAMESPACES};
    int rc = process_collect(t, &result, stage);
    if (rc == -EAGAIN)
        return rc;
    if (rc == 0 && result.n_fds == 1) {
        *out = (struct runtime_started){.pid = (pid_t)result.values[0], .pidfd = result.fds[0]};
        return 0;
    }
    for (uint32_t i = 0; i < result.n_fds; i++) {
        int code, status;
        /* It reported a failure and is ending: our child, so that we have to wait for it. */
        pid_kill(result.fds[i], SIGKILL);
        pid_wait(result.fds[i], &code, &status);
        util_close(&result.fds[i]);
    }
    return rc < 0 ? rc : -EPROTO;
}

/* --- ends -------------------------------------------------------------------------------------- */

static int end_slot(void *arg, struct task_result *out)
{
    const struct process_slot_args *a = arg;
    struct runtime *rt = a->rt;
    int rc = cgroup_remove(rt->cgroups, a->number);
    /* A layer that processes may still write to is not taken away: the caller tries again. */
    if (rc < 0)
        return rc;
    return rt->disk.backend->layer_destroy(&rt->disk, a->number, a->gen);
}

int process_end_begin(struct runtime *rt, uint32_t number, uint32_t gen, struct task *out)
{
    struct process_slot_args args = {.rt = rt, .number = number, .gen = gen};
    if (number >= RUNTIME_SLOTS_MAX)
        return -ERANGE;
    return task_spawn(end_slot, &args, out);
}

int process_end_finish(struct runtime *rt, struct task *t)
{
    struct task_result result = {0};
    return process_collect(t, &result, NULL);
}
