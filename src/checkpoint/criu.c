/* CRIU as a child of cay-checkpoint: the environment and limits that it is started with, its
 * deadline, and the reason that its log gives for a failure. The log and other files that a dump
 * writes into the image's directory are removed, as they are no part of an image; those of a
 * restore are in a directory of their own, as its image may be others' too. */

#include "checkpoint/criu.h"

#include "base/clock.h"
#include "base/io.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define LOG_MAX  (256u << 10)
#define CHECK_MS 50
#define GRACE_MS 1000 /* for CRIU's own end, after an error */

static const char kdat_directory[] = "XDG_RUNTIME_DIR=" CHECKPOINT_SELF_DIR;

/* A dump's image has what CRIU found out of the kernel, as criu.kdat, so that a restore, of the
 * same kernel, need not ask again: a third of the time of a small one. CRIU_FAULT=130: processes
 * are stopped behind a system call by tracing its calls instead of by a breakpoint, the first of
 * which in a while the kernel makes after a grace period of RCU, 10 ms. */
const char *const criu_environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C",
                                        kdat_directory, "CRIU_FAULT=130", NULL};

/* Files that CRIU writes beside the image of a dump. */
static const char *const beside[] = {CRIU_DUMP_LOG, "stats-dump", "criu.kdat", "criu.kdat.tmp"};

static int limit(const struct criu_limits *limits)
{
    const struct rlimit none = {0, 0}, file = {limits->file_bytes, limits->file_bytes};

    if (limits->file_bytes == 0)
        return 0;
    return setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_FSIZE, &file) < 0 ? -errno : 0;
}

/* A group of its own, so that what it starts ends with it. */
NORETURN static void run_criu(char *const *argv, const struct criu_limits *limits)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (setsid() < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        limit(limits) < 0 || close_range(CHECKPOINT_LAST_FD + 1, ~0U, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        _exit(126);
    signal(SIGXFSZ, SIG_IGN);
    execve(argv[0], argv, (char *const *)criu_environment);
    _exit(127);
}

/* 0: it has ended; -ETIMEDOUT; -EIO: it has failed, and does not end. */
static int await_end(int pidfd, const struct criu_limits *limits)
{
    const uint64_t until_ms = clock_mono_ms() + limits->seconds * 1000ull;

    while (!pid_await_end(pidfd, CHECK_MS)) {
        if (clock_mono_ms() >= until_ms)
            return -ETIMEDOUT;
        if (limits->has_failed && limits->has_failed())
            return pid_await_end(pidfd, GRACE_MS) ? 0 : -EIO;
    }
    return 0;
}

/* Its exit status; -EIO; -ETIMEDOUT, -ECHILD: it was killed, and may have left code of its own. */
static int await(pid_t pid, int pidfd, const struct criu_limits *limits)
{
    int status, rc = await_end(pidfd, limits);

    if (rc < 0)
        (void)kill(-pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid)
        return -ECHILD;
    if (rc < 0)
        return rc;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
}

/* Lines that say nothing of the cause: that it failed, and a limit that is not raised. */
static bool is_summary(const char *line)
{
    return strncmp(line, "Error (criu/cr-dump.c", 21) == 0;
}

static bool is_noise(const char *line)
{
    const char *at = strstr(line, "rlimit: Can't setup RLIMIT_NOFILE");

    return at && !memchr(line, '\n', (size_t)(at - line));
}

/* The last line of CRIU's log that says what went wrong, but the first of a restore, where each
 * caller adds one. It has names of the tenant's in it, so what is not printable is not shown. */
static void read_log(const struct criu_limits *limits, struct checkpoint_why *why)
{
    static char text[LOG_MAX];
    ssize_t n = io_read_text_at(limits->beside_fd, limits->log, text, sizeof(text));
    const char *last = NULL;
    bool is_restore = strcmp(limits->log, CRIU_RESTORE_LOG) == 0;

    for (const char *at = n < 0 ? NULL : strstr(text, "Error ("); at;
         at = strstr(at + 1, "Error ("))
        if (!is_noise(at) && !(last && (is_restore || is_summary(at))))
            last = at;
    if (!last)
        return;
    snprintf(why->text, sizeof(why->text), CRIU_SAYS "%.*s", (int)strcspn(last, "\n"), last);
    for (char *c = why->text; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
}

bool criu_log_has_error(size_t from)
{
    static char text[LOG_MAX];
    ssize_t n = io_read_text_at(CHECKPOINT_WORK_FD, CRIU_RESTORE_LOG, text, sizeof(text));

    for (const char *at = n > 0 && (size_t)n > from ? strstr(text + from, "Error (") : NULL; at;
         at = strstr(at + 1, "Error ("))
        if (!is_noise(at))
            return true;
    return false;
}

void criu_remove_beside(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++)
        (void)unlinkat(CHECKPOINT_DIR_FD, beside[i], 0);
}

int criu_run(char *const *argv, const struct criu_limits *limits, struct checkpoint_why *why)
{
    int pidfd = -1;
    pid_t pid = ns_fork(0, SIGCHLD, &pidfd);

    if (pid == 0)
        run_criu(argv, limits);
    if (pid < 0)
        return checkpoint_fail(why, pid, "starting CRIU: %s", strerror(-pid));
    int status = await(pid, pidfd, limits);
    close(pidfd);
    if (status == 0)
        return 0;
    if (status == -ETIMEDOUT)
        return checkpoint_fail(why, status, "the %s took longer than %u s", argv[1],
                               limits->seconds);
    if (status < 0 && status != -EIO)
        return checkpoint_fail(why, status, "CRIU was killed");
    if (status == 126 || status == 127)
        return checkpoint_fail(why, -ENOENT, "%s cannot be started", CHECKPOINT_CRIU);
    if (status == -EIO)
        checkpoint_fail(why, -EIO, "CRIU did not end after an error");
    else
        checkpoint_fail(why, -EIO, "CRIU ended with status %d", status);
    read_log(limits, why);
    return -EIO;
}
