/* A restore as a task: the kept layer is taken, its image opened by cay-seal into a tmpfs of the
 * task's, before anything reads it; then a slot is made like any, and a child of the task's gives
 * up the host's root and becomes cay-checkpoint (restore.c), all of it in the slot's control group,
 * so that whatever it leaves is killed with that.
 *
 * CRIU makes the processes, and while they stand still cay-checkpoint tells of PID 1. It has no
 * right on the host and may be a tenant's by then, so what it tells of is looked at like a number
 * of a record: it has to be PID 1 of a namespace in the slot's control group. The processes go on
 * when cay-checkpoint finds a claim in the boot socket, which privd writes when cay-egress has the
 * sandbox's sockets. */

#include "runtime/process_restore.h"

#include "base/io.h"
#include "contract/checkpoint_boot.h"
#include "runtime/level.h"
#include "runtime/memory_image.h"
#include "runtime/process_go_on.h"
#include "runtime/process_prepare.h"
#include "runtime/restore.h"
#include "runtime/slot.h"
#include "runtime/state.h"
#include "sys/fdpass.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define AWAIT_MS 60000 /* cay-checkpoint's own deadline */

/* cay-init's program as what /proc/1/exe shows: a copy that the slot's root may open again, as CRIU
 * does. The code that runs is in the image. */
static int copy_agent(const struct runtime *rt, uint32_t uid)
{
    struct stat st;
    off_t at = 0;
    CLEANUP_CLOSE int fd = memfd_create("cay-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fstat(rt->agent_fd, &st) < 0)
        return -errno;
    while (at < st.st_size)
        if (sendfile(fd, rt->agent_fd, &at, (size_t)(st.st_size - at)) <= 0)
            return -EIO;
    int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    if (fchown(fd, uid, uid) < 0 || fchmod(fd, 0111) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/* --- the image -------------------------------------------------------------------------------- */

/* In a control group for that alone, which process_prepare leaves for the slot's: an image that is
 * as large as the sandbox may be has no room beside what is restored of it. */
static int open_image(const struct process_start_args *a, char why[static TASK_WHY_SIZE])
{
    const struct disk *d = &a->rt->disk;
    const struct runtime_image *image = a->start->image;
    uint32_t uid = runtime_slot_uid(a->rt, a->slot->number);
    int rc = memory_image_join(a->start->image_join_fds, a->start->n_image_join_fds);
    CLEANUP_CLOSE int file = rc < 0
                                 ? rc
                                 : d->backend->image_open(d, a->slot->number, a->slot->gen, false);
    CLEANUP_CLOSE int dir = file < 0 ? file : memory_image_dir(uid, image->memory_bytes);

    if (dir < 0)
        return dir;
    rc = memory_image_seal(a->rt, "open", uid, dir, file, image, why);
    return rc < 0 ? rc : TAKE_FD(dir);
}

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

static pid_t pid_of(int pidfd)
{
    char path[48], text[512];
    int pid;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    ssize_t n = io_read_text_at(AT_FDCWD, path, text, sizeof(text));
    const char *at = n < 0 ? NULL : strstr(text, "\nPid:");
    return at && sscanf(at, "\nPid: %d", &pid) == 1 && pid > 0 ? (pid_t)pid : -ESRCH;
}

static int receive_fd(int sock, unsigned timeout_ms, int *fd)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    char text[16];
    size_t n = 0;

    if (poll(&p, 1, (int)timeout_ms) != 1)
        return -ETIMEDOUT;
    ssize_t got = fdpass_recv(sock, text, sizeof(text), fd, 1, &n, MSG_DONTWAIT);
    if (got < 0)
        return (int)got;
    return got == 0 ? -ECHILD : n == 1 ? 0 : -EBADMSG;
}

/* The listener comes first: CRIU installs the filters before it makes a second process. */
static int await_pid_1(const struct process_start_args *a, const struct inside *in, int ask_sock,
                       int listener_sock, struct task_result *out)
{
    CLEANUP_CLOSE int told = -1, listener = -1;
    int pidfd = -1, rc = receive_fd(ask_sock, AWAIT_MS, &told);

    if (rc == 0)
        rc = receive_fd(listener_sock, 0, &listener);
    pid_t pid = rc < 0 ? rc : pid_of(told);
    rc = pid < 0 ? pid : process_adopt(a->rt, a->slot->number, pid, &pidfd);
    if (rc < 0)
        return rc;
    out->values[0] = (uint64_t)pid;
    out->fds[out->n_fds++] = pidfd;
    out->fds[out->n_fds++] = TAKE_FD(listener);
    return move_pid_1(in, pid);
}

/* --- the restore ------------------------------------------------------------------------------ */

struct socks {
    int ask[2], listener[2];
};

static int open_socks(struct socks *s)
{
    *s = (struct socks){{-1, -1}, {-1, -1}};
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s->ask) < 0 ||
                   socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, s->listener) < 0
               ? -errno
               : 0;
}

/* PID 1 finds it when the processes go on. */
static int tell_agent(const struct process_start_args *a, const struct restore_place *place,
                      const struct task_result *out)
{
    struct go_on_files files;
    int rc = process_go_on_open(a->rt, a->slot->number, &files);

    files.listener_fd = out->fds[1];
    if (rc == 0)
        rc = process_go_on_new(place->netns_fd, place->boot_fd, &files);
    process_go_on_close(&files);
    return rc;
}

/* The child's output is where it says why not. */
static int fork_restore(const struct inside *in, const struct restore_place *place,
                        struct image_program *out)
{
    int pipes[2];

    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = ns_fork(0, SIGCHLD, NULL);
    if (pid == 0) {
        int rc = dup2(pipes[1], STDOUT_FILENO) < 0 ? -errno : restore_exec(in, place);

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

static int restore(const struct process_start_args *a, struct inside *in,
                   struct restore_place *place, struct task_result *out)
{
    struct image_program program;
    struct socks s;
    int rc = open_socks(&s);

    place->ask_fd = s.ask[1];
    place->listener_fd = s.listener[1];
    if (rc == 0)
        rc = fork_restore(in, place, &program);
    util_close(&s.ask[1]);
    util_close(&s.listener[1]);
    if (rc == 0)
        rc = await_pid_1(a, in, s.ask[0], s.listener[0], out);
    if (rc == 0)
        rc = tell_agent(a, place, out);
    if (rc == -ECHILD) /* it has ended, and says why */
        rc = memory_image_end(&program, out->why) < 0 ? -EBADMSG : -ECHILD;
    util_close(&s.ask[0]);
    util_close(&s.listener[0]);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_MEMORY, rc) : 0;
}

/* As a slot is made ahead, but within its control group. */
static int make_place(const struct process_start_args *a, struct inside *in, int image_fd,
                      struct restore_place *place, struct task_result *out)
{
    uint32_t uid = runtime_slot_uid(a->rt, a->slot->number);
    struct task_result made = {0};
    int rc = process_make_namespaces(uid, &made);

    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_NAMESPACES, rc);
    *place = (struct restore_place){.userns_fd = made.fds[0],
                                    .netns_fd = made.fds[1],
                                    .host_name = "cay", /* until it is claimed */
                                    .seconds = MEMORY_IMAGE_SECONDS,
                                    .image_fd = image_fd,
                                    .boot_fd = a->boot.agent_fd,
                                    .agent_fd = copy_agent(a->rt, uid)};
    place->program_fd = open(a->rt->checkpoint_path, O_PATH | O_CLOEXEC);
    if (place->agent_fd < 0 || place->program_fd < 0)
        return process_fail(out, PRIVSEP_STAGE_EXEC,
                            place->agent_fd < 0 ? place->agent_fd : -errno);
    return process_trees_open(a, place->userns_fd, in, out);
}

int process_restore(const struct process_start_args *a, struct inside *in, struct task_result *out)
{
    const struct disk *d = &a->rt->disk;
    struct restore_place place;

    if (!a->rt->checkpoint_path || !a->rt->seal_path || !d->backend->image_open)
        return process_fail(out, PRIVSEP_STAGE_MEMORY, -EOPNOTSUPP);
    int rc = process_make_dirs(a->rt, a->slot->number, a->slot->gen, a->start, out);
    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int image = open_image(a, out->why);
    if (image < 0)
        return process_fail(out, PRIVSEP_STAGE_MEMORY, image);
    rc = process_prepare(a, in, out);
    if (rc == 0)
        rc = make_place(a, in, image, &place, out);
    if (rc == 0)
        rc = restore(a, in, &place, out);
    /* Before a process goes on: its files change from there on, and its memory with them. */
    if (rc == 0 && (rc = d->backend->image_remove(d, a->slot->number, a->slot->gen)) < 0)
        process_fail(out, PRIVSEP_STAGE_LAYER, rc);
    return rc;
}
