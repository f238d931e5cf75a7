/* A dump as a task: cay-checkpoint writes what runs in a sandbox into a tmpfs of the task's, and
 * while all of it stands still cay-seal makes one sealed file of that, in the sandbox's layer. Only
 * when that is whole and on the disk cay-checkpoint is told to end the processes; before, any
 * failure lets them go on. */

#include "base/io.h"
#include "contract/agent_boot.h"
#include "contract/checkpoint_boot.h"
#include "runtime/archive.h"
#include "runtime/image_agent.h"
#include "runtime/level.h"
#include "runtime/memory_image.h"
#include "runtime/process_go_on.h"
#include "runtime/state.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct dump_args {
    struct runtime *rt;
    struct runtime_sandbox sb;
    struct runtime_image image;
    const int *join_fds;
    int n_join_fds;
};

struct ends {
    int report, report_end, answer, answer_end;
};

static void close_ends(struct ends *e)
{
    util_close(&e->report);
    util_close(&e->report_end);
    util_close(&e->answer);
    util_close(&e->answer_end);
}

static int open_ends(struct ends *e)
{
    int pair[2];

    *e = (struct ends){-1, -1, -1, -1};
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    e->report = pair[0];
    e->report_end = pair[1];
    if (pipe2(pair, O_CLOEXEC) < 0) {
        int rc = -errno;

        close_ends(e);
        return rc;
    }
    e->answer_end = pair[0];
    e->answer = pair[1];
    return 0;
}

static int start_checkpoint(const struct dump_args *a, int dir_fd, struct ends *e,
                            struct image_program *out)
{
    char most[24];
    const char *const argv[] = {"cay-checkpoint", "dump", MEMORY_IMAGE_SECONDS, most, NULL};
    const int fds[] = {a->sb.pidfd, dir_fd, e->report_end, e->answer_end};

    snprintf(most, sizeof(most), "%llu",
             (unsigned long long)memory_image_file_max(a->image.memory_bytes));
    int rc = memory_image_start(a->rt->checkpoint_path, argv, fds, ARRAY_SIZE(fds), out);
    util_close(&e->report_end);
    util_close(&e->answer_end);
    return rc;
}

/* Until it says that all is written, or why not; it has a deadline of its own. */
static int await_written(int report_fd, char why[static TASK_WHY_SIZE])
{
    char line[256] = "";
    size_t n = 0;
    ssize_t got;

    while (n < sizeof(line) - 1 && !memchr(line, '\n', n) &&
           (got = io_read_some(report_fd, line + n, sizeof(line) - 1 - n)) > 0)
        n += (size_t)got;
    return strcmp(line, CHECKPOINT_DONE) == 0 ? 0 : memory_image_reason(line, why);
}

static int put_agent(const struct dump_args *a, int dir_fd, char why[static TASK_WHY_SIZE])
{
    int rc = image_agent_put(dir_fd, runtime_slot_uid(a->rt, a->sb.slot), a->sb.pidfd);

    if (rc < 0)
        snprintf(why, TASK_WHY_SIZE, "writing the program of its PID 1: %s", strerror(-rc));
    return rc;
}

static int dump_and_seal(const struct dump_args *a, int dir_fd, int file_fd,
                         char why[static TASK_WHY_SIZE])
{
    uint32_t uid = runtime_slot_uid(a->rt, a->sb.slot);
    char later[TASK_WHY_SIZE] = "";
    struct image_program program;
    struct ends e;
    int rc = open_ends(&e);

    if (rc == 0)
        rc = start_checkpoint(a, dir_fd, &e, &program);
    if (rc < 0) {
        close_ends(&e);
        return rc;
    }
    rc = await_written(e.report, why);
    bool has_answered = rc == 0 || why[0]; /* else it has ended before, and says why at its end */
    if (rc == 0)
        rc = put_agent(a, dir_fd, why);
    if (rc == 0)
        rc = memory_image_seal(a->rt, "seal", uid, dir_fd, file_fd, &a->image, why);
    if (rc == 0)
        rc = io_write_full(e.answer, (const char[]){CHECKPOINT_END}, 1);
    close_ends(&e); /* without that answer they go on */
    int ended = memory_image_end(&program, later);
    /* CRIU that did not end in time may have left code of its own in the processes. */
    if (rc < 0 && has_answered && ended != -ETIMEDOUT && ended != -ECHILD)
        return rc;
    memcpy(why, later, TASK_WHY_SIZE);
    return rc == 0 && ended < 0 ? -ECHILD : ended;
}

/* cay-init gives up what cannot be in an image, and gets it back where it goes on. */
static int dump_prepared(const struct dump_args *a, int dir_fd, int file_fd,
                         char why[static TASK_WHY_SIZE])
{
    struct go_on_files files;
    CLEANUP_CLOSE int listener = pid_get_fd(a->sb.pidfd, AGENT_LISTENER_FD);
    int rc = process_go_on_open(a->rt, a->sb.slot, &files);

    files.listener_fd = listener;
    if (rc == 0)
        rc = process_go_on_take(a->sb.pidfd, why);
    if (rc == 0) {
        rc = dump_and_seal(a, dir_fd, file_fd, why);
        if (rc < 0 && rc != -ETIMEDOUT && rc != -ECHILD &&
            process_go_on_back(a->sb.pidfd, &files) < 0)
            rc = -ECHILD;
    }
    process_go_on_close(&files);
    return rc;
}

static int dump(void *arg, struct task_result *out)
{
    const struct dump_args *a = arg;
    const struct disk *d = &a->rt->disk;
    uint32_t uid = runtime_slot_uid(a->rt, a->sb.slot);

    if (archive_is_below(a->rt, a->sb.slot, a->sb.gen)) {
        snprintf(out->why, sizeof(out->why),
                 "its files lie on an archive, which CRIU does not know");
        return -EOPNOTSUPP;
    }
    int rc = memory_image_join(a->join_fds, a->n_join_fds);
    CLEANUP_CLOSE int dir = rc < 0 ? rc : memory_image_dir(uid, a->image.memory_bytes);
    CLEANUP_CLOSE int file = dir < 0 ? dir : d->backend->image_open(d, a->sb.slot, a->sb.gen, true);

    if (file < 0)
        return file;
    rc = dump_prepared(a, dir, file, out->why);
    if (rc < 0)
        (void)d->backend->image_remove(d, a->sb.slot, a->sb.gen);
    return rc;
}

int process_dump_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                       const struct runtime_image *image, const int *join_fds, int n_join_fds,
                       struct task *out)
{
    struct dump_args args = {
        .rt = rt, .sb = *sb, .image = *image, .join_fds = join_fds, .n_join_fds = n_join_fds};

    if (!rt->disk.backend->image_open || !rt->checkpoint_path || !rt->seal_path)
        return -EOPNOTSUPP;
    CLEANUP_CLOSE int pidfd = fcntl(sb->pidfd, F_DUPFD_CLOEXEC, 0); /* low: task_move_high_fd */
    if (pidfd < 0)
        return -errno;
    args.sb.pidfd = pidfd;
    return task_spawn(dump, &args, out);
}

int process_dump_finish(struct runtime *rt, struct task *t, char why[static TASK_WHY_SIZE])
{
    return task_collect_status(t, why);
}
