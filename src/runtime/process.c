/* The process level outside of the sandbox: starts and ends as tasks of privd. A start is a
 * task, a child of privd: it opens with the host's root what the sandbox is to have, gives up
 * that right by joining or making the sandbox's namespaces, forks PID 1 as privd's child and
 * waits for its exec. Two ways: into a slot that was made ahead, or slot and start in one.
 * *_begin returns at once; *_finish collects the task's result when privd's loop sees it. */

#include "runtime/internal.h"

#include "base/io.h"
#include "sys/fdpass.h"
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
    struct process_boot boot;
};

/* --- starts ----------------------------------------------------------------------------------- */

/* Detached, read-only, idmapped copies of the template's trees. Only names that we make ourselves,
 * below directories that only root can change, and no link is followed. */
static int open_lower(const struct start_args *a, int userns_fd, struct inside *in)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", a->start->template_number);
    CLEANUP_CLOSE int dir = mnt_open_beneath(a->rt->disk.templates_fd, name, O_PATH | O_DIRECTORY,
                                             0);
    if (dir < 0)
        return dir;
    in->lower_fd = mnt_clone_idmapped(dir, "rootfs", RUNTIME_LOWER_ATTR, userns_fd);
    if (in->lower_fd < 0)
        return in->lower_fd;
    if (a->rt->disk.view_fd >= 0) {
        in->view_fd = mnt_clone_idmapped(a->rt->disk.view_fd, "", RUNTIME_LOWER_ATTR, userns_fd);
        if (in->view_fd < 0)
            return in->view_fd;
    }
    in->mask_fd = mnt_clone_idmapped(dir, "usrmask", RUNTIME_LOWER_ATTR, userns_fd);
    if (in->mask_fd == -ENOENT)
        return 0;
    if (in->mask_fd < 0)
        return in->mask_fd;
    in->usr_fd = mnt_clone_idmapped(AT_FDCWD, "/usr", RUNTIME_LOWER_ATTR, userns_fd);
    return in->usr_fd < 0 ? in->usr_fd : 0;
}

static int limit_layer(const struct start_args *a)
{
    struct disk *disk = &a->rt->disk;
    uint64_t bytes = TEST_BYPASS(DISK_LIMIT) ? 0 : a->start->limits.disk_bytes;
    return disk->backend->layer_limit(disk, a->slot->number, a->slot->gen, bytes);
}

static int open_layer(const struct start_args *a, int userns_fd, struct inside *in)
{
    struct disk *disk = &a->rt->disk;
    in->upper_fd = disk->backend->layer_tree(disk, a->slot->number, a->slot->gen, userns_fd);
    return in->upper_fd < 0 && in->upper_fd != -EOPNOTSUPP ? in->upper_fd : 0;
}

static int open_volumes(const struct start_args *a, int userns_fd, struct inside *in)
{
    const struct disk *disk = &a->rt->disk;

    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++) {
        const struct privsep_mount *v = &a->start->volumes[i];

        if (!v->number)
            continue;
        in->volume_fds[i] = disk->backend->volume_tree
                                ? disk->backend->volume_tree(disk, v->number,
                                                             v->flags & PRIVSEP_MOUNT_READ_ONLY,
                                                             userns_fd)
                                : -EOPNOTSUPP;
        if (in->volume_fds[i] < 0)
            return in->volume_fds[i];
    }
    return 0;
}

/* The trees, with the ids of the slot's user namespace. */
static int open_trees(const struct start_args *a, int userns_fd, struct inside *in,
                      struct task_result *out)
{
    int rc = open_lower(a, userns_fd, in);
    if (rc < 0)
        return process_fail(out, rc == -ENOENT ? PRIVSEP_STAGE_TEMPLATE : PRIVSEP_STAGE_MOUNTS, rc);
    rc = open_layer(a, userns_fd, in);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_LAYER, rc);
    rc = open_volumes(a, userns_fd, in);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_VOLUME, rc) : 0;
}

/* Only in test builds: whether a node is to be the host's. */
static bool is_shown(size_t device)
{
    bool usual = device < INSIDE_DEVICES_USUAL;

    return (usual && TEST_BYPASS(OWN_NODES)) || (!usual && TEST_BYPASS(DEVICES));
}

static int open_host_devices(struct inside *in)
{
    CLEANUP_CLOSE int dev = open("/dev", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dev < 0)
        return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(inside_devices); i++) {
        if (!is_shown(i) || faccessat(dev, inside_devices[i], F_OK, 0) < 0)
            continue;
        in->device_fds[i] = mnt_clone(dev, inside_devices[i],
                                      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
        if (in->device_fds[i] < 0)
            return in->device_fds[i];
    }
    return 0;
}

static int open_stage(const struct start_args *a, struct inside *in)
{
    for (size_t i = 0; i < ARRAY_SIZE(in->device_fds); i++)
        in->device_fds[i] = -1;
    in->stage_fd = stage_make(runtime_slot_uid(a->rt, a->slot->number),
                              a->start->limits.memory_bytes);
    if (in->stage_fd < 0)
        return in->stage_fd;
    /* NOLINTNEXTLINE(misc-redundant-expression): both are false but in test builds */
    return TEST_BYPASS(DEVICES) || TEST_BYPASS(OWN_NODES) ? open_host_devices(in) : 0;
}

/* A limit of all processors, or more, holds no process back, but costs: for each that is set, the
 * kernel walks over all control groups of the machine. */
static uint32_t cpu_limit(const struct runtime *rt, uint32_t milli)
{
    return milli < rt->cpus * 1000 ? milli : 0;
}

static int set_limits(const struct start_args *a)
{
    const struct privsep_limits *l = &a->start->limits;
    uint32_t whole_cpu = l->cpu_milli ? l->cpu_milli + RUNTIME_RESERVE_CPU_MILLI : 0;
    struct cgroup_limits work = {.memory_bytes = l->memory_bytes,
                                 .pids = l->pids,
                                 .cpu_milli = cpu_limit(a->rt, l->cpu_milli)};
    struct cgroup_limits whole = {
        .memory_bytes = l->memory_bytes ? l->memory_bytes + RUNTIME_RESERVE_MEMORY_BYTES : 0,
        .pids = l->pids ? l->pids + RUNTIME_RESERVE_PIDS : 0,
        .cpu_milli = cpu_limit(a->rt, whole_cpu)};
    if (TEST_BYPASS(LIMITS))
        return 0;
    int rc = cgroup_limit(a->rt->cgroups, a->slot->number, CGROUP_WHOLE, &whole);
    return rc < 0 ? rc : cgroup_limit(a->rt->cgroups, a->slot->number, CGROUP_WORK, &work);
}

int process_write_boot(const struct process_boot *b, const struct inside *in, uint32_t open_files,
                       uint32_t filters)
{
    struct agent_boot boot = {
        .version = AGENT_BOOT_VERSION,
        .cgroup_fds = (uint32_t)in->n_cgroup_fds,
        .open_files = open_files,
        .child_caps = runtime_child_caps(),
        .command_sandbox = in->command_sandbox,
        .netlink_pass = {in->filter->netlink_pass[0], in->filter->netlink_pass[1]},
        .filters = filters,
        .oom_fd = in->oom_fd >= 0,
    };
#ifdef CAY_TEST_SWITCHES
    boot.flags = test_bypass_bits;
#endif
    return io_write_full(b->own_fd, &boot, sizeof(boot)); /* fits the socket's buffer */
}

/* What else needs the host's root, before it is given up: devices and cgroups. */
static int prepare(const struct start_args *a, struct inside *in, struct task_result *out)
{
    int rc = limit_layer(a);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_LAYER, rc);
    rc = set_limits(a);
    if (rc == 0)
        rc = cgroup_open_attach(a->rt->cgroups, a->slot->number, CGROUP_WORK, in->cgroup_fds);
    if (rc >= 0) {
        in->n_cgroup_fds = rc;
        rc = cgroup_open_attach(a->rt->cgroups, a->slot->number, CGROUP_AGENT,
                                in->agent_cgroup_fds);
    }
    /* What is forked from here begins its control group namespace in `work`, so that the programs
     * of the tenant see themselves at its root. PID 1 then goes to the agent's leaf by itself
     * (join_agent). */
    if (rc >= 0) {
        in->n_agent_cgroup_fds = rc;
        rc = cgroup_enter(a->rt->cgroups, a->slot->number, CGROUP_WORK);
    }
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_CGROUP, rc);
    in->oom_fd = cgroup_open_oom(a->rt->cgroups, a->slot->number, CGROUP_WORK);
    rc = process_write_boot(&a->boot, in, a->start->limits.open_files, a->start->limits.filters);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_EXEC, rc);
    rc = open_stage(a, in); /* in its control group by now: the sandbox pays for what is in it */
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_MOUNTS, rc);
    /* The working directory is the one thing that the next mount namespace takes over. */
    return fchdir(a->rt->stage_fd) < 0 ? process_fail(out, PRIVSEP_STAGE_MOUNTS, -errno) : 0;
}

/* Joins the slot's namespaces and becomes its root: from here on this process has no right on the
 * host. */
static int enter_slot(const struct start_args *a)
{
    int rc = ns_enter(a->slot->userns_fd, CLONE_NEWUSER);
    if (rc == 0 && !TEST_BYPASS(NETWORK_NAMESPACE))
        rc = ns_enter(a->slot->netns_fd, CLONE_NEWNET);
    return rc == 0 ? ns_become(0, 0) : rc;
}

static uint64_t namespaces(void)
{
    return CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS |
           (TEST_BYPASS(IPC_NAMESPACE) ? 0 : CLONE_NEWIPC) |
           (TEST_BYPASS(CGROUP_NAMESPACE) ? 0 : CLONE_NEWCGROUP);
}

/* End of file: exec has closed it. */
int process_await_exec(int status_fd, struct task_result *out)
{
    struct inside_failure failure;
    int rc = io_read_full(status_fd, &failure, sizeof(failure));
    return rc == 0 ? process_fail(out, (enum privsep_stage)failure.stage, failure.status) : 0;
}

/* As the first thing in PID 1 to be: what it makes from here on is charged to its own reserve. With
 * the permission of who opened the files; they are closed by exec. */
static int join_agent(const struct inside *in)
{
    for (int i = 0; i < in->n_agent_cgroup_fds; i++)
        if (write(in->agent_cgroup_fds[i], "0", 1) != 1)
            return -errno;
    return 0;
}

NORETURN static void run_inside(const struct inside *in)
{
    struct inside_failure failure = {.stage = PRIVSEP_STAGE_CGROUP, .status = join_agent(in)};

    if (failure.status == 0)
        inside_run(in);
    (void)!write(in->status_fd, &failure, sizeof(failure));
    _exit(1);
}

/* CLONE_PARENT: the sandbox's PID 1 is privd's child, not this task's, and outlives it. */
static int fork_inside(struct inside *in, struct task_result *out)
{
    int pipes[2], pidfd = -1;

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, -errno);
    in->status_fd = pipes[1];
    pid_t pid = ns_fork(namespaces() | CLONE_PARENT, 0, &pidfd);
    if (pid == 0) {
        close(pipes[0]);
        run_inside(in);
    }
    close(pipes[1]);
    CLEANUP_CLOSE int status_fd = pipes[0];
    if (pid < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, pid);
    out->values[0] = (uint64_t)pid;
    out->fds[out->n_fds++] = pidfd;
    return process_await_exec(status_fd, out);
}

static int start_in_slot(const struct start_args *a, struct inside *in, struct task_result *out)
{
    int rc = prepare(a, in, out);
    if (rc == 0)
        rc = open_trees(a, a->slot->userns_fd, in, out);
    if (rc < 0)
        return rc;
    rc = enter_slot(a);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    return fork_inside(in, out);
}

/* --- slot and start in one -------------------------------------------------------------------- */

/* The trees that are opened for the child when its user namespace is there; -1: there is none. */
#define TREES (5 + PRIVSEP_CREATE_VOLUMES)
_Static_assert(TREES <= FDPASS_MAX, "one message");
_Static_assert(TREES <= 16, "a bit each");

static void list_trees(struct inside *in, int *trees[static TREES])
{
    trees[0] = &in->lower_fd;
    trees[4] = &in->view_fd;
    trees[1] = &in->mask_fd;
    trees[2] = &in->usr_fd;
    trees[3] = &in->upper_fd;
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++)
        trees[5 + i] = &in->volume_fds[i];
}

/* Which of them travel is told by a bit each. They are closed here once the message has them. */
static int send_trees(int sock, struct inside *in)
{
    int *trees[TREES], fds[TREES];
    uint16_t which = 0;
    size_t n = 0;

    list_trees(in, trees);
    for (unsigned i = 0; i < TREES; i++) {
        if (*trees[i] < 0)
            continue;
        which |= (uint16_t)(1u << i);
        fds[n++] = *trees[i];
    }
    return fdpass_send(sock, &which, sizeof(which), fds, n, 0);
}

static int take_trees(int sock, struct inside *in)
{
    int *trees[TREES], fds[TREES];
    uint16_t which = 0;
    size_t n = 0, at = 0;
    ssize_t got = fdpass_recv(sock, &which, sizeof(which), fds, TREES, &n, 0);

    if (got != (ssize_t)sizeof(which))
        return got < 0 ? (int)got : -ECHILD;
    list_trees(in, trees);
    for (unsigned i = 0; i < TREES && at < n; i++)
        if (which & (1u << i))
            *trees[i] = fds[at++];
    return 0;
}

/* PID 1 to be, in namespaces of its own from its first instruction on: no right on the host. Its
 * ids are mapped when the message comes. End of file: the task has failed, and says why. */
NORETURN static void run_whole(struct inside *in, int sock)
{
    struct inside_failure failure = {.stage = PRIVSEP_STAGE_CGROUP};

    if (take_trees(sock, in) < 0)
        _exit(1);
    failure.status = join_agent(in);
    if (failure.status == 0) {
        failure.stage = PRIVSEP_STAGE_NETWORK;
        failure.status = process_set_up_network(NFT_RATE_SANDBOX);
    }
    if (failure.status == 0)
        inside_run(in);
    (void)!write(in->status_fd, &failure, sizeof(failure));
    _exit(1);
}

/* The other end of run_whole. */
static int serve_whole(const struct start_args *a, struct inside *in, pid_t pid, int sock,
                       struct task_result *out)
{
    int rc = ns_write_maps(pid, runtime_slot_uid(a->rt, a->slot->number), RUNTIME_UID_COUNT);
    CLEANUP_CLOSE int userns = rc < 0 ? rc : ns_open(pid, "user");

    if (userns < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, userns);
    rc = open_trees(a, userns, in, out);
    if (rc < 0)
        return rc;
    rc = send_trees(sock, in);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc) : 0;
}

int process_ends_open(struct process_ends *e)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    e->status_fd = pair[0];
    e->status_end = pair[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    e->sock = pair[0];
    e->sock_end = pair[1];
    return 0;
}

void process_ends_close(struct process_ends *e)
{
    util_close(&e->status_fd);
    util_close(&e->status_end);
    util_close(&e->sock);
    util_close(&e->sock_end);
}

static int fork_whole(const struct start_args *a, struct inside *in, struct task_result *out)
{
    CLEANUP_PROCESS_ENDS struct process_ends ends = PROCESS_ENDS_NONE;
    int pidfd = -1, rc = process_ends_open(&ends);

    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    in->status_fd = ends.status_end;
    pid_t pid = process_fork_owned(runtime_slot_uid(a->rt, a->slot->number),
                                   namespaces() | CLONE_NEWNET | CLONE_PARENT, 0, &pidfd);
    if (pid == 0) {
        util_close(&ends.sock);
        util_close(&ends.status_fd);
        run_whole(in, ends.sock_end);
    }
    if (pid < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, pid);
    util_close(&ends.sock_end);
    util_close(&ends.status_end);
    out->values[0] = (uint64_t)pid;
    out->fds[out->n_fds++] = pidfd;
    rc = serve_whole(a, in, pid, ends.sock, out);
    return rc < 0 ? rc : process_await_exec(ends.status_fd, out);
}

static int start_whole(const struct start_args *a, struct inside *in, struct task_result *out)
{
    int rc = process_make_places(a->rt, a->slot->number, a->slot->gen, a->start, out);
    if (rc == 0)
        rc = prepare(a, in, out);
    return rc == 0 ? fork_whole(a, in, out) : rc;
}

/* --- both ------------------------------------------------------------------------------------- */

static int start_sandbox(void *arg, struct task_result *out)
{
    const struct start_args *a = arg;
    struct inside in = {.start = a->start,
                        .filter = a->start->limits.filters ? &a->rt->asking_filter : &a->rt->filter,
                        .agent_fd = a->rt->agent_fd,
                        .lower_fd = -1,
                        .view_fd = -1,
                        .mask_fd = -1,
                        .usr_fd = -1,
                        .upper_fd = -1,
                        .volume_fds = {-1, -1, -1, -1},
                        .stage_fd = -1,
                        .boot_fd = a->boot.agent_fd,
                        .oom_fd = -1,
                        .status_fd = -1};

    return a->slot->userns_fd < 0 ? start_whole(a, &in, out) : start_in_slot(a, &in, out);
}

int process_begin(int (*run)(void *args, struct task_result *out), void *args,
                  struct process_boot *boot, struct task *out, int *boot_fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    *boot = (struct process_boot){.agent_fd = pair[1], .own_fd = pair[0]};
    int rc = task_spawn(run, args, out);
    close(pair[1]);
    /* After the fork, but the flag belongs to the shared open file: what the task writes is 32
     * bytes into an empty buffer, which blocks neither way. */
    if (rc == 0)
        rc = io_set_nonblock(pair[0], true);
    if (rc < 0) {
        close(pair[0]);
        return rc;
    }
    *boot_fd = pair[0];
    return 0;
}

int process_start_begin(struct runtime *rt, const struct runtime_slot *slot,
                        const struct runtime_start *start, struct task *out, int *boot_fd)
{
    struct start_args args = {.rt = rt, .slot = slot, .start = start};
    if (start->flags != 0 || (start->kept && slot->userns_fd >= 0))
        return -EINVAL;
    return process_begin(start_sandbox, &args, &args.boot, out, boot_fd);
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
        task_move_high_fd(&out->pidfd);
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
