/* A restore as a task: the kept layer is taken, its image opened by cay-seal into a tmpfs, before
 * anything reads it (opened_image.c); meanwhile a slot is made as any, in its control group, and a
 * child of the task's gives up the host's root and becomes cay-checkpoint (restore.c), which makes
 * the sandbox's tree and waits: it gets the image when cay-seal has found that whole. It and CRIU,
 * and the task, then go to the control group of the image, so that the slot's has the sandbox's
 * processes alone: PID 1 is moved there before it has a child. Whatever is left is killed with both
 * groups.
 *
 * cay-checkpoint has no right on the host and may be a tenant's by then, so the process that it
 * tells of is looked at like a number of a record: PID 1 of a namespace, with the slot's ids.
 *
 * When CRIU has made the processes the slot's group is frozen, and only then CRIU lets go of them:
 * so none of them runs before all are whole. When it has, the image is removed: a failure before
 * that leaves it as it was, and nothing of it has run. privd thaws the group when the claim is
 * written and cay-egress has the sandbox's sockets. */

#include "runtime/process_restore.h"

#include "base/io.h"
#include "contract/checkpoint_boot.h"
#include "runtime/image_agent.h"
#include "runtime/memory_image.h"
#include "runtime/observe.h"
#include "runtime/opened_image.h"
#include "runtime/process_go_on.h"
#include "runtime/process_prepare.h"
#include "runtime/restore.h"
#include "runtime/restore_beside.h"
#include "runtime/slot.h"
#include "runtime/state.h"
#include "sys/fdpass.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* --- PID 1 ------------------------------------------------------------------------------------ */

static bool to_agent_leaf(const struct inside *in, const char *tid)
{
    for (int i = 0; i < in->n_agent_cgroup_fds; i++)
        if (write(in->agent_cgroup_fds[i], tid, strlen(tid)) < 0)
            return false;
    return true;
}

struct mover {
    const struct inside *in;
    int rc;
};

static bool move_one(void *arg, const char *tid)
{
    struct mover *m = arg;

    m->rc = to_agent_leaf(m->in, tid) ? 0 : -errno;
    return m->rc == 0;
}

/* Each thread of it: in version 1 a number is one thread's. */
static int move_pid_1(const struct inside *in, pid_t pid)
{
    struct mover m = {.in = in};
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    int rc = io_each_name_at(AT_FDCWD, path, move_one, &m);
    return rc < 0 ? rc : m.rc;
}

/* --- the restore ------------------------------------------------------------------------------ */

/* A restore that is under way. */
struct restore {
    const struct process_start_args *args;
    struct inside *in;
    const struct restore_context *context;
    struct restore_beside *beside;
    int request[2], listener[2]; /* the first of each is this task's */
    struct image_program program;
    int program_fd; /* pidfd of cay-checkpoint */
    pid_t pid_1;
    int pid_1_fd, listener_fd; /* -1: not there yet */
    int image_fd, agent_fd;    /* likewise */
};

static int open_socks(struct restore *r)
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, r->request) < 0 ||
                   socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, r->listener) < 0
               ? -errno
               : 0;
}

static void close_all(struct restore *r)
{
    for (int i = 0; i < 2; i++) {
        util_close(&r->request[i]);
        util_close(&r->listener[i]);
    }
    util_close(&r->program_fd);
}

/* Processes that CRIU has left may hold the other end of the socket, so its end does not show
 * there. The deadline is cay-checkpoint's own, and privd's. */
static int await_word(struct restore *r, const char *word, int *fd)
{
    struct pollfd p[] = {{.fd = r->request[0], .events = POLLIN},
                         {.fd = r->program_fd, .events = POLLIN}};
    char text[16] = "";
    size_t n = 0;

    if (poll(p, ARRAY_SIZE(p), -1) < 0)
        return -errno;
    if (!p[0].revents)
        return -ECHILD;
    ssize_t got = fdpass_recv(r->request[0], text, sizeof(text) - 1, fd, fd ? 1 : 0, &n,
                              MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 ? (int)got : -ECHILD;
    return strcmp(text, word) == 0 && n == (fd ? 1 : 0) ? 0 : -EPROTO;
}

static int answer(const struct restore *r)
{
    return send(r->request[0], (const char[]){CHECKPOINT_GO}, 1, MSG_NOSIGNAL) == 1 ? 0 : -ECHILD;
}

/* The image, which is whole, and PID 1's program. */
static int give_image(struct restore *r)
{
    const int fds[] = {r->image_fd, r->agent_fd};
    int rc = await_word(r, CHECKPOINT_IMAGE, NULL);

    if (rc < 0)
        return rc;
    return fdpass_send(r->request[0], (const char[]){CHECKPOINT_GO}, 1, fds, ARRAY_SIZE(fds),
                       MSG_NOSIGNAL) < 0
               ? -ECHILD
               : 0;
}

/* cay-checkpoint is a child that was not waited for, so its number is its own. CRIU will be its
 * child. */
static int leave_slot(struct restore *r)
{
    const struct runtime_start *start = r->args->start;
    int rc = await_word(r, CHECKPOINT_READY, NULL);

    if (rc == 0)
        rc = memory_image_move(start->image_join_fds, start->n_image_join_fds, r->program.pid);
    if (rc == 0)
        rc = memory_image_join(start->image_join_fds, start->n_image_join_fds);
    return rc == 0 ? answer(r) : rc;
}

/* It is what it was when it was looked at, as it has not ended. */
static int take_pid_1(struct restore *r)
{
    const struct runtime *rt = r->args->rt;
    uint32_t slot = r->args->slot->number;
    CLEANUP_CLOSE int pid_fd = -1;
    int rc = await_word(r, CHECKPOINT_ALONE, &pid_fd);

    r->pid_1 = rc < 0 ? rc : pid_number(pid_fd);
    if (r->pid_1 < 0)
        return r->pid_1;
    rc = process_hold_first(rt, slot, r->pid_1, &r->pid_1_fd);
    if (rc == 0)
        rc = cgroup_move(rt->cgroups, slot, CGROUP_WORK, r->pid_1);
    if (rc == 0 && pid_has_ended(r->pid_1_fd))
        rc = -ESRCH;
    return rc == 0 ? answer(r) : rc;
}

/* CRIU installs the filters before it makes a second process. */
static int take_listener(struct restore *r)
{
    size_t n = 0;
    char text[16];
    int rc = await_word(r, CHECKPOINT_MADE, NULL);
    ssize_t got = rc < 0 ? rc
                         : fdpass_recv(r->listener[0], text, sizeof(text), &r->listener_fd, 1, &n,
                                       MSG_DONTWAIT);

    if (got < 0 || n != 1)
        return got < 0 ? (int)got : -EBADMSG;
    rc = move_pid_1(r->in, r->pid_1);
    restore_beside_moved(r->beside);
    return rc == 0 ? answer(r) : rc;
}

static int freeze(struct restore *r)
{
    int rc = await_word(r, CHECKPOINT_DONE, NULL);

    if (rc == 0)
        rc = cgroup_freeze(r->args->rt->cgroups, r->args->slot->number, true);
    return rc == 0 ? answer(r) : rc;
}

/* PID 1 finds it when the processes go on. */
static int notify_agent(const struct restore *r, char why[static TASK_WHY_SIZE])
{
    struct go_on_files files;
    int rc = process_go_on_open(r->args->rt, r->args->slot->number, &files);

    files.listener_fd = r->listener_fd;
    if (rc == 0)
        rc = process_go_on_new(r->context->netns_fd, r->context->boot_fd, &files);
    process_go_on_close(&files);
    if (rc < 0)
        snprintf(why, TASK_WHY_SIZE, "its cay-init is not reached");
    return rc;
}

/* The child's output is where it says why not. */
static int fork_restore(const struct inside *in, const struct restore_context *context,
                        struct image_program *out, int *pidfd)
{
    int pipes[2];

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = ns_fork(0, SIGCHLD, pidfd);
    if (pid == 0) {
        int rc = dup2(pipes[1], STDOUT_FILENO) < 0 ? -errno : restore_exec(in, context);

        dprintf(STDOUT_FILENO, "E %d before cay-checkpoint was started\n", -rc);
        _exit(1);
    }
    close(pipes[1]);
    if (pid < 0) {
        close(pipes[0]);
        return pid;
    }
    *out = (struct image_program){.pid = pid, .out_fd = pipes[0]};
    return 0;
}

/* Of the reason that it gives, the number is of no matter but that the image is not whole. */
static int await_end(struct restore *r, int rc, struct task_result *out)
{
    char why[TASK_WHY_SIZE] = "";

    if (rc < 0) /* without an answer it ends */
        util_close(&r->request[0]);
    int ended = memory_image_end(&r->program, why);
    if (rc < 0 && rc != -ECHILD)
        return rc;
    memcpy(out->why, why, sizeof(why));
    if (rc == 0 && ended == 0)
        return 0;
    return ended == -EBADMSG ? -EBADMSG : -EIO;
}

static int serve(struct restore *r, struct task_result *out)
{
    int rc = give_image(r);

    if (rc == 0)
        rc = leave_slot(r);
    if (rc == 0)
        rc = take_pid_1(r);
    if (rc == 0)
        rc = take_listener(r);
    if (rc == 0)
        rc = freeze(r);
    rc = await_end(r, rc, out);
    return rc == 0 ? notify_agent(r, out->why) : rc;
}

/* An image that is being opened, and how it is told of. */
struct restore_image {
    struct image_begun begun;
    struct runtime_opened *opened;
};

/* From here on the image is known to be whole. */
static int take_image(struct restore *r, struct restore_image *image, struct task_result *out)
{
    const struct runtime *rt = r->args->rt;

    r->image_fd = opened_image_end(&image->begun, out->why, image->opened);
    if (r->image_fd < 0)
        return process_fail(out, PRIVSEP_STAGE_MEMORY, r->image_fd);
    r->agent_fd = image_agent_take(r->image_fd, runtime_slot_uid(rt, r->args->slot->number),
                                   rt->agent_fd, &image->opened->agent);
    return r->agent_fd < 0 ? process_fail(out, PRIVSEP_STAGE_EXEC, r->agent_fd) : 0;
}

/* cay-checkpoint, which has nothing of the image. */
static void end_without_image(struct restore *r)
{
    char why[TASK_WHY_SIZE];

    (void)pid_kill(r->program_fd, SIGKILL);
    (void)memory_image_end(&r->program, why);
}

static int start(struct restore *r, struct restore_context *context, struct task_result *out)
{
    int rc = open_socks(r);

    context->request_fd = r->request[1];
    context->listener_fd = r->listener[1];
    if (rc == 0)
        rc = fork_restore(r->in, context, &r->program, &r->program_fd);
    util_close(&r->request[1]);
    util_close(&r->listener[1]);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_MEMORY, rc) : 0;
}

static int work_with_image(struct restore *r, struct restore_image *image, struct task_result *out)
{
    int rc = take_image(r, image, out);

    if (rc < 0) {
        end_without_image(r);
        return rc;
    }
    rc = serve(r, out);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_MEMORY, rc) : 0;
}

static int restore(const struct process_start_args *a, struct inside *in,
                   struct restore_context *context, struct restore_beside *beside,
                   struct restore_image *image, struct task_result *out)
{
    struct restore r = {.args = a,
                        .in = in,
                        .context = context,
                        .beside = beside,
                        .request = {-1, -1},
                        .listener = {-1, -1},
                        .program_fd = -1,
                        .pid_1_fd = -1,
                        .listener_fd = -1,
                        .image_fd = -1,
                        .agent_fd = -1};
    int rc = start(&r, context, out);

    if (rc == 0)
        rc = work_with_image(&r, image, out);
    close_all(&r);
    if (rc < 0)
        return rc;
    out->values[0] = (uint64_t)r.pid_1;
    out->fds[out->n_fds++] = r.pid_1_fd;
    out->fds[out->n_fds++] = r.listener_fd;
    return 0;
}

/* As a slot is made ahead, but within its control group. All that is not of the image. */
static int make_context(const struct process_start_args *a, struct inside *in,
                        struct restore_context *context, struct task_result *out)
{
    uint32_t uid = runtime_slot_uid(a->rt, a->slot->number);
    struct task_result made = {0};
    int rc = process_make_namespaces(uid, &made);

    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    *context = (struct restore_context){.userns_fd = made.fds[0],
                                        .netns_fd = made.fds[1],
                                        .host_name = "cay", /* until it is claimed */
                                        .seconds = MEMORY_IMAGE_SECONDS,
                                        .work_fd = memory_image_dir(uid, 0),
                                        .boot_fd = a->boot.agent_fd};
    context->program_fd = open(a->rt->checkpoint_path, O_PATH | O_CLOEXEC);
    if (context->work_fd < 0)
        return process_fail(out, PRIVSEP_STAGE_MEMORY, context->work_fd);
    if (context->program_fd < 0)
        return process_fail(out, PRIVSEP_STAGE_EXEC, -errno);
    return process_trees_open(a, context->userns_fd, in, out);
}

/* The file itself goes when the task has ended: that of a large one takes longer than all of a
 * small restore. */
static int remove_image(const struct process_start_args *a, struct task_result *out)
{
    const struct disk *d = &a->rt->disk;

    (void)d->backend->image_open(d, a->slot->number, a->slot->gen, false); /* until then */
    int rc = d->backend->image_remove(d, a->slot->number, a->slot->gen);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_LAYER, rc) : 0;
}

/* In a control group for that alone, which process_prepare leaves for the slot's: an image that is
 * as large as the sandbox may be has no room beside what is restored of it. */
static int begin_image(const struct process_start_args *a, struct restore_beside *beside,
                       struct restore_image *image, struct task_result *out)
{
    const struct runtime_start *start = a->start;
    int rc = memory_image_join(start->image_join_fds, start->n_image_join_fds);

    if (rc == 0)
        rc = opened_image_begin(a, out->why, &image->begun, image->opened);
    if (rc == 0 && start->n_image_join_fds > 0)
        restore_beside_begin(beside, start->image_join_fds[0]);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_MEMORY, rc) : 0;
}

/* The slot is made while cay-seal is at work, which ends with this task. */
static int open_and_restore(const struct process_start_args *a, struct inside *in,
                            struct restore_beside *beside, struct runtime_opened *opened,
                            struct task_result *out)
{
    struct restore_image image = {.opened = opened};
    struct restore_context context;
    int rc = begin_image(a, beside, &image, out);

    if (rc == 0)
        rc = process_prepare(a, in, out);
    restore_beside_moves(beside);
    if (rc == 0)
        rc = make_context(a, in, &context, out);
    return rc == 0 ? restore(a, in, &context, beside, &image, out) : rc;
}

int process_restore(const struct process_start_args *a, struct inside *in, struct task_result *out)
{
    struct runtime_opened opened = RUNTIME_OPENED_NONE;
    struct restore_beside beside = RESTORE_BESIDE_NONE;

    if (!a->rt->checkpoint_path || !a->rt->seal_path || !a->rt->disk.backend->image_open)
        return process_fail(out, PRIVSEP_STAGE_MEMORY, -EOPNOTSUPP);
    int rc = process_make_dirs(a->rt, a->slot->number, a->slot->gen, a->start, out);
    if (rc == 0)
        rc = open_and_restore(a, in, &beside, &opened, out);
    restore_beside_moved(&beside);
    /* Before a process goes on: its files change from there on, and its memory with them. */
    if (rc == 0)
        rc = remove_image(a, out);
    if (rc == 0 && a->start->copy)
        opened_image_to_result(&opened, out);
    if (rc < 0) /* privd would wait for an end that does not come while it is frozen */
        out->n_fds = 0;
    return rc;
}
