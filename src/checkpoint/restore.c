/* The steps of a restore before and after CRIU's. All of it is done as root of the sandbox's own
 * user namespace: a file of the image that does harm does it to that sandbox.
 *
 * This program is started while the image is still being opened, and gets the image's directory
 * when all of that is known to be what was sealed. The image is checked; the clocks of the sandbox
 * go on from where they stood; /run and /dev/shm get back what they had; then CRIU makes the
 * processes, under the filters. It asks its starter at each step (contract/checkpoint_boot.h), who
 * freezes the processes before CRIU lets go of them.
 * Its deadline is the caller's to enforce on what it leaves: processes may be there that are not
 * whole. */

#include "checkpoint/restore.h"

#include "base/io.h"
#include "checkpoint/criu.h"
#include "checkpoint/criu_image.h"
#include "checkpoint/notes.h"
#include "checkpoint/plain_tar.h"
#include "checkpoint/restore_options.h"
#include "checkpoint/terminals.h"
#include "checkpoint/volume_files.h"
#include "sys/fdpass.h"
#include "sys/mnt.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NANOSECONDS 1000000000L
#define HIGH_FD     100 /* above every number of CHECKPOINT_*_FD */

static void subtract(struct timespec *t, const struct timespec *now)
{
    t->tv_sec -= now->tv_sec;
    t->tv_nsec -= now->tv_nsec;
    if (t->tv_nsec < 0) {
        t->tv_nsec += NANOSECONDS;
        t->tv_sec--;
    }
}

/* A time namespace for what is started from here on. Its clocks are set by offsets, which this
 * process writes to a file that only a dumpable one may open. */
static int enter_time(const struct notes *notes)
{
    struct notes now, off = *notes;
    char text[128];

    if (unshare(CLONE_NEWTIME) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return -errno;
    int rc = notes_read_clocks(&now);
    if (rc < 0)
        return rc;
    subtract(&off.monotonic, &now.monotonic);
    subtract(&off.boottime, &now.boottime);
    snprintf(text, sizeof(text), "monotonic %lld %ld\nboottime %lld %ld\n",
             (long long)off.monotonic.tv_sec, off.monotonic.tv_nsec, (long long)off.boottime.tv_sec,
             off.boottime.tv_nsec);
    return io_write_text_at(AT_FDCWD, "/proc/self/timens_offsets", text);
}

NORETURN static void run_tar(int tar_fd)
{
    if (chdir(CHECKPOINT_ROOT) < 0 || dup2(tar_fd, STDIN_FILENO) < 0)
        _exit(126);
    execle("/usr/bin/tar", "tar", "-xpf", "-", "--numeric-owner", CHECKPOINT_NO_VOLUMES,
           (char *)NULL, criu_environment);
    _exit(127);
}

static int unpack_by_tar(int tar_fd)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        run_tar(tar_fd);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -EIO;
}

static int unpack_tmpfs(void)
{
    CLEANUP_CLOSE int tar = openat(CHECKPOINT_DIR_FD, CHECKPOINT_TMPFS_TAR,
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    CLEANUP_CLOSE int root = open(CHECKPOINT_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = tar < 0 || root < 0 ? -errno : plain_tar_unpack(tar, root);

    return rc == 1 ? unpack_by_tar(tar) : rc;
}

/* -- steps that its starter has a part in ------------------------------------------------------ */

/* Without the answer: who started this does not want it any more. */
static int request(const char *word, int fd)
{
    char answer = 0;
    int rc = fdpass_send(CHECKPOINT_REQUEST_FD, word, strlen(word), &fd, fd < 0 ? 0 : 1, 0);

    if (rc < 0)
        return rc;
    return io_read_some(CHECKPOINT_REQUEST_FD, &answer, 1) == 1 && answer == CHECKPOINT_GO
               ? 0
               : -ECHILD;
}

/* Above all numbers first, so that none is written over. CRIU inherits them. */
static int place(int *fds, const int *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = fcntl(fds[i], F_DUPFD_CLOEXEC, HIGH_FD);

        if (high < 0)
            return -errno;
        util_close(&fds[i]);
        fds[i] = high;
    }
    for (size_t i = 0; i < n; i++)
        if (dup2(fds[i], numbers[i]) < 0)
            return -errno;
    return 0;
}

static int request_image(void)
{
    static const int numbers[] = {CHECKPOINT_DIR_FD, CHECKPOINT_PROGRAM_FD};
    int fds[] = {-1, -1};
    char answer = 0;
    size_t n = 0;
    int rc = fdpass_send(CHECKPOINT_REQUEST_FD, CHECKPOINT_IMAGE, strlen(CHECKPOINT_IMAGE), NULL, 0,
                         0);

    if (rc < 0)
        return rc;
    if (fdpass_recv(CHECKPOINT_REQUEST_FD, &answer, 1, fds, ARRAY_SIZE(fds), &n, 0) != 1 ||
        answer != CHECKPOINT_GO)
        rc = -ECHILD;
    else
        rc = n == ARRAY_SIZE(fds) ? place(fds, numbers, n) : -EPROTO;
    for (size_t i = 0; i < n; i++)
        util_close(&fds[i]);
    return rc;
}

static int at_alone(int pidfd)
{
    return request(CHECKPOINT_ALONE, pidfd);
}

/* How long CRIU's log was when all processes were made; -1: they are not yet. */
static long long log_at_made = -1;

/* From here on CRIU has little to do, but does not end by itself whatever fails: see has_failed. */
static int at_made(int pidfd)
{
    struct stat st;
    int rc = terminals_make(pidfd);

    if (rc == 0)
        rc = request(CHECKPOINT_MADE, -1);
    if (rc < 0)
        return rc;
    if (fstatat(CHECKPOINT_WORK_FD, CRIU_RESTORE_LOG, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    log_at_made = st.st_size;
    return 0;
}

/* CRIU lets them go whatever this says, so it does not get to know that it is over: it is ended
 * when all of them are killed with PID 1. */
static int at_done(int pidfd)
{
    if (request(CHECKPOINT_DONE, -1) == 0)
        return 0;
    (void)pid_kill(pidfd, SIGKILL);
    return -ECANCELED;
}

static const struct {
    const char *name;
    int (*run)(int pidfd);
} steps[] = {{"setup-namespaces", at_alone}, {"post-restore", at_made}, {"pre-resume", at_done}};

/* PID 1 is a child of this process, which has not waited for it: so the number cannot have become
 * another's. */
static int step(const char *name, pid_t pid)
{
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (strcmp(name, steps[i].name) != 0)
            continue;
        CLEANUP_CLOSE int pidfd = pid_open(pid);
        int rc = pidfd < 0 ? pidfd : steps[i].run(pidfd);
        return rc == 0 || rc == -ECANCELED ? rc : -EIO;
    }
    return -EIO;
}

/* -- before and after -------------------------------------------------------------------------- */

/* CRIU takes its root with all that is mounted there, and mounts those of the image over it: each
 * restore would add as many as there are. */
static int plain_root(void)
{
    CLEANUP_CLOSE int tree = mnt_copy(AT_FDCWD, CHECKPOINT_ROOT);

    if (tree < 0 || mkdir(CHECKPOINT_PLAIN_ROOT, 0755) < 0)
        return tree < 0 ? tree : -errno;
    CLEANUP_CLOSE int at = open(CHECKPOINT_PLAIN_ROOT,
                                O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return at < 0 ? -errno : mnt_attach(tree, at, "");
}

/* All that needs nothing of the image. */
static int await_image(struct checkpoint_why *why)
{
    int rc = plain_root();

    if (rc < 0)
        return checkpoint_fail(why, rc, "the sandbox's root: %s", strerror(-rc));
    rc = request_image();
    return rc < 0 ? checkpoint_fail(why, rc, "the restore is not wanted any more") : 0;
}

static int prepare(struct words *words, struct checkpoint_why *why)
{
    struct notes notes;
    int rc = await_image(why);

    if (rc == 0)
        rc = criu_image_check(CHECKPOINT_DIR_FD, why);
    if (rc < 0)
        return rc;
    rc = notes_read(CHECKPOINT_DIR_FD, &notes);
    if (rc < 0)
        return checkpoint_fail(why, rc, "the image's notes: %s", strerror(-rc));
    rc = enter_time(&notes);
    if (rc < 0)
        return checkpoint_fail(why, rc, "clocks of the sandbox: %s", strerror(-rc));
    if (unpack_tmpfs() < 0)
        return checkpoint_fail(why, -EIO, "/run and /dev/shm could not be unpacked");
    rc = volume_files_check(CHECKPOINT_DIR_FD, CHECKPOINT_ROOT, why);
    return rc < 0 ? rc : restore_options_make(words, notes.program, why);
}

/* CRIU has written of an error since all processes were made. It may then wait for ever: for one of
 * them that is not there any more, or for the end of PID 1, while it traces PID 1's children. */
static bool has_failed(void)
{
    return log_at_made >= 0 && criu_log_has_error((size_t)log_at_made);
}

int restore_run(unsigned seconds, struct checkpoint_why *why)
{
    static struct words words; /* large */
    const struct criu_limits limits = {.seconds = seconds,
                                       .log = CRIU_RESTORE_LOG,
                                       .beside_fd = CHECKPOINT_WORK_FD,
                                       .has_failed = has_failed,
                                       .step = step};
    int rc = prepare(&words, why);

    if (rc == 0 && (rc = request(CHECKPOINT_READY, -1)) < 0)
        checkpoint_fail(why, rc, "the restore is not wanted any more");
    if (rc == 0)
        rc = criu_run(words.argv, &limits, why);
    return rc;
}
