/* A member of the pool gets kept files: cay-init waits in it already, in a root of the template and
 * an empty layer, and is given another root with the layer that was kept, before it is claimed. A
 * create on kept files is thereby a claim and two mounts instead of a whole start.
 *
 * A task does it. As root of the host it puts the empty layer aside, makes the kept one the
 * slot's (slot.c), limits it and opens the trees; then it joins the user and the mount namespace of
 * PID 1, where it has the rights that a sandbox's first process has at a start, and no others. It
 * builds the new root by the same code (rootfs.c), makes it the root of that namespace and takes
 * the old one away: pivot_root(2) moves the root and the working directory of each process in it,
 * which is cay-init alone. No program of a tenant's runs there before the claim, so that none can
 * see either root, or interfere. A task that fails, or is killed half way, leaves a sandbox that
 * can only be ended: privd does not claim it. Test: test_pool_files.py. */

#include "base/log.h"
#include "runtime/inside.h"
#include "runtime/level.h"
#include "runtime/process_prepare.h"
#include "runtime/process_trees.h"
#include "runtime/rootfs.h"
#include "runtime/slot.h"
#include "runtime/state.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

struct files_args {
    struct process_start_args start;
    pid_t pid;
    int pidfd;
};

/* As the host's root: what the sandbox gets, and the control group that pays for it. */
static int open_files(const struct files_args *f, struct inside *in, struct task_result *out)
{
    const struct process_start_args *a = &f->start;
    int rc = process_change_layer(a->rt, a->slot->number, a->slot->gen, a->start, out);

    if (rc < 0)
        return rc;
    rc = process_limit_layer(a);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_LAYER, rc);
    CLEANUP_CLOSE int userns = ns_open(f->pid, "user");
    if (userns < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, userns);
    rc = process_trees_open(a, userns, in, out);
    if (rc < 0)
        return rc;
    rc = cgroup_enter(a->rt->cgroups, a->slot->number, CGROUP_AGENT);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_CGROUP, rc) : 0;
}

/* In the sandbox's user and mount namespace, as its root. */
static int change_root(struct inside *in)
{
    umask(022);
    int root = rootfs_change(in);
    return root < 0 ? root : mnt_pivot(root);
}

static int change_files(void *arg, struct task_result *out)
{
    struct files_args *f = arg;
    struct inside in = inside_new(f->start.start);
    struct disk_rooms rooms = {.n = 0};

    f->start.rooms = &rooms;
    int rc = open_files(f, &in, out);
    if (rc == 0) {
        rc = ns_enter(f->pidfd, CLONE_NEWUSER | CLONE_NEWNS);
        if (rc == 0)
            rc = ns_become(0, 0);
        if (rc < 0)
            process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    }
    if (rc == 0) {
        rc = change_root(&in);
        if (rc < 0)
            process_fail(out, PRIVSEP_STAGE_MOUNTS, rc);
    }
    disk_rooms_end(&rooms);
    return rc;
}

int process_files_begin(struct runtime *rt, const struct runtime_sandbox *sb, pid_t pid,
                        const struct runtime_start *start, struct task *out)
{
    const struct runtime_slot slot = {
        .number = sb->slot, .gen = sb->gen, .userns_fd = -1, .netns_fd = -1};
    CLEANUP_CLOSE int pidfd = fcntl(sb->pidfd, F_DUPFD_CLOEXEC, 0); /* low: task_move_high_fd */
    struct files_args args = {
        .start = {.rt = rt, .slot = &slot, .start = start}, .pid = pid, .pidfd = pidfd};

    if (!start->kept || start->image || pid <= 0)
        return -EINVAL;
    if (pidfd < 0)
        return -errno;
    return task_spawn(change_files, &args, out);
}

int process_files_finish(struct runtime *rt, struct task *t, uint32_t *stage)
{
    struct task_result result = {.stage = PRIVSEP_STAGE_NAMESPACES};
    int rc = process_collect(t, &result, stage);

    if (rc < 0 && rc != -EAGAIN && result.why[0])
        log_warn("kept files for a member of the pool: %s", result.why);
    return rc;
}
