/* How CRIU is run for a dump, and what is done while the sandbox stands still.
 *
 *     cay-checkpoint        CRIU                         cay-checkpoint, as CRIU's action script
 *     checks, enters,
 *     starts CRIU    ---->  stops all, dumps   ------->  checks again, now that nothing changes,
 *                                                        archives /run and /dev/shm, tells "done",
 *                                                        waits for the answer
 *     waits, with    <----  ends them all, or lets
 *     a deadline            them go on         <-------
 *
 * So what started it can seal the image and put it into its place before any process is given up: a
 * disk that is full costs the sandbox nothing but a moment. */

#include "checkpoint/dump.h"

#include "base/clock.h"
#include "base/io.h"
#include "checkpoint/dump_options.h"
#include "checkpoint/enter.h"
#include "checkpoint/refusal.h"
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
#include <sys/wait.h>

#define LOG_MAX   (256u << 10)
#define HIGH_FD   50 /* above every number that descriptors get */
#define DUMP_HOOK "/proc/%d/exe"

static const char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C",
                                          "XDG_RUNTIME_DIR=" CHECKPOINT_SELF_DIR, NULL};

/* What CRIU writes beside the image. */
static const char *const beside[] = {"dump.log", "stats-dump", "criu.kdat", "criu.kdat.tmp"};

/* -- while all stand still --------------------------------------------------------------------- */

NORETURN static void run_tar(const char *pid_text)
{
    char root[48];

    snprintf(root, sizeof(root), "/proc/%.16s/root", pid_text);
    int fd = openat(CHECKPOINT_DIR_FD, CHECKPOINT_TMPFS_TAR,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || chdir(root) < 0 || dup2(fd, STDOUT_FILENO) < 0)
        _exit(126);
    execle("/usr/bin/tar", "tar", "-cf", "-", "--numeric-owner", "--sparse", "--one-file-system",
           "run", "dev/shm", (char *)NULL, environment);
    _exit(127);
}

/* They are directories of a tmpfs, of which CRIU keeps nothing, as its mount is external. */
static int archive_tmpfs(const char *pid_text)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        run_tar(pid_text);
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -EIO;
}

static int report(const char *text)
{
    return io_write_full(CHECKPOINT_ASK_FD, text, strlen(text));
}

/* One that ends without an answer: they go on. */
static bool is_told_to_end(void)
{
    char answer = 0;

    return io_read_some(CHECKPOINT_ANSWER_FD, &answer, 1) == 1 && answer == CHECKPOINT_END;
}

/* CRIU closes them all. */
static int take_descriptors(const char *self)
{
    static const int wanted[] = {CHECKPOINT_DIR_FD, CHECKPOINT_ASK_FD, CHECKPOINT_ANSWER_FD};
    int parent, fds[ARRAY_SIZE(wanted)];

    if (sscanf(self, DUMP_HOOK, &parent) != 1)
        return -EINVAL;
    int pidfd = pid_open(parent);
    if (pidfd < 0 || dup2(pidfd, HIGH_FD) < 0)
        return pidfd < 0 ? pidfd : -errno;
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        int fd = pid_get_fd(HIGH_FD, wanted[i]);

        fds[i] = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD + 1);
        if (fds[i] < 0)
            return fds[i];
    }
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
        if (dup2(fds[i], wanted[i]) < 0)
            return -errno;
    return 0;
}

int dump_hook(const char *self, const char *action, const char *pid_text)
{
    struct checkpoint_why why = {""};
    char line[sizeof(why.text) + 32];
    int pid = pid_text ? atoi(pid_text) : 0;

    if (strcmp(action, "post-dump") != 0)
        return 0;
    if (take_descriptors(self) < 0)
        return 1;
    int rc = pid > 0 ? refusal_check(pid, &why)
                     : checkpoint_fail(&why, -EINVAL, "CRIU does not say what it dumped");
    if (rc == 0 && archive_tmpfs(pid_text) < 0)
        rc = checkpoint_fail(&why, -EIO, "/run and /dev/shm could not be archived");
    if (rc < 0) {
        snprintf(line, sizeof(line), "E %d %s\n", -rc, why.text);
        (void)report(line);
        return 1;
    }
    return report(CHECKPOINT_DONE) == 0 && is_told_to_end() ? 0 : 1;
}

/* -- CRIU -------------------------------------------------------------------------------------- */

static int limit(const struct dump_limits *limits)
{
    const struct rlimit none = {0, 0}, file = {limits->file_bytes, limits->file_bytes};

    return setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_FSIZE, &file) < 0 ? -errno : 0;
}

/* A group of its own, so that what it starts ends with it. */
NORETURN static void run_criu(char *const *argv, const struct dump_limits *limits)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (setsid() < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        limit(limits) < 0 || close_range(CHECKPOINT_ANSWER_FD + 1, ~0U, 0) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        _exit(126);
    signal(SIGXFSZ, SIG_IGN);
    execve(argv[0], argv, (char *const *)environment);
    _exit(127);
}

/* Its exit status; -ETIMEDOUT. */
static int await(pid_t pid, int pidfd, unsigned seconds)
{
    int status;
    bool ended = pid_await_end(pidfd, seconds * 1000);

    if (!ended)
        (void)kill(-pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid)
        return -ECHILD;
    if (!ended)
        return -ETIMEDOUT;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

/* The last line of CRIU's log that says what went wrong. It has names of the tenant's in it, so
 * what is not printable is not shown. */
static void read_log(struct checkpoint_why *why)
{
    static char text[LOG_MAX];
    ssize_t n = io_read_text_at(CHECKPOINT_DIR_FD, "dump.log", text, sizeof(text));
    const char *last = NULL;

    for (const char *at = n < 0 ? NULL : text; at && (at = strstr(at, "Error (")) != NULL; at++)
        if (!strstr(at, "rlimit: Can't setup RLIMIT_NOFILE") || strchr(at, '\n'))
            last = strncmp(at + 7, "criu/cr-dump.c", 14) == 0 && last ? last : at;
    if (!last)
        return;
    snprintf(why->text, sizeof(why->text), "CRIU: %.*s", (int)strcspn(last, "\n"), last);
    for (char *c = why->text; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
}

static void remove_beside(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++)
        (void)unlinkat(CHECKPOINT_DIR_FD, beside[i], 0);
}

static int run_and_wait(char *const *argv, const struct dump_limits *limits,
                        struct checkpoint_why *why)
{
    int pidfd = -1;
    pid_t pid = ns_fork(0, SIGCHLD, &pidfd);

    if (pid == 0)
        run_criu(argv, limits);
    if (pid < 0)
        return checkpoint_fail(why, pid, "starting CRIU: %s", strerror(-pid));
    int status = await(pid, pidfd, limits->seconds);
    close(pidfd);
    if (status == 0)
        return 0;
    if (status == -ETIMEDOUT)
        return checkpoint_fail(why, status, "the dump took longer than %u s", limits->seconds);
    if (status == 126 || status == 127)
        return checkpoint_fail(why, -ENOENT, "%s cannot be started", CHECKPOINT_CRIU);
    checkpoint_fail(why, -EIO, "CRIU ended with status %d", status);
    read_log(why);
    return -EIO;
}

static int enter(pid_t *pid, struct checkpoint_why *why)
{
    int rc;

    *pid = enter_pid(CHECKPOINT_PID_FD);
    if (*pid < 0)
        return checkpoint_fail(why, *pid, "the sandbox's PID 1: %s", strerror(-*pid));
    rc = enter_sandbox(CHECKPOINT_PID_FD);
    /* For the action script, which takes descriptors of this process: it has the same rights. */
    if (rc == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        rc = -errno;
    return rc < 0 ? checkpoint_fail(why, rc, "entering the sandbox: %s", strerror(-rc)) : 0;
}

int dump_run(const struct dump_limits *limits, struct checkpoint_why *why)
{
    static struct dump_options options; /* large */
    char self[48];
    pid_t pid;
    int rc;

    snprintf(self, sizeof(self), DUMP_HOOK, (int)getpid());
    rc = enter(&pid, why);
    if (rc == 0)
        rc = refusal_check(pid, why);
    if (rc == 0)
        rc = dump_options_make(&options, pid, self, why);
    if (rc == 0)
        rc = run_and_wait(options.argv, limits, why);
    remove_beside();
    return rc;
}
