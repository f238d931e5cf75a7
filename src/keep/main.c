/* cay-keep: see keep.h. Runs one loop over signals, children's readiness and deadlines. Phases:
 * starting (all of them, together), running (a daemon that ends is started again, later and later),
 * replacing each of them in turn (SIGHUP), stopping in the reverse order. advance() is the only
 * place where a phase ends; on_deadline() where one is given up. Nothing blocks but poll(2). */
#include "contract/keep.h"
#include "keep/pools.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "keep/child.h"
#include "keep/command.h"
#include "keep/options.h"
#include "keep/pools.h"
#include "keep/prepare.h"
#include "sys/nice.h"

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

#define STOP_CAYD_MS   15000
#define STOP_PRIVD_MS  60000
#define STOP_EGRESS_MS 15000
#define CHILDREN_MAX   (2 + OPTIONS_EGRESS_MAX)

/* The state of keep, beyond restarting the daemons that have ended. */
enum phase {
    PHASE_STARTING, /* no child was ready yet; an end is a failed start */
    PHASE_RUNNING,
    PHASE_REPLACING_PRIVD, /* asked to leave, or its successor is not ready yet */
    PHASE_REPLACING_EGRESS,
    PHASE_REPLACING_CAYD,
    PHASE_STOPPING_CAYD,
    PHASE_STOPPING_REST
};

struct keep {
    struct options options;
    struct prepared prepared;
    struct child children[CHILDREN_MAX]; /* privd, cayd, then those of cay-egress */
    size_t n_children;
    struct child *privd, *cayd, *egress; /* in it; n_egress of the last */
    size_t n_egress;
    enum phase phase;
    uint64_t deadline_ms; /* of this phase; 0: none */
    int signal_fd;
    char failure[KEEP_REASON_MAX]; /* why the start failed, or "" */
    int report_fd; /* the process that went to the background tells its parent; -1: none */
    int exit_status;
    bool done;
    struct commands commands;
};

static void enter(struct keep *k, enum phase phase, uint64_t within_ms)
{
    k->phase = phase;
    k->deadline_ms = within_ms ? clock_mono_ms() + within_ms : 0;
}

/* -- telling the starter ---------------------------------------------------------------- */

static void report(struct keep *k, char what, const char *reason)
{
    if (k->report_fd >= 0)
        dprintf(k->report_fd, "%c%s", what, reason);
    util_close(&k->report_fd);
}

static void signal_all(struct child *children, size_t n, int signal)
{
    for (size_t i = 0; i < n; i++) {
        child_signal(&children[i], signal, true);
        children[i].ready = false;
    }
}

static void begin_stop(struct keep *k)
{
    if (k->phase == PHASE_STOPPING_CAYD || k->phase == PHASE_STOPPING_REST)
        return;
    log_info("stopping");
    enter(k, PHASE_STOPPING_CAYD, STOP_CAYD_MS);
    signal_all(k->cayd, 1, SIGTERM);
}

/* The waiting starter is told when all is down again: it can then try once more at once. */
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
    bool stopping = k->phase == PHASE_STOPPING_CAYD || k->phase == PHASE_STOPPING_REST;
    uint64_t now = clock_mono_ms();

    for (size_t i = 0; i < k->n_children; i++) {
        struct child *c = &k->children[i];

        if (stopping)
            c->restart_at_ms = 0;
        else if (c->pid == 0 && c->restart_at_ms != 0 && c->restart_at_ms <= now)
            start_child(c);
    }
}

static void check_start(struct keep *k)
{
    const struct child *late = NULL;

    for (size_t i = 0; i < k->n_children; i++) {
        const struct child *c = &k->children[i];

        if (c->pid == 0 && !c->was_ever_ready) {
            start_failed(k, c->reason);
            return;
        }
        if (!c->ready)
            late = c;
    }
    if (!late) {
        report(k, KEEP_READY, "");
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
    if (child_check(k->cayd, why) <
        0) { /* a server with yesterday's certificate is better than none */
        log_error("nothing is replaced: %s", why);
        return;
    }
    log_info("replacing the daemons");
    signal_all(k->privd, 1, SIGUSR1);
    enter(k, PHASE_REPLACING_PRIVD, STOP_PRIVD_MS);
}

static bool all_are_ready(const struct child *children, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!children[i].ready)
            return false;
    return true;
}

/* Each phase ends when what it waits for is there, or by its deadline. */
static void advance(struct keep *k)
{
    switch (k->phase) {
    case PHASE_STARTING: check_start(k); break;
    case PHASE_RUNNING: break;
    case PHASE_REPLACING_PRIVD:
        if (k->privd->ready) {
            signal_all(k->egress, k->n_egress, SIGTERM);
            enter(k, PHASE_REPLACING_EGRESS, STOP_EGRESS_MS);
            advance(k);
        }
        break;
    case PHASE_REPLACING_EGRESS:
        if (all_are_ready(k->egress, k->n_egress)) {
            signal_all(k->cayd, 1, SIGTERM);
            enter(k, PHASE_REPLACING_CAYD, STOP_CAYD_MS);
        }
        break;
    case PHASE_REPLACING_CAYD:
        if (k->cayd->ready)
            enter(k, PHASE_RUNNING, 0);
        break;
    case PHASE_STOPPING_CAYD:
        if (k->cayd->pid == 0) {
            enter(k, PHASE_STOPPING_REST, STOP_PRIVD_MS);
            signal_all(k->privd, 1, SIGTERM);
            signal_all(k->egress, k->n_egress, SIGTERM);
            advance(k);
        }
        break;
    case PHASE_STOPPING_REST:
        k->done = true;
        for (size_t i = 0; i < k->n_children; i++)
            k->done = k->done && k->children[i].pid == 0;
        break;
    }
}

/* Those that should have ended, or be ready, by now: they are given the time once more. */
static void kill_all(struct keep *k, struct child *children, size_t n, uint64_t within_ms)
{
    for (size_t i = 0; i < n; i++) {
        if (children[i].pid <= 0 || children[i].ready)
            continue;
        log_warn("%s does not end, killed", children[i].name);
        child_signal(&children[i], SIGKILL, true);
    }
    enter(k, k->phase, within_ms);
}

static void on_deadline(struct keep *k)
{
    char reason[KEEP_REASON_MAX];

    k->deadline_ms = 0;
    switch (k->phase) {
    case PHASE_STARTING:
        for (size_t i = 0; i < k->n_children; i++) {
            if (k->children[i].ready)
                continue;
            snprintf(reason, sizeof(reason), "%s did not become ready in time",
                     k->children[i].name);
            start_failed(k, reason);
        }
        break;
    case PHASE_STOPPING_CAYD:
    case PHASE_REPLACING_CAYD: kill_all(k, k->cayd, 1, STOP_CAYD_MS); break;
    case PHASE_REPLACING_EGRESS: kill_all(k, k->egress, k->n_egress, STOP_EGRESS_MS); break;
    case PHASE_STOPPING_REST:
        k->exit_status = KEEP_EXIT_FAILED; /* something may have been left */
        kill_all(k, k->children, k->n_children, STOP_PRIVD_MS);
        break;
    case PHASE_REPLACING_PRIVD: kill_all(k, k->privd, 1, STOP_PRIVD_MS); break;
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
        if (pid == k->privd->pid && k->phase == PHASE_STOPPING_REST &&
            (!WIFEXITED(status) || WEXITSTATUS(status)))
            k->exit_status = KEEP_EXIT_FAILED;
        for (size_t i = 0; i < k->n_children; i++)
            if (k->children[i].pid == pid)
                child_ended(&k->children[i], status);
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
    uint64_t now = clock_mono_ms(), next = k->deadline_ms ? k->deadline_ms : UINT64_MAX;

    for (size_t i = 0; i < k->n_children; i++)
        if (k->children[i].restart_at_ms != 0)
            next = MIN(next, k->children[i].restart_at_ms);
    if (next == UINT64_MAX)
        return -1;
    return next <= now ? 0 : (int)MIN(next - now, (uint64_t)60000);
}

static void run(struct keep *k)
{
    while (!k->done) {
        struct pollfd fds[1 + CHILDREN_MAX] = {{k->signal_fd, POLLIN, 0}};

        for (size_t i = 0; i < k->n_children; i++)
            fds[1 + i] = (struct pollfd){k->children[i].ready_fd, POLLIN, 0};
        if (poll(fds, 1 + k->n_children, next_wait_ms(k)) < 0 && errno != EINTR)
            break;
        for (size_t i = 0; i < k->n_children; i++)
            if (fds[1 + i].revents && k->children[i].ready_fd >= 0)
                child_read_ready(&k->children[i]);
        if (fds[0].revents)
            on_signal(k);
        advance(k);
        if (k->deadline_ms != 0 && k->deadline_ms <= clock_mono_ms())
            on_deadline(k);
        start_what_is_due(k);
    }
}

/* -- the whole --------------------------------------------------------------------------------- */

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

static void make_children(struct keep *k)
{
    k->privd = &k->children[0];
    k->cayd = &k->children[1];
    k->egress = &k->children[2];
    k->n_egress = (size_t)k->options.egress_processes;
    k->n_children = 2 + k->n_egress;
    *k->privd = (struct child){.name = "cay-privd",
                               .argv = k->commands.privd.argv,
                               .listen_fd = -1,
                               .second_fd = -1,
                               .ready_fd = -1};
    *k->cayd = (struct child){.name = "cayd",
                              .argv = k->commands.cayd.argv,
                              .listen_fd = k->prepared.listen_fd,
                              .second_fd = k->prepared.listen_second_fd,
                              .files = {k->options.tls_cert, k->options.tls_key},
                              .ready_fd = -1,
                              .unprivileged = true,
                              .uid = k->prepared.uid,
                              .gid = k->prepared.gid};
    for (size_t i = 0; i < k->n_egress; i++)
        k->egress[i] = (struct child){.name = "cay-egress",
                                      .argv = k->commands.egress[i].argv,
                                      .listen_fd = k->prepared.egress_fds[i],
                                      .second_fd = -1,
                                      .files = {k->options.egress_key_file},
                                      .ready_fd = -1,
                                      .unprivileged = true,
                                      .uid = k->prepared.egress_uid,
                                      .gid = k->prepared.egress_gid};
}

/* Inherited by every daemon; what they start for others gives it up (nice_give_up). A server that
 * does without answers as it should, only later while sandboxes are busy. */
static void set_priority(int priority)
{
    int r = priority > 0 ? nice_set(-priority) : 0;

    if (r < 0)
        log_warn("the daemons cannot run at nice -%d, so requests wait longer while sandboxes are "
                 "busy: %s (CAP_SYS_NICE; [server] priority = 0 asks for none)",
                 priority, strerror(-r));
}

static int keep_it(struct keep *k)
{
    make_children(k);
    if (prepare_write_pid(&k->prepared) < 0 || open_signals(k) < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || chdir("/") < 0) {
        report(k, KEEP_FAILED, strerror(errno));
        return KEEP_EXIT_FAILED;
    }
    umask(022);
    if (strcmp(k->options.listen_address, KEEP_LISTEN_LOCALHOST) == 0 &&
        k->prepared.listen_second_fd < 0)
        log_info("this machine has no ::1: only 127.0.0.1 is listened on");
    set_priority((int)k->options.priority);
    pools_set();
    enter(k, PHASE_STARTING, (uint64_t)k->options.ready_timeout_ms);
    for (size_t i = 0; i < k->n_children; i++)
        start_child(&k->children[i]);
    run(k);
    prepare_remove(&k->options, &k->prepared);
    log_info("stopped");
    report(k, KEEP_FAILED, k->failure[0] ? k->failure : "it was stopped before it was ready");
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
    k->report_fd = fds[1];
    null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)setsid();
    (void)dup2(null_fd, 0);
    if (!k->options.log_file) {
        (void)dup2(null_fd, 1);
    } else if ((r = prepare_log(&k->options)) < 0) {
        dprintf(k->report_fd, "%ccannot open %s: %s", KEEP_FAILED, k->options.log_file,
                strerror(-r));
        return KEEP_EXIT_FAILED;
    }
    return keep_it(k);
}

int main(int argc, char **argv)
{
    static struct keep k = {.report_fd = -1, .signal_fd = -1};
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
    command_make_all(&k.options, &k.prepared, &k.commands);
    if (!k.options.daemon) {
        r = prepare_log(&k.options);
        return r < 0 ? KEEP_EXIT_FAILED : keep_it(&k);
    }
    return go_to_background(&k);
}
