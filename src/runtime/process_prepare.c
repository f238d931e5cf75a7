#include "runtime/process_prepare.h"

#include "runtime/process_limits.h"
#include "runtime/slot.h"
#include "runtime/stage.h"
#include "runtime/state.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>

int process_limit_layer(const struct process_start_args *a)
{
    struct disk *disk = &a->rt->disk;
    uint64_t bytes = TEST_BYPASS(DISK_LIMIT) ? 0 : a->start->limits.disk_bytes;
    return disk->backend->layer_limit(disk, a->slot->number, a->slot->gen, bytes,
                                      a->start->kept ? a->rooms : NULL);
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

static int open_stage(const struct process_start_args *a, struct inside *in)
{
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

struct cgroup_limits process_limits(const struct runtime *rt, enum cgroup_leaf leaf,
                                    const struct privsep_limits *l)
{
    uint32_t whole_cpu = l->cpu_milli ? l->cpu_milli + RUNTIME_RESERVE_CPU_MILLI : 0;

    if (leaf == CGROUP_WORK)
        return (struct cgroup_limits){.memory_bytes = l->memory_bytes,
                                      .pids = l->pids,
                                      .cpu_milli = cpu_limit(rt, l->cpu_milli)};
    return (struct cgroup_limits){
        .memory_bytes = l->memory_bytes ? l->memory_bytes + RUNTIME_RESERVE_MEMORY_BYTES : 0,
        .pids = l->pids ? l->pids + RUNTIME_RESERVE_PIDS : 0,
        .cpu_milli = cpu_limit(rt, whole_cpu)};
}

static int set_limits(const struct process_start_args *a)
{
    struct cgroup_limits whole = process_limits(a->rt, CGROUP_WHOLE, &a->start->limits);
    struct cgroup_limits work = process_limits(a->rt, CGROUP_WORK, &a->start->limits);

    if (TEST_BYPASS(LIMITS))
        return 0;
    int rc = cgroup_limit(a->rt->cgroups, a->slot->number, CGROUP_WHOLE, &whole);
    return rc < 0 ? rc : cgroup_limit(a->rt->cgroups, a->slot->number, CGROUP_WORK, &work);
}

/* The other steps as the host's root, before it is given up: devices and cgroups. */
int process_prepare(const struct process_start_args *a, struct inside *in, struct task_result *out)
{
    int rc = process_limit_layer(a);
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
    /* A child forked from here begins its control group namespace in `work`, so that the programs
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
