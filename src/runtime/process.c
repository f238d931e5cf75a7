/* The process level outside of the sandbox: starts and ends as tasks of privd. A start is a
 * task, a child of privd: it opens with the host's root what the sandbox is to have, gives up
 * that right by joining or making the sandbox's namespaces, forks PID 1 as privd's child and
 * waits for its exec. Two ways: into a slot that was made ahead, or slot and start in one.
 * *_begin returns at once; *_finish collects the task's result when privd's loop sees it. */

#include "base/io.h"
#include "base/log.h"
#include "runtime/inside.h"
#include "runtime/level.h"
#include "runtime/opened_image.h"
#include "runtime/process_boot.h"
#include "runtime/process_prepare.h"
#include "runtime/process_restore.h"
#include "runtime/process_trees.h"
#include "runtime/slot.h"
#include "runtime/state.h"
#include "sys/mnt.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

/* --- starts ----------------------------------------------------------------------------------- */

/* Joins the slot's namespaces and becomes its root: from here on this process has no right on the
 * host. */
static int enter_slot(const struct process_start_args *a)
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

static int start_in_slot(const struct process_start_args *a, struct inside *in,
                         struct task_result *out)
{
    int rc = a->start->kept
                 ? process_replace_layer(a->rt, a->slot->number, a->slot->gen, a->start, out)
                 : 0;
    if (rc == 0)
        rc = process_prepare(a, in, out);
    if (rc == 0)
        rc = process_trees_open(a, a->slot->userns_fd, in, out);
    if (rc < 0)
        return rc;
    rc = enter_slot(a);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    return fork_inside(in, out);
}

/* --- slot and start in one -------------------------------------------------------------------- */

/* PID 1 to be, in namespaces of its own from its first instruction on: no right on the host. Its
 * ids are mapped when the message comes. End of file: the task has failed, and says why. */
NORETURN static void run_whole(struct inside *in, int sock)
{
    struct inside_failure failure = {.stage = PRIVSEP_STAGE_CGROUP};

    if (process_trees_take(sock, in) < 0)
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
static int serve_whole(const struct process_start_args *a, struct inside *in, pid_t pid, int sock,
                       struct task_result *out)
{
    int rc = ns_write_maps(pid, runtime_slot_uid(a->rt, a->slot->number), RUNTIME_UID_COUNT);
    CLEANUP_CLOSE int userns = rc < 0 ? rc : ns_open(pid, "user");

    if (userns < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, userns);
    rc = process_trees_open(a, userns, in, out);
    if (rc < 0)
        return rc;
    rc = process_trees_send(sock, in);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc) : 0;
}

static int fork_whole(const struct process_start_args *a, struct inside *in,
                      struct task_result *out)
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

static int start_whole(const struct process_start_args *a, struct inside *in,
                       struct task_result *out)
{
    int rc = process_make_dirs(a->rt, a->slot->number, a->slot->gen, a->start, out);
    if (rc == 0)
        rc = process_prepare(a, in, out);
    return rc == 0 ? fork_whole(a, in, out) : rc;
}

/* --- both ------------------------------------------------------------------------------------- */

static int start_sandbox(void *arg, struct task_result *out)
{
    struct process_start_args *a = arg;
    struct inside in = inside_new(a->start);
    struct disk_rooms rooms = {.n = 0};
    int rc;

    in.filter = a->start->limits.filters ? &a->rt->asking_filter : &a->rt->filter;
    in.agent_fd = a->rt->agent_fd;
    in.boot_fd = a->boot.agent_fd;
    a->rooms = &rooms;
    if (a->start->image)
        rc = process_restore(a, &in, out);
    else
        rc = a->slot->userns_fd < 0 ? start_whole(a, &in, out) : start_in_slot(a, &in, out);
    disk_rooms_end(&rooms);
    return rc;
}

int process_start_begin(struct runtime *rt, const struct runtime_slot *slot,
                        const struct runtime_start *start, struct task *out, int *boot_fd)
{
    struct process_start_args args = {.rt = rt, .slot = slot, .start = start};
    if (start->flags != 0 ||
        (slot->userns_fd >= 0 && start->kept && (!start->copy || start->image)))
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
    if (rc == 0 && result.n_fds >= 1 && result.n_fds <= 3) {
        *out = (struct runtime_started){
            .pid = (pid_t)result.values[0],
            .pidfd = result.fds[0],
            .listener_fd = result.n_fds >= 2 ? result.fds[1] : -1,
            .opened = result.n_fds == 3 ? opened_image_from_result(&result) : RUNTIME_OPENED_NONE};
        task_move_high_fd(&out->pidfd);
        return 0;
    }
    if (rc < 0 && result.why[0])
        log_warn("a start on kept files: %s", result.why);
    for (uint32_t i = 0; i < result.n_fds; i++) {
        int code, status;
        /* It reported a failure and is ending: our child, so that we have to wait for it. */
        pid_kill(result.fds[i], SIGKILL);
        pid_wait(result.fds[i], &code, &status);
        util_close(&result.fds[i]);
    }
    return rc < 0 ? rc : -EPROTO;
}
