/* A daemon that cay-keep starts, and starts again when it has ended. In the child, between fork
 * and exec: descriptors to their fixed numbers, files that only root may read opened, then
 * privileges given up, then exec; a failure is reported through the ready pipe. In keep:
 * child_start, child_read_ready when the pipe can be read (ready, or the reason), child_ended
 * from the reaper, which sets when to start again: at once where the end was expected, else
 * after a delay that doubles up to BACKOFF_MAX_MS and is forgotten after STABLE_MS of life. A
 * child dies with keep (PR_SET_PDEATHSIG). child_check runs the program with --check and the new
 * files before a reload replaces anything. */

#include "keep/child.h"

#include "base/clock.h"
#include "base/log.h"
#include "sys/caps.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define BACKOFF_FIRST_MS 100
#define BACKOFF_MAX_MS   10000
#define CHECK_MS         10000
#define STABLE_MS        30000 /* a child that lived this long has not failed in a row */

/* -- in the child ------------------------------------------------------------------------------ */

/* A file that only root may read, for a program that is not root. It is not read here; a file that
 * is not regular is not waited for, and refused. Descriptor from 10 on, or -errno. */
static int open_file(const char *path)
{
    CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat st;
    int high;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    high = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    return high < 0 ? -errno : high;
}

static int install_files(const struct child *c, const char **bad)
{
    for (size_t i = 0; i < CHILD_FILES && c->files[i]; i++) {
        int fd = open_file(c->files[i]);

        *bad = c->files[i];
        if (fd < 0)
            return fd;
        if (dup2(fd, KEEP_FILES_FD + (int)i) < 0)
            return -errno;
        close(fd);
    }
    return 0;
}

/* Descriptors end up at their fixed numbers, whatever numbers they have now. */
static int install_descriptors(const struct child *c, int ready_fd)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    int ready = fcntl(ready_fd, F_DUPFD_CLOEXEC, 10);
    int listener = c->listen_fd >= 0 ? fcntl(c->listen_fd, F_DUPFD_CLOEXEC, 10) : -1;
    int second = c->second_fd >= 0 ? fcntl(c->second_fd, F_DUPFD_CLOEXEC, 10) : -1;

    if (null_fd < 0 || ready < 0 || (c->listen_fd >= 0 && listener < 0) ||
        (c->second_fd >= 0 && second < 0))
        return -errno;
    if (dup2(null_fd, 0) < 0 || dup2(2, 1) < 0 || dup2(ready, KEEP_READY_FD) < 0)
        return -errno;
    if (listener >= 0 ? dup2(listener, KEEP_LISTEN_FD) < 0 : dup2(null_fd, KEEP_LISTEN_FD) < 0)
        return -errno;
    if (close_range(KEEP_READY_FD + 1, 9, 0) < 0 ||
        (second >= 0 && dup2(second, KEEP_SECOND_FD) < 0))
        return -errno;
    return close_range(10, ~0u, 0) < 0 ? -errno : 0;
}

static int give_up_privileges(const struct child *c)
{
    int r = c->unprivileged ? caps_become(c->uid, c->gid, 0, 0) : 0;

    if (r == 0 && c->unprivileged && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        r = -errno;
    return r;
}

/* Where the program is, opened while still root: a checkout in root's home cannot be reached by the
 * user that cayd runs as. -1 where that fails: then the path alone has to do. */
static int open_program_dir(const struct child *c)
{
    char dir[1024];
    const char *slash = strrchr(c->argv[0], '/');

    if (!slash || (size_t)(slash - c->argv[0]) >= sizeof(dir))
        return -1;
    snprintf(dir, sizeof(dir), "%.*s/", (int)(slash - c->argv[0]), c->argv[0]);
    return open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Only on failure it returns: -errno. The user must be allowed to execute the program in either
 * way; the descriptor spares it the directories above. */
static int execute(const struct child *c, int dir_fd, char **env)
{
    execve(c->argv[0], c->argv, env);
    if (errno == EACCES && dir_fd >= 0)
        syscall(SYS_execveat, dir_fd, strrchr(c->argv[0], '/') + 1, c->argv, env, 0);
    return -errno;
}

NORETURN static void become_child(const struct child *c, int ready_fd, pid_t keep)
{
    static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    static char lang[] = "LANG=C.UTF-8";
    char *env[] = {path, lang, NULL};
    const char *failed = "descriptors";
    sigset_t none;
    int r = install_descriptors(c, ready_fd), dir_fd;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    umask(077);
    if (r == 0)
        r = install_files(c, &failed);
    dir_fd = open_program_dir(c);
    if (r == 0) {
        failed = "privileges";
        r = give_up_privileges(c);
    }
    if (r == 0) {
        /* After the change of ids, which clears it. keep may have died before it took effect. */
        failed = "start";
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != keep)
            _exit(0);
        r = execute(c, dir_fd, env);
    }
    dprintf(KEEP_READY_FD, "%c%s: %s: %s", KEEP_FAILED, c->argv[0], failed, strerror(-r));
    _exit(127);
}

/* -- in keep ----------------------------------------------------------------------------------- */

int child_start(struct child *c)
{
    pid_t keep = getpid();
    int fds[2];

    c->restart_at_ms = 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
    c->pid = fork();
    if (c->pid == 0)
        become_child(c, fds[1], keep);
    close(fds[1]);
    if (c->pid < 0) {
        int r = -errno;

        c->pid = 0;
        close(fds[0]);
        return r;
    }
    c->ready_fd = fds[0];
    c->ready = c->expected = false;
    c->reason[0] = '\0';
    c->started_ms = clock_mono_ms();
    return 0;
}

void child_read_ready(struct child *c)
{
    char text[KEEP_REASON_MAX];
    ssize_t n = read(c->ready_fd, text, sizeof(text) - 1);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    util_close(&c->ready_fd);
    if (n <= 0)
        return;
    text[n] = '\0';
    if (text[0] == KEEP_READY) {
        c->ready = c->was_ever_ready = true;
        log_info("%s is ready", c->name);
        return;
    }
    for (char *p = text; *p; p++)
        if (!isprint((unsigned char)*p))
            *p = '?';
    snprintf(c->reason, sizeof(c->reason), "%s", text + 1);
}

/* waitpid(2) within CHECK_MS; after that it is killed. */
static int wait_for_check(pid_t pid)
{
    CLEANUP_CLOSE int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int status = -1, r;

    do
        r = fd < 0 ? -1 : poll(&p, 1, CHECK_MS);
    while (r < 0 && fd >= 0 && errno == EINTR);
    if (r <= 0)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

int child_check(const struct child *c, char why[static KEEP_REASON_MAX])
{
    CLEANUP_FREE char **argv = NULL;
    CLEANUP_CLOSE int null_fd = -1;
    struct child check = *c;
    size_t n = 0;
    int status;

    if (!c->files[0])
        return 0;
    while (c->argv[n])
        n++;
    argv = calloc(n + 2, sizeof(*argv));
    snprintf(why, KEEP_REASON_MAX, "the check of %s cannot be run", c->name);
    if (!argv)
        return -EINVAL;
    memcpy(argv, c->argv, n * sizeof(*argv));
    argv[n] = (char[]){"--check"};
    check.argv = argv;
    check.listen_fd = -1;
    if (c->second_fd >= 0) /* its option names a descriptor, which has to be open */
        check.second_fd = null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    check.ready_fd = -1;
    if (child_start(&check) < 0)
        return -EINVAL;
    status = wait_for_check(check.pid);
    child_read_ready(&check);
    util_close(&check.ready_fd);
    if (status == 0)
        return 0;
    if (check.reason[0])
        snprintf(why, KEEP_REASON_MAX, "%s", check.reason);
    return -EINVAL;
}

static uint64_t backoff_ms(const struct child *c)
{
    uint64_t ms = BACKOFF_FIRST_MS;

    for (unsigned i = 1; i < c->failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    return MIN(ms, (uint64_t)BACKOFF_MAX_MS);
}

static void log_end(const struct child *c, int status)
{
    const char *how = WIFSIGNALED(status) ? "signal" : "status";
    int n = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);

    if (c->expected)
        log_info("%s (process %d) has ended: %s %d", c->name, (int)c->pid, how, n);
    else
        log_error("%s (process %d) ended by itself: %s %d%s%s", c->name, (int)c->pid, how, n,
                  c->reason[0] ? ": " : "", c->reason);
}

void child_ended(struct child *c, int status)
{
    uint64_t now = clock_mono_ms();

    if (c->ready_fd >= 0)
        child_read_ready(c); /* its last message */
    util_close(&c->ready_fd);
    log_end(c, status);
    c->failures = c->expected || now - c->started_ms > STABLE_MS ? 0 : c->failures + 1;
    c->restart_at_ms = c->expected ? now : now + backoff_ms(c);
    if (!c->reason[0])
        snprintf(c->reason, sizeof(c->reason), "%s ended with %s %d before it was ready", c->name,
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    c->pid = 0;
    c->ready = c->expected = false;
}

void child_signal(struct child *c, int signal, bool expected)
{
    if (c->pid <= 0)
        return;
    c->expected = c->expected || expected;
    (void)kill(c->pid, signal);
}
