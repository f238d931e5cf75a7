/* cay-privd: makes and ends sandboxes, as root, for one peer. Wiring only. Start: the steps of
 * the table in their order, each of which works or says why not; recovery is one of them, and
 * readiness is told after the host template. Stop: SIGTERM ends every slot and leaves nothing,
 * SIGUSR1 leaves everything to the successor. In between the loop alone runs: sources are the
 * server, signals, tasks, sandboxes' ends. */
#include "privd/command_sandbox.h"
#include "privd/confine.h"
#include "privd/egress.h"
#include "privd/leave.h"
#include "privd/locks.h"
#include "privd/unkilled.h"

#include "base/io.h"
#include "base/log.h"
#include "contract/keep.h"
#include "contract/meta.h"
#include "privd/end.h"
#include "privd/exchange.h"
#include "privd/jobs.h"
#include "privd/kept.h"
#include "privd/levels.h"
#include "privd/loop.h"
#include "privd/options.h"
#include "privd/permit.h"
#include "privd/privd.h"
#include "privd/records.h"
#include "privd/recover.h"
#include "privd/request.h"
#include "privd/sandbox.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privsep/server.h"
#include "runtime/runtime.h"
#include "sys/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#define STOP_TIMEOUT_MS 20000 /* without an end of any slot */
#define FILES_MIN       256   /* descriptors to begin with; each sandbox takes a few more */
#define LOCK_WAIT_MS    5
#define LOCK_TRIES      400
#define LOCK_NAME       "privd.lock"
#define SOCKET_NAME     "privd.sock"

/* -- who waits for readiness --------------------------------------------------------------- */

static void report_failed(struct privd *p, const char *what, int status)
{
    char text[KEEP_REASON_MAX];

    snprintf(text, sizeof(text), "%s%s%s", what, status ? ": " : "",
             status ? strerror(-status) : "");
    log_error("%s", text);
    keep_notify(&p->options.ready_fd, KEEP_FAILED, text);
}

/* -- stopping ---------------------------------------------------------------------------------- */

static uint32_t slots_left(const struct privd *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->options.slots_max; i++)
        n += p->slots[i].state != SLOT_EMPTY;
    return n;
}

/* Thousands take their time: only when none has gone since the last look is it given up. */
static void on_stop_timeout(void *arg)
{
    static uint32_t before = UINT32_MAX;
    struct privd *p = arg;
    uint32_t left = slots_left(p);

    if (left < before) {
        before = left;
        loop_arm(&p->loop, &p->stop_timer, STOP_TIMEOUT_MS, on_stop_timeout, p);
        return;
    }
    log_error("not everything could be ended: %u slots are left", left);
    p->exit_status = 1;
    loop_stop(&p->loop);
}

/* Ends every sandbox and every pooled slot; the loop stops when the last is gone (end.c). */
static void stop_all(struct privd *p)
{
    if (p->stopping)
        return;
    log_info("stopping: %u sandboxes are ended", p->n_sandboxes);
    p->stopping = true;
    jobs_stop(p);
    while (p->n_waiting > 0)
        sandbox_no_slot(p, -ECANCELED, PRIVSEP_STAGE_SLOT);
    for (uint32_t i = 0; i < p->options.slots_max; i++)
        end_force(p, &p->slots[i]);
    loop_arm(&p->loop, &p->stop_timer, STOP_TIMEOUT_MS, on_stop_timeout, p);
    if (slots_left(p) == 0)
        loop_stop(&p->loop);
}

static void on_signal(void *arg, uint32_t events)
{
    struct privd *p = arg;
    struct signalfd_siginfo info;

    if (read(p->signal_fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (info.ssi_signo == SIGUSR1) {
        log_info("leaving: %u sandboxes live on", p->n_sandboxes);
        loop_stop(&p->loop);
        return;
    }
    stop_all(p);
}

/* -- starting ---------------------------------------------------------------------------------- */

static int open_signals(struct privd *p)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (p->signal_fd < 0)
        return -errno;
    return loop_add(&p->loop, &p->signal_source, p->signal_fd, on_signal, p);
}

/* Children of a privd that was killed follow it within milliseconds; they hold the flock too, and
 * until it is free one of them might still make something that recovery has just found missing. */
static void wait_for_children_of_another(int fd)
{
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES) {
            log_warn("something that an earlier cay-privd started is still at work");
            return;
        }
        usleep(LOCK_WAIT_MS * 1000);
    }
}

/* A record lock is privd's alone: children do not inherit it, and it goes with its process. */
static int lock_file(const char *dir, int *out)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[OPTIONS_PATH_MAX + 16];
    int r;

    snprintf(path, sizeof(path), "%s/" LOCK_NAME, dir);
    *out = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*out >= 0 && fcntl(*out, F_SETLK, &whole) == 0)
        return 0;
    r = -errno;
    if (*out >= 0 && (r == -EAGAIN || r == -EACCES))
        log_error("another cay-privd uses %s; stop it, or give this one a directory of its own",
                  dir);
    else
        log_error("cannot lock %s: %s", path, strerror(-r));
    return r;
}

/* Two at a time would each undo what the other makes: of one run directory as of one state
 * directory. */
static int take_lock(struct privd *p)
{
    int r = lock_file(p->options.run_dir, &p->lock_fd);

    if (r == 0)
        r = lock_file(p->options.state_dir, &p->state_lock_fd);
    if (r == 0)
        wait_for_children_of_another(p->lock_fd);
    return r;
}

static int make_dir(const char *path, mode_t mode)
{
    struct stat st;

    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return -errno;
    if (lstat(path, &st) < 0)
        return -errno;
    return S_ISDIR(st.st_mode) && st.st_uid == 0 ? 0 : -EPERM;
}

static int open_runtime(struct privd *p)
{
    struct runtime_config config = {
        .state_dir = p->options.state_dir,
        .agent_path = p->options.agent,
        .checkpoint_path = p->options.checkpoint,
        .seal_path = p->options.seal,
        .exchange_key = p->options.exchange_key,
        .cgroup_name = p->cgroup_name,
        .uid_base = p->options.uid_base,
        .host_dir_fds = p->host_dir_fds,
        .disk = p->options.disk,
        .disk_bytes = p->options.disk_bytes,
        .layer_inodes = MIN(p->options.template_inodes, META_HOST_INODES) / 2,
        .slots_max = p->options.slots_max};
    int r;

    instance_cgroup(p->options.state_dir, p->cgroup_name);
    r = runtime_open(&config, &p->rt);
    return r < 0 ? r : levels_probe(p);
}

static void on_server(void *arg, uint32_t events)
{
    privsep_server_dispatch(((struct privd *)arg)->server);
}

static int open_server(struct privd *p)
{
    struct privsep_server_events ev = {request_handle, request_peer, p};
    char path[OPTIONS_PATH_MAX + 16];
    int r;

    snprintf(path, sizeof(path), "%s/" SOCKET_NAME, p->options.run_dir);
    r = privsep_server_new(path, p->options.peer_uid, &ev, &p->server);
    if (r < 0)
        return r;
    return loop_add(&p->loop, &p->server_source, privsep_server_fd(p->server), on_server, p);
}

static int read_host(struct privd *p)
{
    struct rlimit files;
    ssize_t n = io_read_text_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", p->boot_id,
                                sizeof(p->boot_id));

    if (n < 0)
        return (int)n;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return -errno;
    if (files.rlim_max < FILES_MIN) {
        log_error("only %llu open files are allowed (RLIMIT_NOFILE); %d are needed",
                  (unsigned long long)files.rlim_max, FILES_MIN);
        return -EMFILE;
    }
    p->bounds.open_files_max = (uint32_t)MIN(files.rlim_max, (rlim_t)UINT32_MAX);
    p->bounds.slots_max = p->options.slots_max;
    return 0;
}

static int check_kernel(struct privd *p)
{
    char why[KEEP_REASON_MAX];
    int r = kernel_check(why, sizeof(why));

    if (r < 0)
        log_error("%s", why);
    return r;
}

static int make_dirs(struct privd *p)
{
    int r = make_dir(p->options.run_dir, 0755);

    return r < 0 ? r : make_dir(p->options.state_dir, 0700);
}

static int confine(struct privd *p)
{
    const struct bucket *b = &p->options.bucket;
    /* The operator's files too, by their directories, so that one that is replaced is seen. */
    const char *const programs[] = {p->options.agent,       p->options.job, p->options.checkpoint,
                                    p->options.seal,        b->credentials, b->ca_file,
                                    p->options.exchange_key};
    int r = confine_process();

    return r < 0 ? r
                 : confine_mounts(p->options.state_dir, p->options.run_dir, programs,
                                  ARRAY_SIZE(programs), p->options.host_dirs, p->host_dir_fds);
}

static int open_records(struct privd *p)
{
    return records_open(&p->records, p->options.run_dir, p->options.slots_max);
}

static int open_kept(struct privd *p)
{
    return kept_open(&p->kept, p->options.state_dir);
}

static int open_volumes(struct privd *p)
{
    return volume_records_open(&p->volumes, p->options.state_dir);
}

static int open_loop(struct privd *p)
{
    p->pace.loop = &p->loop;
    return loop_init(&p->loop);
}

/* In this order; each either works or says why privd does not start. */
static const struct {
    int (*run)(struct privd *p);
    const char *failure;
} steps[] = {
    {check_kernel, "this machine cannot run sandboxes"},
    {make_dirs, "cannot make the state and run directories"},
    {take_lock, "cannot start here"},
    {open_loop, "cannot make the event loop"},
    {open_signals, "cannot take signals"},
    {locks_open, "out of memory"},
    {confine, "cannot confine itself"},
    {exchange_check_key, "cannot read a key"},
    {read_host, "this host does not do"},
    {open_runtime, "cannot prepare the machine"},
    {locks_start, "cannot start who watches locks"},
    {open_records, "cannot open the records"},
    {open_kept, "cannot open the records of kept layers"},
    {open_volumes, "cannot open the records of volumes"},
    {templates_load, "cannot read the templates"},
    {slots_init, "out of memory"},
    {jobs_init, "no control group for jobs"},
    {recover_run, "cannot find out what an earlier run left"},
    {egress_init, "cannot listen for cay-egress"},
    {open_server, "cannot listen for cayd"},
};

/* -- templates at start ------------------------------------------------------------------------ */

static bool any_template(const struct privd *p)
{
    for (uint32_t n = 1; n <= PERMIT_TEMPLATE_MAX; n++)
        if (template_find(p, n) && template_find(p, n)->ready)
            return true;
    return false;
}

static void on_host_template(struct privd *p, uint32_t number, int status, const char *reason)
{
    if (status < 0 && !any_template(p)) {
        char text[KEEP_REASON_MAX];

        snprintf(text, sizeof(text), "no template could be made: %s", reason);
        report_failed(p, text, 0);
        p->exit_status = 1;
        loop_stop(&p->loop);
        return;
    }
    /* A cayd that connected while the template was made thinks that there is none. */
    reply_templates(p, 0);
    keep_notify(&p->options.ready_fd, KEEP_READY, "");
    log_info("ready: disk %s, %u sandboxes", runtime_disk_name(p->rt), p->n_sandboxes);
}

static int start_templates(struct privd *p)
{
    return jobs_start(p, JOB_TEMPLATE_REFRESH, PRIVSEP_TEMPLATE_HOST, NULL, on_host_template);
}

/* -- the whole --------------------------------------------------------------------------------- */

/* A step that has logged what was wrong has said it better than its errno does. */
static void report_step_failed(struct privd *p, size_t step, int status)
{
    char text[KEEP_REASON_MAX], said[KEEP_REASON_MAX];

    if (log_last_error(said, sizeof(said)) == 0) {
        report_failed(p, steps[step].failure, status);
        return;
    }
    snprintf(text, sizeof(text), "%s: %.200s", steps[step].failure, said);
    report_failed(p, text, 0);
}

static int set_up(struct privd *p)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(steps) && r == 0; i++) {
        r = steps[i].run(p);
        if (r < 0)
            report_step_failed(p, i, r);
    }
    if (r == 0) {
        r = start_templates(p);
        if (r < 0)
            report_failed(p, "cannot start a job", r);
    }
    if (r == 0)
        slots_refill(p);
    if (r == 0) /* an earlier one may have ended before they were removed */
        bucket_sweep(p, BUCKET_SWEEP_FIRST_MS);
    return r;
}

/* After stop_all nothing stays; after SIGUSR1 or a failure everything that lives does. */
static void tear_down(struct privd *p)
{
    bool clean = p->stopping && p->exit_status == 0;
    char path[OPTIONS_PATH_MAX + 16];

    loop_remove(&p->loop, &p->server_source);
    privsep_server_free(p->server);
    egress_free(p);
    locks_stop(p);
    jobs_stop(p);
    jobs_free(p);
    command_sandbox_free_all(p);
    unkilled_free(p);
    leave_loop(p);
    opened_forget_all(p);
    slots_free(p);
    levels_free(p);
    if (clean) {
        records_remove(&p->records, p->options.run_dir);
        if (runtime_shutdown(p->rt) < 0)
            p->exit_status = 1;
        snprintf(path, sizeof(path), "%s/" LOCK_NAME, p->options.run_dir);
        (void)unlink(path);
    } else if (p->rt) {
        runtime_close(p->rt);
    }
    records_close(&p->records);
    kept_close(&p->kept);
    volume_records_close(&p->volumes);
    loop_free(&p->loop);
}

int main(int argc, char **argv)
{
    static struct privd p; /* in .bss: pages that were never written are in no task's fork */
    int r;

    p.signal_fd = p.lock_fd = p.state_lock_fd = p.loop.epoll_fd = -1;
    p.records.fd = p.kept.fd = p.volumes.fd = -1;
    p.dropper.task = p.copier.task = p.archiver.task = p.exchanger.task = p.volume_worker.task =
        p.cleaner.task = TASK_NONE;
    p.dropper.source = p.copier.source = p.archiver.source = p.exchanger.source =
        p.volume_worker.source = p.cleaner.source = LOOP_SOURCE_NONE;
    dump_init(&p);
    p.server_source = p.signal_source = LOOP_SOURCE_NONE;

    log_init("cay-privd", LOG_INFO);
    r = options_parse(argc, argv, &p.options);
    if (r != 0)
        return r < 0 ? KEEP_EXIT_OPTIONS : 0;
    if (geteuid() != 0) {
        report_failed(&p, "it must be started as root", 0);
        return KEEP_EXIT_FAILED;
    }
    r = set_up(&p);
    /* Memory that building the filters took would be copied with each task's fork. */
    malloc_trim(0);
    if (r == 0)
        r = loop_run(&p.loop);
    if (r < 0)
        p.exit_status = 1;
    tear_down(&p);
    return p.exit_status;
}
