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
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

_Static_assert(CRIU_STEPS_FD == CHECKPOINT_LAST_FD + 1, "CRIU has all from 0 on to that");

/* Its end of the steps' socket, where there is one, is the last of its descriptors. */
static int keep_descriptors(int steps_fd)
{
    if (steps_fd >= 0 && dup3(steps_fd, CRIU_STEPS_FD, 0) < 0 && errno != EINVAL)
        return -errno;
    if (steps_fd == CRIU_STEPS_FD && fcntl(steps_fd, F_SETFD, 0) < 0)
        return -errno;
    unsigned last = steps_fd < 0 ? CHECKPOINT_LAST_FD : CRIU_STEPS_FD;
    return close_range(last + 1, ~0U, 0) < 0 ? -errno : 0;
}

/* A group of its own, so that what it starts ends with it. */
NORETURN static void run_criu(char *const *argv, const struct criu_limits *limits, int steps_fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (setsid() < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        limit(limits) < 0 || keep_descriptors(steps_fd) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        _exit(126);
    signal(SIGXFSZ, SIG_IGN);
    execve(argv[0], argv, (char *const *)criu_environment);
    _exit(127);
}

/* CRIU as it runs. */
struct run {
    pid_t pid;
    int pidfd;
    int steps_fd; /* this end; -1: there is none, or no more */
    const struct criu_limits *limits;
};

/* Without an answer CRIU waits. */
static int serve_step(struct run *r)
{
    char text[64] = "", name[32];
    int pid;
    ssize_t n = recv(r->steps_fd, text, sizeof(text) - 1, MSG_DONTWAIT);

    if (n <= 0) {
        util_close(&r->steps_fd);
        return 0;
    }
    int rc = sscanf(text, "%31s %d", name, &pid) == 2 && pid > 0 ? r->limits->step(name, pid)
                                                                 : -EIO;
    if (rc != -ECANCELED)
        (void)!send(r->steps_fd, rc == 0 ? "g" : "n", 1, MSG_NOSIGNAL);
    return rc;
}

/* Until CHECK_MS are over, or more happens; 1: CRIU has ended; -ECANCELED. */
static int await_more(struct run *r)
{
    struct pollfd p[] = {{.fd = r->pidfd, .events = POLLIN}, {.fd = r->steps_fd, .events = POLLIN}};

    if (poll(p, ARRAY_SIZE(p), CHECK_MS) < 0)
        return 0;
    if (p[1].revents && serve_step(r) == -ECANCELED)
        return -ECANCELED;
    return p[0].revents != 0;
}

/* 0: it has ended; -ETIMEDOUT; -EIO: it has failed, and does not end. */
static int await_end(struct run *r)
{
    const struct criu_limits *limits = r->limits;
    const uint64_t until_ms = clock_mono_ms() + limits->seconds * 1000ull;
    int rc;

    while ((rc = await_more(r)) == 0) {
        if (clock_mono_ms() >= until_ms)
            return -ETIMEDOUT;
        if (limits->has_failed && limits->has_failed())
            break;
    }
    return rc > 0 || pid_await_end(r->pidfd, GRACE_MS) ? 0 : -EIO;
}

/* Its exit status; -EIO; -ETIMEDOUT, -ECHILD: it was killed, and may have left code of its own. */
static int await(struct run *r)
{
    pid_t pid = r->pid;
    int status, rc = await_end(r);

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

/* Errors that follow the end of the action script are no cause: CRIU lets the processes go on. */
static bool is_settled(const char *last, bool is_restore)
{
    return last &&
           (is_restore || strncmp(last, CRIU_SCRIPT_FAILED, strlen(CRIU_SCRIPT_FAILED)) == 0);
}

static bool is_noise(const char *line)
{
    const char *at = strstr(line, "rlimit: Can't setup RLIMIT_NOFILE");

    return at && !memchr(line, '\n', (size_t)(at - line));
}

/* Those that no process has: of a descriptor, a kind, a signal, a result. `at` is the end of what
 * stands before it, here and in the next. */
static bool is_of_no_process(const char *text, const char *at)
{
    static const char *const before[] = {"fd ", "file ", "type ", "signal ", "status ", "with "};

    for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
        size_t n = strlen(before[i]);

        if ((size_t)(at - text) >= n && strncmp(at - n, before[i], n) == 0)
            return true;
    }
    return false;
}

/* A number by itself: no part of a name or an address, nor of a path but that of a process. */
static bool is_number_alone(const char *text, const char *at, const char *end)
{
    if (at > text && !strchr(" (:=", at[-1]) &&
        ((size_t)(at - text) < strlen("proc/") || strncmp(at - 5, "proc/", 5) != 0))
        return false;
    return !isalnum((unsigned char)*end) && *end != '_';
}

void criu_hide_numbers(char *text)
{
    char *place = strstr(text, "): "), *to = place ? place + 3 : text;

    for (const char *at = to; *at;) {
        size_t n = strspn(at, "0123456789");

        if (n > 0 && is_number_alone(text, to, at + n) && !is_of_no_process(text, to)) {
            *to++ = '?';
        } else {
            n += n == 0;
            memmove(to, at, n);
            to += n;
        }
        at += n;
    }
    *to = '\0';
}

const char *criu_cause(const char *log, bool is_restore)
{
    const char *last = NULL;

    for (const char *at = strstr(log, "Error ("); at; at = strstr(at + 1, "Error ("))
        if (!is_noise(at) && !is_settled(last, is_restore) && !(last && is_summary(at)))
            last = at;
    return last;
}

/* It has names of the tenant's in it, so what is not printable is not shown. */
static void read_log(const struct criu_limits *limits, struct checkpoint_why *why)
{
    static char text[LOG_MAX];
    ssize_t n = io_read_text_at(limits->beside_fd, limits->log, text, sizeof(text));
    const char *last = n < 0 ? NULL : criu_cause(text, strcmp(limits->log, CRIU_RESTORE_LOG) == 0);

    if (!last)
        return;
    snprintf(why->text, sizeof(why->text), CRIU_SAYS "%.*s", (int)strcspn(last, "\n"), last);
    criu_hide_numbers(why->text);
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

static int start(char *const *argv, const struct criu_limits *limits, struct run *out)
{
    int steps[2] = {-1, -1};

    *out = (struct run){.pid = -1, .pidfd = -1, .steps_fd = -1, .limits = limits};
    if (limits->step && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, steps) < 0)
        return -errno;
    out->steps_fd = steps[0];
    out->pid = ns_fork(0, SIGCHLD, &out->pidfd);
    if (out->pid == 0)
        run_criu(argv, limits, steps[1]);
    util_close(&steps[1]);
    return out->pid < 0 ? (int)out->pid : 0;
}

int criu_run(char *const *argv, const struct criu_limits *limits, struct checkpoint_why *why)
{
    struct run run;
    int rc = start(argv, limits, &run), status = rc < 0 ? rc : await(&run);

    util_close(&run.pidfd);
    util_close(&run.steps_fd);
    if (rc < 0)
        return checkpoint_fail(why, rc, "starting CRIU: %s", strerror(-rc));
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
