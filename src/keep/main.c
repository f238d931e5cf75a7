/* cay-keep: see keep.h. */
#include "keep/keep.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "keep/child.h"
#include "keep/options.h"
#include "keep/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define STOP_CAYD_MS  15000
#define STOP_PRIVD_MS 60000
#define ARGV_MAX      (OPTIONS_ARGS_MAX + 12)
#define TEXT_SIZE     320

/* What keep is doing beyond starting again what has ended. */
enum phase {
    PHASE_STARTING, /* nobody was ready yet; an end is a failed start */
    PHASE_RUNNING,
    PHASE_REPLACING_PRIVD, /* asked to leave, or its successor is not ready yet */
    PHASE_REPLACING_CAYD,
    PHASE_STOPPING_CAYD,
    PHASE_STOPPING_PRIVD
};

struct keep {
    struct options options;
    struct prepared prepared;
    struct child privd, cayd;
    enum phase phase;
    uint64_t deadline_ms; /* of this phase; 0: none */
    int signal_fd;
    char failure[KEEP_REASON_MAX]; /* why the start failed, or "" */
    int tell_fd; /* the process that went to the background tells its parent; -1: nobody */
    int exit_status;
    bool done;
    char *privd_argv[ARGV_MAX], *cayd_argv[ARGV_MAX];
    char texts[16][TEXT_SIZE]; /* what the argv arrays point to */
    size_t n_texts;
};

static void enter(struct keep *k, enum phase phase, uint64_t within_ms)
{
    k->phase = phase;
    k->deadline_ms = within_ms ? clock_mono_ms() + within_ms : 0;
}

/* -- telling whoever started it ---------------------------------------------------------------- */

static void tell(struct keep *k, char what, const char *reason)
{
    if (k->tell_fd >= 0)
        dprintf(k->tell_fd, "%c%s", what, reason);
    util_close(&k->tell_fd);
}

static void begin_stop(struct keep *k)
{
    if (k->phase == PHASE_STOPPING_CAYD || k->phase == PHASE_STOPPING_PRIVD)
        return;
    log_info("stopping");
    enter(k, PHASE_STOPPING_CAYD, STOP_CAYD_MS);
    child_signal(&k->cayd, SIGTERM, true);
}

/* Whoever waits is told when all is down again: it can then try once more at once. */
static void start_failed(struct keep *k, const char *reason)
{
    if (k->failure[0])
        return;
    log_error("the start failed: %s", reason);
    snprintf(k->failure, sizeof(k->failure), "%s", reason);
    k->exit_status = KEEP_EXIT_FAILED;
    begin_stop(k);
}

/* -- phases ------------------------------------------------------------------------------------ */

static void start_child(struct child *c)
{
    int r = child_start(c);

    if (r < 0) {
        log_error("%s cannot be started: %s", c->name, strerror(-r));
        c->restart_at_ms = clock_mono_ms() + 1000;
    }
}

static void start_what_is_due(struct keep *k)
{
    struct child *children[] = {&k->privd, &k->cayd};
    uint64_t now = clock_mono_ms();

    if (k->phase == PHASE_STOPPING_CAYD || k->phase == PHASE_STOPPING_PRIVD) {
        k->privd.restart_at_ms = k->cayd.restart_at_ms = 0;
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(children); i++)
        if (children[i]->pid == 0 && children[i]->restart_at_ms != 0 &&
            children[i]->restart_at_ms <= now)
            start_child(children[i]);
}

static void check_start(struct keep *k)
{
    const struct child *children[] = {&k->privd, &k->cayd};

    for (size_t i = 0; i < ARRAY_SIZE(children); i++) {
        if (children[i]->pid == 0 && !children[i]->was_ever_ready) {
            start_failed(k, children[i]->reason);
            return;
        }
    }
    if (k->privd.ready && k->cayd.ready) {
        tell(k, KEEP_READY, "");
        log_info("ready");
        enter(k, PHASE_RUNNING, 0);
    }
}

static void begin_replacing(struct keep *k)
{
    char why[KEEP_REASON_MAX];

    if (k->phase != PHASE_RUNNING)
        return;
    (void)prepare_log(&k->options);
    if (child_check(&k->cayd, why) < 0) { /* a server with yesterday's certificate is better than none */
        log_error("nothing is replaced: %s", why);
        return;
    }
    log_info("replacing the daemons");
    child_signal(&k->privd, SIGUSR1, true);
    k->privd.ready = false;
    enter(k, PHASE_REPLACING_PRIVD, STOP_PRIVD_MS);
}

/* Each phase ends when what it waits for is there, or by its deadline. */
static void advance(struct keep *k)
{
    switch (k->phase) {
    case PHASE_STARTING: check_start(k); break;
    case PHASE_RUNNING: break;
    case PHASE_REPLACING_PRIVD:
        if (k->privd.ready) {
            child_signal(&k->cayd, SIGTERM, true);
            k->cayd.ready = false;
            enter(k, PHASE_REPLACING_CAYD, STOP_CAYD_MS);
        }
        break;
    case PHASE_REPLACING_CAYD:
        if (k->cayd.ready)
            enter(k, PHASE_RUNNING, 0);
        break;
    case PHASE_STOPPING_CAYD:
        if (k->cayd.pid == 0) {
            enter(k, PHASE_STOPPING_PRIVD, STOP_PRIVD_MS);
            child_signal(&k->privd, SIGTERM, true);
            advance(k);
        }
        break;
    case PHASE_STOPPING_PRIVD: k->done = k->privd.pid == 0; break;
    }
}

static void on_deadline(struct keep *k)
{
    k->deadline_ms = 0;
    switch (k->phase) {
    case PHASE_STARTING:
        start_failed(k, k->privd.ready ? "cayd did not become ready in time"
                                       : "cay-privd did not become ready in time");
        break;
    case PHASE_STOPPING_CAYD:
    case PHASE_REPLACING_CAYD:
        log_warn("cayd does not end, killed");
        child_signal(&k->cayd, SIGKILL, true);
        enter(k, k->phase, STOP_CAYD_MS);
        break;
    case PHASE_STOPPING_PRIVD:
        k->exit_status = KEEP_EXIT_FAILED; /* something may have been left */
        __attribute__((fallthrough));
    case PHASE_REPLACING_PRIVD:
        log_warn("cay-privd does not end, killed");
        child_signal(&k->privd, SIGKILL, true);
        enter(k, k->phase, STOP_PRIVD_MS);
        break;
    case PHASE_RUNNING: break;
    }
}

/* -- events ------------------------------------------------------------------------------------ */

/* Besides the daemons, sandboxes whose privd has died end here: it is the subreaper. */
static void reap(struct keep *k)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
        if (pid == k->privd.pid) {
            if (k->phase == PHASE_STOPPING_PRIVD && (!WIFEXITED(status) || WEXITSTATUS(status)))
                k->exit_status = KEEP_EXIT_FAILED;
            child_ended(&k->privd, status);
        } else if (pid == k->cayd.pid) {
            child_ended(&k->cayd, status);
        }
    }
}

static void on_signal(struct keep *k)
{
    struct signalfd_siginfo info;

    while (read(k->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        switch (info.ssi_signo) {
        case SIGCHLD: reap(k); break;
        case SIGHUP: begin_replacing(k); break;
        default: begin_stop(k); break;
        }
    }
}

static int next_wait_ms(const struct keep *k)
{
    uint64_t times[] = {k->deadline_ms, k->privd.restart_at_ms, k->cayd.restart_at_ms};
    uint64_t now = clock_mono_ms(), next = UINT64_MAX;

    for (size_t i = 0; i < ARRAY_SIZE(times); i++)
        if (times[i] != 0)
            next = MIN(next, times[i]);
    if (next == UINT64_MAX)
        return -1;
    return next <= now ? 0 : (int)MIN(next - now, (uint64_t)60000);
}

static void run(struct keep *k)
{
    while (!k->done) {
        struct pollfd fds[] = {{k->signal_fd, POLLIN, 0},
                               {k->privd.ready_fd, POLLIN, 0},
                               {k->cayd.ready_fd, POLLIN, 0}};

        if (poll(fds, ARRAY_SIZE(fds), next_wait_ms(k)) < 0 && errno != EINTR)
            break;
        if (fds[1].revents && k->privd.ready_fd >= 0)
            child_read_ready(&k->privd);
        if (fds[2].revents && k->cayd.ready_fd >= 0)
            child_read_ready(&k->cayd);
        if (fds[0].revents)
            on_signal(k);
        advance(k);
        if (k->deadline_ms != 0 && k->deadline_ms <= clock_mono_ms())
            on_deadline(k);
        start_what_is_due(k);
    }
}

/* -- command lines ----------------------------------------------------------------------------- */

PRINTF(2, 3) static char *text(struct keep *k, const char *fmt, ...)
{
    char *out = k->texts[k->n_texts++];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(out, TEXT_SIZE, fmt, ap);
    va_end(ap);
    return out;
}

static char *program(struct keep *k, const char *given, const char *name)
{
    return given ? text(k, "%s", given) : text(k, "%s/%s", k->options.program_dir, name);
}

static void add_args(char **argv, size_t n, const char *const *args, size_t n_args)
{
    for (size_t i = 0; i < n_args; i++)
        argv[n + i] = (char *)(uintptr_t)args[i];
}

static void make_command_lines(struct keep *k)
{
    const struct options *o = &k->options;
    char *privd[] = {program(k, o->privd, "cay-privd"),
                     text(k, "--ready-fd=%d", KEEP_READY_FD),
                     text(k, "--state-dir=%s/privd", o->state_dir),
                     text(k, "--run-dir=%s", o->run_dir),
                     text(k, "--agent=%s", program(k, o->agent, "cay-init")),
                     text(k, "--job=%s", program(k, o->job, "cay-job")),
                     text(k, "--peer-uid=%u", k->prepared.uid)};
    char *cayd[] = {program(k, o->cayd, "cayd"), text(k, "--listen-fd=%d", KEEP_LISTEN_FD),
                    text(k, "--ready-fd=%d", KEEP_READY_FD),
                    text(k, "--privd=%s/privd.sock", o->run_dir),
                    text(k, "--state-dir=%s/cayd", o->state_dir)};
    size_t n_cayd = ARRAY_SIZE(cayd);

    memcpy(k->privd_argv, privd, sizeof(privd));
    memcpy(k->cayd_argv, cayd, sizeof(cayd));
    add_args(k->privd_argv, ARRAY_SIZE(privd), o->privd_args, o->n_privd_args);
    if (o->tls_cert) {
        k->cayd_argv[n_cayd++] = text(k, "--tls-cert-fd=%d", KEEP_TLS_CERT_FD);
        k->cayd_argv[n_cayd++] = text(k, "--tls-key-fd=%d", KEEP_TLS_KEY_FD);
    }
    add_args(k->cayd_argv, n_cayd, o->cayd_args, o->n_cayd_args);
}

/* Where this program is: the others are beside it. */
static int find_program_dir(struct options *o)
{
    static char path[256];
    ssize_t n;

    if (o->program_dir)
        return 0;
    n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return -errno;
    path[n] = '\0';
    *strrchr(path, '/') = '\0';
    o->program_dir = path;
    return 0;
}

/* -- the whole --------------------------------------------------------------------------------- */

static int open_signals(struct keep *k)
{
    static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
        sigaddset(&set, signals[i]);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    k->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return k->signal_fd < 0 ? -errno : 0;
}

static int keep_it(struct keep *k)
{
    k->privd = (struct child){
        .name = "cay-privd", .argv = k->privd_argv, .listen_fd = -1, .ready_fd = -1};
    k->cayd = (struct child){.name = "cayd",
                             .argv = k->cayd_argv,
                             .listen_fd = k->prepared.listen_fd,
                             .files = {k->options.tls_cert, k->options.tls_key},
                             .ready_fd = -1,
                             .unprivileged = true,
                             .uid = k->prepared.uid,
                             .gid = k->prepared.gid};
    if (prepare_write_pid(&k->prepared) < 0 || open_signals(k) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || chdir("/") < 0) {
        tell(k, KEEP_FAILED, strerror(errno));
        return KEEP_EXIT_FAILED;
    }
    umask(022);
    enter(k, PHASE_STARTING, (uint64_t)k->options.ready_timeout_ms);
    start_child(&k->privd);
    start_child(&k->cayd);
    run(k);
    (void)unlink(k->prepared.pid_path);
    log_info("stopped");
    tell(k, KEEP_FAILED, k->failure[0] ? k->failure : "it was stopped before it was ready");
    return k->exit_status;
}

/* In the parent of the process that stays: its answer becomes the exit status. */
static int wait_for_answer(int fd)
{
    char text_in[PREPARE_WHY_SIZE];
    size_t n = 0;
    ssize_t got;

    while (n < sizeof(text_in) - 1 && (got = read(fd, text_in + n, sizeof(text_in) - 1 - n)) != 0) {
        if (got < 0 && errno != EINTR)
            break;
        n += got > 0 ? (size_t)got : 0;
    }
    text_in[n] = '\0';
    if (text_in[0] == KEEP_READY)
        return 0;
    fprintf(stderr, "cay-keep: %s\n", text_in[0] ? text_in + 1 : "it ended without a word");
    return KEEP_EXIT_FAILED;
}

static int go_to_background(struct keep *k)
{
    CLEANUP_CLOSE int null_fd = -1;
    int fds[2], r;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        fprintf(stderr, "cay-keep: %s\n", strerror(errno));
        return KEEP_EXIT_FAILED;
    }
    if (pid > 0) {
        close(fds[1]);
        return wait_for_answer(fds[0]);
    }
    close(fds[0]);
    k->tell_fd = fds[1];
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)setsid();
    (void)dup2(null_fd, 0);
    if (!k->options.log_file) {
        (void)dup2(null_fd, 1);
    } else if ((r = prepare_log(&k->options)) < 0) {
        dprintf(k->tell_fd, "%ccannot open %s: %s", KEEP_FAILED, k->options.log_file, strerror(-r));
        return KEEP_EXIT_FAILED;
    }
    return keep_it(k);
}

int main(int argc, char **argv)
{
    static struct keep k = {.tell_fd = -1, .signal_fd = -1};
    char why[PREPARE_WHY_SIZE];
    int r = options_parse(argc, argv, &k.options);

    if (r != 0)
        return r < 0 ? KEEP_EXIT_OPTIONS : 0;
    r = prepare_all(&k.options, &k.prepared, why);
    if (r != 0) {
        fprintf(stderr, "cay-keep: %s\n", why);
        return r;
    }
    log_init("cay-keep", LOG_INFO);
    if (find_program_dir(&k.options) < 0) {
        fprintf(stderr, "cay-keep: cannot find out where its programs are\n");
        return KEEP_EXIT_FAILED;
    }
    make_command_lines(&k);
    if (!k.options.daemon) {
        r = prepare_log(&k.options);
        return r < 0 ? KEEP_EXIT_FAILED : keep_it(&k);
    }
    return go_to_background(&k);
}
