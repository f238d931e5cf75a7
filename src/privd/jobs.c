/* cay-job: one process per job, PID 1 of a pid namespace of its own (so that killing it leaves none
 * of what it started), in a cgroup of its own, with one deadline. It is given numbers only; what it
 * says on its standard output is read with bounds and passed on as text. */

#include "privd/jobs.h"

#include "base/log.h"
#include "contract/bucket.h"
#include "contract/meta.h"
#include "privd/host_dirs.h"
#include "privd/image_groups.h"
#include "privd/job_line.h"
#include "privd/loop.h"
#include "privd/members.h"
#include "privd/options.h"
#include "privd/privd.h"
#include "privd/reply.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privsep/server.h"
#include "sys/cgroup.h"
#include "sys/filter_host.h"
#include "sys/nice.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Three fetches, an archive, a sweep of the bucket, two builds of tenants, and one for what the
 * operator asks for: no kind waits for another's. */
#define JOBS_MAX     8
#define MEMORY_BYTES (2048ull * 1024 * 1024)
#define PIDS_MAX     1024

#define JOB_ENV_BUCKET 5
#define JOB_ENV_SIZE   (BUCKET_TEXT_MAX + 64)
#define TEXT_MAX       (sizeof(((struct privsep_msg *)0)->u.progress.text) - 1)

_Static_assert(JOBS_MAX <= IMAGE_GROUPS_FIRST, "apart from those of images");

struct job {
    struct privd *privd;
    uint32_t index; /* also its cgroup's number */
    uint32_t kind, number;
    struct reply_to reply_to; /* seq 0: privd itself */
    jobs_done_cb done;
    int pidfd; /* -1: this place is free */
    int out_fd;
    struct loop_source pid_source, out_source;
    struct loop_timer deadline;
    struct job_line line;
    int failure; /* -errno as the job told it */
    char reason[TEXT_MAX + 1];
};

struct jobs {
    struct cgroup *cgroup;
    struct job all[JOBS_MAX];
};

_Static_assert(JOB_TEMPLATE_BUILD == (uint32_t)PRIVSEP_JOB_TEMPLATE_BUILD &&
                   JOB_TEMPLATE_REMOVE == (uint32_t)PRIVSEP_JOB_TEMPLATE_REMOVE,
               "a kind that cayd asks for is handed on as it is");

/* Time and rights of each kind. An entry that was not written gives none: without a time it is not
 * started, and it has neither a template nor the bucket. */
static const struct kind {
    uint32_t deadline_ms; /* 0: not decided, and refused */
    bool template_number; /* its number is a template's */
    bool bucket;          /* it speaks to the bucket, with the operator's credentials */
} kinds[] = {
    [JOB_TEMPLATE_BUILD] = {.deadline_ms = 15 * 60 * 1000, .template_number = true},
    [JOB_TEMPLATE_REMOVE] = {.deadline_ms = 10 * 60 * 1000, .template_number = true},
    [JOB_TEMPLATE_REFRESH] = {.deadline_ms = 60 * 1000, .template_number = true},
    [JOB_SWEEP] = {.deadline_ms = 30 * 60 * 1000},
    [JOB_ARCHIVE] = {.deadline_ms = 15 * 60 * 1000},
    [JOB_BUCKET_PUT] = {.deadline_ms = 15 * 60 * 1000, .bucket = true},
    [JOB_BUCKET_GET] = {.deadline_ms = 15 * 60 * 1000, .bucket = true},
    [JOB_BUCKET_SWEEP] = {.deadline_ms = 15 * 60 * 1000, .bucket = true},
    [JOB_EXPORT] = {.deadline_ms = 15 * 60 * 1000},
    [JOB_IMPORT] = {.deadline_ms = 5 * 60 * 1000},
};
_Static_assert(ARRAY_SIZE(kinds) == JOB_KIND_COUNT, "a new kind: decide what it is given");

static bool is_of_template(uint32_t kind)
{
    return kinds[kind].template_number;
}

/* -- what it says ------------------------------------------------------------------------------ */

static void report_progress(struct job *j, unsigned percent, const char *text)
{
    struct privsep_msg m = {.op = PRIVSEP_PROGRESS};

    if (j->reply_to.seq == 0)
        return;
    m.u.progress.job_seq = j->reply_to.seq;
    m.u.progress.percent = percent;
    snprintf(m.u.progress.text, sizeof(m.u.progress.text), "%s", text);
    (void)privsep_server_send(j->privd->server, j->reply_to.peer, &m, NULL, 0);
}

static void on_said(void *arg, const struct job_said *said)
{
    struct job *j = arg;

    if (said->kind == JOB_SAID_OTHER) {
        log_debug("job %u %u: %s", j->kind, j->number, said->text);
        return;
    }
    if (said->kind == JOB_SAID_FAILURE) {
        j->failure = said->failure;
        snprintf(j->reason, sizeof(j->reason), "%.*s", (int)TEXT_MAX, said->text);
    }
    report_progress(j, said->percent, said->text);
}

/* Returns false at the end of what it says. At most 16 KiB a turn. */
static bool read_some(struct job *j)
{
    char bytes[4096];

    for (int i = 0; i < 4; i++) {
        ssize_t n = read(j->out_fd, bytes, sizeof(bytes));

        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        job_line_take(&j->line, bytes, (size_t)n, on_said, j);
    }
    return true;
}

static void on_output(void *arg, uint32_t events)
{
    struct job *j = arg;

    if (!read_some(j))
        loop_remove(&j->privd->loop, &j->out_source);
}

/* -- its end ----------------------------------------------------------------------------------- */

static void forget(struct job *j)
{
    struct jobs *all = CONTAINER_OF(j - j->index, struct jobs, all[0]);

    loop_remove(&j->privd->loop, &j->out_source);
    loop_remove(&j->privd->loop, &j->pid_source);
    loop_disarm(&j->privd->loop, &j->deadline);
    util_close(&j->out_fd);
    util_close(&j->pidfd);
    (void)cgroup_remove(all->cgroup, j->index);
}

static void on_end(void *arg, uint32_t events)
{
    struct job *j = arg;
    struct privd *p = j->privd;
    int code = 0, status = 0, result;

    if (pid_reap(j->pidfd, &code, &status) == -EAGAIN)
        return;
    for (int i = 0; i < 64 && j->out_source.fd >= 0; i++)
        on_output(j, 0);
    result = code == CLD_EXITED && status == 0 ? 0 : j->failure ? j->failure : -EIO;
    if (result < 0 && !j->reason[0])
        snprintf(j->reason, sizeof(j->reason), "ended by %s %d",
                 code == CLD_EXITED ? "exit status" : "signal", status);
    if (result < 0 && result != -EAGAIN)
        log_warn("job %u %u: %s", j->kind, j->number, j->reason);
    forget(j);
    if (is_of_template(j->kind)) {
        p->sweep_wanted = true;
        template_refresh(p, j->number); /* whatever became of the job */
        members_discard(p, j->number);  /* they stand on the template as it was before */
        if (j->kind == JOB_TEMPLATE_REMOVE && result == 0)
            pool_forget(&p->pool, j->number);
        slots_refill(p);
    }
    if (j->reply_to.seq != 0)
        reply_status(p, &j->reply_to, PRIVSEP_JOB, result, PRIVSEP_STAGE_NONE);
    if (j->done)
        j->done(p, j->number, result, j->reason);
    jobs_sweep_if_idle(p); /* last: it may take j's place */
}

static void on_deadline(void *arg)
{
    struct job *j = arg;

    log_warn("job %u %u: did not end in time, killed", j->kind, j->number);
    j->failure = -ETIMEDOUT;
    snprintf(j->reason, sizeof(j->reason), "did not end within %u seconds",
             kinds[j->kind].deadline_ms / 1000);
    report_progress(j, 100, j->reason);
    (void)pid_kill(j->pidfd, SIGKILL);
}

/* -- its start --------------------------------------------------------------------------------- */

/* In the child, as a dozen files are written. */
static int enter_group(const struct jobs *all, const struct job *j)
{
    struct cgroup_limits limits = {.memory_bytes = MEMORY_BYTES, .pids = PIDS_MAX};
    int r = cgroup_make(all->cgroup, j->index);

    if (r == 0)
        r = cgroup_limit(all->cgroup, j->index, CGROUP_WORK, &limits);
    return r == 0 ? cgroup_enter(all->cgroup, j->index, CGROUP_WORK) : r;
}

NORETURN static void fail_job(int out_fd, int status)
{
    char text[JOB_LINE_MAX];
    int n = snprintf(text, sizeof(text), "E %d no namespaces or control group of its own: %s\n",
                     -status, strerror(-status));

    (void)!write(out_fd, text, (size_t)n);
    _exit(126);
}

/* No job has work with them, and a build runs programs that are not cay's. */
static int hide_host_dirs(void)
{
    return umount2("/" HOST_DIRS_MOUNT, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && errno != ENOENT
               ? -errno
               : 0;
}

/* Only for jobs that speak to it. In the environment, as arguments are for all users to read. */
static void add_bucket(const struct bucket *b, char *texts, char **env)
{
    const struct {
        const char *name, *value;
    } all[JOB_ENV_BUCKET] = {{BUCKET_ENV_NAME, b->name},
                             {BUCKET_ENV_ENDPOINT, b->endpoint},
                             {BUCKET_ENV_REGION, b->region},
                             {BUCKET_ENV_CREDENTIALS, b->credentials},
                             {BUCKET_ENV_CA_FILE, b->ca_file}};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++, texts += JOB_ENV_SIZE) {
        if (!all[i].value)
            continue;
        snprintf(texts, JOB_ENV_SIZE, "%s=%s", all[i].name, all[i].value);
        *env++ = texts;
    }
}

NORETURN static void become_job(const struct jobs *all, const struct job *j, int out_fd)
{
    const struct options *o = &j->privd->options;
    char state[OPTIONS_PATH_MAX + 16], inodes[40], kind[16], number[16];
    static char name[] = "cay-job", lang[] = "LANG=C.UTF-8", home[] = "HOME=/nonexistent";
    static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    char *argv[] = {name, state, inodes, kind, number, NULL};
    char *env[4 + JOB_ENV_BUCKET] = {path, lang, home};
    char bucket[JOB_ENV_BUCKET * JOB_ENV_SIZE];
    sigset_t none;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC), r;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    r = unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ? -errno : hide_host_dirs();
    if (r == 0)
        r = enter_group(all, j);
    if (r == 0) /* a build takes minutes, and runs programs that are not the daemons' own */
        r = nice_give_up();
    if (r < 0)
        fail_job(out_fd, r);
    snprintf(state, sizeof(state), "--state-dir=%s", o->state_dir);
    /* Layers that are memory have numbers of another file system. */
    snprintf(inodes, sizeof(inodes), "--template-inodes=%u",
             runtime_can_keep(j->privd->rt) ? o->template_inodes : 0);
    if (kinds[j->kind].bucket && o->bucket.name)
        add_bucket(&o->bucket, bucket, env + 3);
    snprintf(kind, sizeof(kind), "%u", j->kind);
    snprintf(number, sizeof(number), "%u", j->number);
    sigemptyset(&none);
    if (null_fd < 0 || sigprocmask(SIG_SETMASK, &none, NULL) < 0 || dup2(null_fd, 0) < 0 ||
        dup2(out_fd, 1) < 0 || close_range(3, ~0u, 0) < 0 || setsid() < 0 ||
        filter_host_install(FILTER_HOST_JOB) < 0)
        _exit(126);
    execve(o->job, argv, env);
    _exit(127);
}

/* Only the pid namespace has to be made with the process; the child makes the others. */
static int spawn(struct jobs *all, struct job *j)
{
    CLEANUP_CLOSE int out = -1;
    int fds[2];
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    j->out_fd = fds[0];
    out = fds[1];
    pid = ns_fork(CLONE_NEWPID, SIGCHLD, &j->pidfd);
    if (pid == 0)
        become_job(all, j, out);
    if (pid < 0)
        return (int)pid;
    return fcntl(j->out_fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int watch(struct job *j)
{
    struct loop *l = &j->privd->loop;
    int r = loop_add(l, &j->out_source, j->out_fd, on_output, j);

    if (r == 0)
        r = loop_add(l, &j->pid_source, j->pidfd, on_end, j);
    if (r == 0)
        loop_arm(l, &j->deadline, kinds[j->kind].deadline_ms, on_deadline, j);
    return r;
}

static int start(struct jobs *all, struct job *j)
{
    int r = spawn(all, j);

    if (r == 0)
        r = watch(j);
    if (r < 0) {
        log_error("job %u %u: cannot be started: %s", j->kind, j->number, strerror(-r));
        if (j->pidfd >= 0) {
            int code, status;

            (void)pid_kill(j->pidfd, SIGKILL);
            (void)pid_wait(j->pidfd, &code, &status);
        }
        forget(j);
    }
    return r;
}

/* -- the table --------------------------------------------------------------------------------- */

/* Nothing of an earlier privd's jobs may go on: they died with it, but their cgroups are there. */
static void remove_old(void *arg, uint32_t number)
{
    struct jobs *all = arg;

    for (int i = 0; i < 200 && cgroup_remove(all->cgroup, number) == -EBUSY; i++) {
        (void)cgroup_kill(all->cgroup, number);
        usleep(5000);
    }
}

int jobs_init(struct privd *p)
{
    struct jobs *all = calloc(1, sizeof(*all));
    char why[256] = "", name[64];
    int r;

    if (!all)
        return -ENOMEM;
    snprintf(name, sizeof(name), "%s-jobs", p->cgroup_name);
    r = cgroup_open(name, &all->cgroup, why, sizeof(why));
    if (r < 0) {
        log_error("no control group for jobs: %s", why[0] ? why : strerror(-r));
        free(all);
        return r;
    }
    (void)cgroup_scan(all->cgroup, remove_old, all);
    for (uint32_t i = 0; i < JOBS_MAX; i++)
        all->all[i] = (struct job){.pidfd = -1};
    p->jobs = all;
    p->jobs_cgroup = all->cgroup;
    return 0;
}

/* A template has one job at a time, of any kind. */
static struct job *free_job(struct jobs *all, uint32_t kind, uint32_t number)
{
    struct job *found = NULL;

    for (uint32_t i = 0; i < JOBS_MAX; i++) {
        struct job *j = &all->all[i];

        if (j->pidfd >= 0 && j->number == number && is_of_template(j->kind) == is_of_template(kind))
            return NULL;
        if (j->pidfd < 0)
            found = j;
    }
    return found;
}

bool jobs_work_on(const struct privd *p, uint32_t template_number)
{
    for (uint32_t i = 0; p->jobs && i < JOBS_MAX; i++) {
        const struct job *j = &p->jobs->all[i];

        if (j->pidfd >= 0 && is_of_template(j->kind) && j->number == template_number)
            return true;
    }
    return false;
}

int jobs_start(struct privd *p, uint32_t kind, uint32_t template_number, const struct reply_to *to,
               jobs_done_cb done)
{
    struct job *j;

    if (kind >= JOB_KIND_COUNT || kinds[kind].deadline_ms == 0)
        return -EINVAL;
    j = p->stopping ? NULL : free_job(p->jobs, kind, template_number);
    if (!j)
        return -EBUSY;
    if (is_of_template(kind))
        members_discard(p, template_number);
    *j = (struct job){.privd = p,
                      .index = (uint32_t)(j - p->jobs->all),
                      .kind = kind,
                      .number = template_number,
                      .reply_to = to ? *to : (struct reply_to){0},
                      .done = done,
                      .pidfd = -1,
                      .out_fd = -1,
                      .pid_source = LOOP_SOURCE_NONE,
                      .out_source = LOOP_SOURCE_NONE};
    return start(p->jobs, j);
}

void jobs_cancel(struct privd *p, uint32_t kind, uint32_t number)
{
    for (uint32_t i = 0; p->jobs && i < JOBS_MAX; i++) {
        struct job *j = &p->jobs->all[i];

        if (j->pidfd < 0 || j->kind != kind || j->number != number)
            continue;
        j->failure = -ECANCELED;
        (void)pid_kill(j->pidfd, SIGKILL);
    }
}

void jobs_sweep_if_idle(struct privd *p)
{
    if (!p->sweep_wanted || p->n_sandboxes + p->n_starting + p->n_waiting > 0)
        return;
    if (jobs_start(p, JOB_SWEEP, 0, NULL, NULL) == 0)
        p->sweep_wanted = false;
}

void jobs_stop(struct privd *p)
{
    for (uint32_t i = 0; p->jobs && i < IMAGE_GROUPS; i++)
        remove_old(p->jobs, IMAGE_GROUPS_FIRST + i);
    for (uint32_t i = 0; p->jobs && i < JOBS_MAX; i++) {
        struct job *j = &p->jobs->all[i];
        int code, status;

        if (j->pidfd < 0)
            continue;
        (void)pid_kill(j->pidfd, SIGKILL);
        (void)pid_wait(j->pidfd, &code, &status);
        forget(j);
    }
}

void jobs_free(struct privd *p)
{
    if (!p->jobs)
        return;
    if (p->stopping)
        (void)cgroup_remove_base(p->jobs->cgroup);
    cgroup_close(TAKE_PTR(p->jobs_cgroup));
    free(TAKE_PTR(p->jobs));
}
