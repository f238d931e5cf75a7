/* The steps of a restore before and after CRIU's. All of it is done as root of the sandbox's own
 * user namespace: a file of the image that does harm does it to that sandbox.
 *
 * The image is checked; the clocks of the sandbox go on from where they stood; /run and /dev/shm
 * get back what they had; then CRIU makes the processes, under the filters. While they stand still
 * PID 1 is handed on, and they go on when the claim of the sandbox is there. Its deadline is the
 * caller's to enforce on what it leaves: processes may be there that are not whole. */

#include "checkpoint/restore.h"

#include "base/io.h"
#include "checkpoint/criu.h"
#include "checkpoint/criu_image.h"
#include "checkpoint/hook.h"
#include "checkpoint/notes.h"
#include "checkpoint/restore_options.h"
#include "checkpoint/terminals.h"
#include "contract/agent_boot.h"
#include "sys/fdpass.h"
#include "sys/mnt.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

/* -- while all stand still --------------------------------------------------------------------- */

/* That nothing goes on before its claim is there: it is left for what reads it, so each look begins
 * where the last one ended. End of file: who started this does not want it any more. */
static int await_claim(void)
{
    char block[sizeof(struct agent_boot) + sizeof(struct agent_claim)];
    int from = 0, off = -1;
    size_t seen = 0;

    if (setsockopt(CHECKPOINT_BOOT_FD, SOL_SOCKET, SO_PEEK_OFF, &from, sizeof(from)) < 0)
        return -errno;
    while (seen < sizeof(block)) {
        ssize_t n = recv(CHECKPOINT_BOOT_FD, block, sizeof(block) - seen, MSG_PEEK);

        if (n == 0 || (n < 0 && errno != EINTR))
            return n == 0 ? -ECHILD : -errno;
        seen += n > 0 ? (size_t)n : 0;
    }
    explicit_bzero(block, sizeof(block));
    return setsockopt(CHECKPOINT_BOOT_FD, SOL_SOCKET, SO_PEEK_OFF, &off, sizeof(off)) < 0 ? -errno
                                                                                          : 0;
}

/* PID 1 is a child of the cay-checkpoint that started CRIU, which has not waited for it: so the
 * number cannot have become another's. */
int restore_hook(const char *self, const char *pid_text)
{
    static const int wanted[] = {CHECKPOINT_ASK_FD, CHECKPOINT_BOOT_FD};
    int pid = pid_text ? atoi(pid_text) : 0;

    if (pid <= 0 || hook_take_descriptors(self, wanted, ARRAY_SIZE(wanted)) < 0)
        return 1;
    CLEANUP_CLOSE int pidfd = pid_open(pid);
    if (pidfd < 0 || terminals_make(pidfd) < 0 ||
        fdpass_send(CHECKPOINT_ASK_FD, CHECKPOINT_DONE, strlen(CHECKPOINT_DONE), &pidfd, 1, 0) < 0)
        return 1;
    return await_claim() < 0;
}

/* -- before and after -------------------------------------------------------------------------- */

/* CRIU takes its root with all that is mounted there, and mounts those of the image over it: each
 * restore would add as many as there are. */
static int bare_root(void)
{
    CLEANUP_CLOSE int tree = mnt_copy(AT_FDCWD, CHECKPOINT_ROOT);

    if (tree < 0 || mkdir(CHECKPOINT_BARE, 0755) < 0)
        return tree < 0 ? tree : -errno;
    CLEANUP_CLOSE int at = open(CHECKPOINT_BARE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return at < 0 ? -errno : mnt_attach(tree, at, "");
}

static int prepare(struct words *words, struct checkpoint_why *why)
{
    struct notes notes;
    char self[48];
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
    rc = bare_root();
    if (rc < 0)
        return checkpoint_fail(why, rc, "the sandbox's root: %s", strerror(-rc));
    snprintf(self, sizeof(self), HOOK_PROGRAM, (int)getpid());
    return restore_options_make(words, notes.program, self, why);
}

int restore_run(unsigned seconds, struct checkpoint_why *why)
{
    static struct words words; /* large */
    const struct criu_limits limits = {.seconds = seconds, .log = CRIU_RESTORE_LOG};
    int rc = prepare(&words, why);

    if (rc == 0)
        rc = criu_run(words.argv, &limits, why);
    criu_remove_beside();
    return rc;
}
