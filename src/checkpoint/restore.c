/* The steps of a restore before and after CRIU's. All of it is done as root of the sandbox's own
 * user namespace: a file of the image that does harm does it to that sandbox.
 *
 * The image is checked; the clocks of the sandbox go on from where they stood; /run and /dev/shm
 * get back what they had; then CRIU makes the processes, under the filters. Its deadline is the
 * caller's to enforce on what it leaves: processes may be there that are not whole. */

#include "checkpoint/restore.h"

#include "base/io.h"
#include "checkpoint/criu.h"
#include "checkpoint/criu_image.h"
#include "checkpoint/notes.h"
#include "checkpoint/restore_options.h"
#include "sys/fdpass.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NANOSECONDS 1000000000L

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

NORETURN static void run_tar(void)
{
    int fd = openat(CHECKPOINT_DIR_FD, CHECKPOINT_TMPFS_TAR, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 || chdir(CHECKPOINT_ROOT) < 0 || dup2(fd, STDIN_FILENO) < 0)
        _exit(126);
    execle("/usr/bin/tar", "tar", "-xpf", "-", "--numeric-owner", (char *)NULL, criu_environment);
    _exit(127);
}

static int unpack_tmpfs(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        run_tar();
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -EIO;
}

/* A child of this process, which does not wait for it: so the number cannot be another's. */
static int open_pid_1(void)
{
    char text[16];
    siginfo_t info = {0};
    ssize_t n = io_read_text_at(CHECKPOINT_DIR_FD, CRIU_PID_FILE, text, sizeof(text));
    int pid = n < 0 ? 0 : atoi(text);

    if (pid <= 0)
        return n < 0 ? (int)n : -EBADMSG;
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return -errno;
    return info.si_pid == 0 ? pid_open(pid) : -ESRCH;
}

static int hand_over(struct checkpoint_why *why)
{
    CLEANUP_CLOSE int pidfd = open_pid_1();
    int rc = pidfd < 0 ? pidfd
                       : fdpass_send(CHECKPOINT_ASK_FD, CHECKPOINT_DONE, strlen(CHECKPOINT_DONE),
                                     &pidfd, 1, 0);

    return rc < 0 ? checkpoint_fail(why, rc, "PID 1 of what was restored: %s", strerror(-rc)) : 0;
}

static int prepare(struct words *words, struct checkpoint_why *why)
{
    struct notes notes;
    int rc = criu_image_check(CHECKPOINT_DIR_FD, why);

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
    return restore_options_make(words, notes.program, why);
}

int restore_run(unsigned seconds, struct checkpoint_why *why)
{
    static struct words words; /* large */
    const struct criu_limits limits = {.seconds = seconds, .log = CRIU_RESTORE_LOG};
    int rc = prepare(&words, why);

    if (rc == 0)
        rc = criu_run(words.argv, &limits, why);
    if (rc == 0)
        rc = hand_over(why);
    criu_remove_beside();
    return rc;
}
