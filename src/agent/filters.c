/* The kernel asks about each installation of a filter (user notification); agent's loop hands
 * it to filters_requested, which answers at once or, beyond the rate, when the timer allows.
 * Allowed is what keeps the process and the sandbox within their counts, which are read from
 * /proc at the time, with grants counted that a thread does not show yet. The requester waits in
 * the kernel meanwhile; the answer to one that was killed is dropped there. */

#include "agent/filters.h"

#include "agent/common/logs.h"
#include "base/clock.h"
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define STATUS_SIZE     4096
#define SCAN_AGAIN_MS   100  /* between two looks at all processes */
#define REPORT_AGAIN_MS 1000 /* between two lines of the log */
#define GRANTS_MAX      128
#define MESSAGE_SIZE    256 /* more than this kernel's struct: a newer one may read more */
#define ONE_TOKEN_MS    (1000 / FILTERS_PER_SECOND)

/* Allowed, and perhaps not there yet: counted until the thread has it, or has gone. */
struct grant {
    pid_t tid;       /* 0: none */
    uint32_t before; /* filters that it had */
};

struct filters {
    struct agent *agent;
    uv_timer_t timer;
    struct seccomp_notif waiting[FILTERS_WAITING_MAX]; /* a ring */
    uint32_t first, n_waiting;
    uint32_t base;               /* filters of ours, which everything inside has */
    uint32_t filters, processes; /* at most so many are there */
    struct grant grants[GRANTS_MAX];
    uint64_t scanned_ms, reported_ms, tokens_ms;
    uint32_t tokens, unannounced;
};

/* -- what processes have ----------------------------------------------------------------------- */

static bool number_of(const char *status, const char *field, uint32_t *out)
{
    const char *at = strstr(status, field);

    if (at)
        *out = (uint32_t)strtoul(at + strlen(field), NULL, 10);
    return at != NULL;
}

/* The name is the first line, and the kernel writes a line break in it as two characters: a line's
 * beginning is no tenant's. */
bool filters_parse(const char *status, struct filters_task *out)
{
    const char *state = strstr(status, "\nState:\t");
    uint32_t tid, process;

    if (!state || !number_of(status, "\nPid:\t", &tid) ||
        !number_of(status, "\nTgid:\t", &process) ||
        !number_of(status, "\nThreads:\t", &out->threads) ||
        !number_of(status, "\nSeccomp_filters:\t", &out->filters))
        return false;
    out->tid = (pid_t)tid;
    out->process = (pid_t)process;
    out->zombie = state[8] == 'Z' || state[8] == 'X';
    return true;
}

static bool read_task(const char *path, struct filters_task *out)
{
    char text[STATUS_SIZE];

    return io_read_text_at(AT_FDCWD, path, text, sizeof(text)) >= 0 && filters_parse(text, out);
}

static bool read_tid(pid_t tid, struct filters_task *out)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
    return read_task(path, out);
}

const char *filters_refusal(const struct filters_task *thread, const struct filters_task *first,
                            uint32_t base, uint32_t flags)
{
    if (thread->filters >= base + FILTERS_EACH_MAX)
        return "a process may have two of its own";
    if (first->zombie)
        return "the first thread of the process has ended";
    if (thread->threads > 1 && !(flags & SECCOMP_FILTER_FLAG_TSYNC))
        return "a process with several threads has to set them for all (TSYNC)";
    return NULL;
}

static void close_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

/* The most that a thread of a process has whose first thread has ended: that one's count says
 * nothing. */
static uint32_t most_of_threads(pid_t process)
{
    char path[64];
    uint32_t most = 0;
    const struct dirent *entry;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    CLEANUP(close_dir) DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        struct filters_task t;

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.12s/status", (int)process, entry->d_name);
        if (read_task(path, &t))
            most = MAX(most, t.filters);
    }
    return most;
}

static uint32_t count_grants(struct filters *f)
{
    uint32_t n = 0;

    for (size_t i = 0; i < GRANTS_MAX; i++) {
        struct grant *g = &f->grants[i];
        struct filters_task t;

        if (g->tid && (!read_tid(g->tid, &t) || t.zombie || t.filters > g->before))
            g->tid = 0;
        n += g->tid != 0;
    }
    return n;
}

/* Grants first: one that is done between both is then counted twice, not never. */
static void scan_processes(struct filters *f)
{
    CLEANUP(close_dir) DIR *dir = opendir("/proc");
    const struct dirent *entry;
    uint32_t filters = count_grants(f), processes = filters;

    if (!dir)
        return; /* as many as before */
    while ((entry = readdir(dir))) {
        struct filters_task t;

        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            !read_tid((pid_t)strtol(entry->d_name, NULL, 10), &t))
            continue;
        if (t.zombie && t.threads > 1)
            t.filters = MAX(t.filters, most_of_threads(t.process));
        if (t.filters > f->base) {
            filters += t.filters - f->base;
            processes++;
        }
    }
    f->filters = filters;
    f->processes = processes;
    f->scanned_ms = clock_mono_ms();
}

/* -- answers ----------------------------------------------------------------------------------- */

static struct grant *grant_of(struct filters *f, pid_t tid)
{
    struct grant *free_one = NULL;

    for (size_t i = 0; i < GRANTS_MAX; i++) {
        if (f->grants[i].tid == tid)
            return &f->grants[i];
        if (!free_one && f->grants[i].tid == 0)
            free_one = &f->grants[i];
    }
    return free_one;
}

/* NULL: it is allowed, and counted. */
static const char *allow(struct filters *f, const struct filters_task *t)
{
    bool has_some = t->filters > f->base;
    struct grant *g;

    /* Each grant counts as a process until the next look. */
    if ((f->processes >= FILTERS_PROCESSES_MAX || f->filters >= f->agent->filters_max) &&
        clock_mono_ms() - f->scanned_ms >= SCAN_AGAIN_MS)
        scan_processes(f);
    if (f->filters >= f->agent->filters_max)
        return "the sandbox has as many as it may";
    if (!has_some && f->processes >= FILTERS_PROCESSES_MAX)
        return "64 processes of the sandbox have some";
    g = grant_of(f, t->tid);
    if (!g)
        return "too many are being installed";
    *g = (struct grant){.tid = t->tid, .before = t->filters};
    f->filters++;
    f->processes += !has_some;
    return NULL;
}

static const char *evaluate(struct filters *f, const struct seccomp_notif *n)
{
    const struct seccomp_data *d = &n->data;
    bool by_prctl = d->nr == SYS_prctl;
    struct filters_task thread, first;
    const char *why;

    /* The kernel answers calls that make no filter: another mode, or no program at all, by which
     * programs ask whether there are filters. */
    if ((by_prctl && d->args[1] != SECCOMP_MODE_FILTER) || d->args[2] == 0)
        return NULL;
    if (!read_tid((pid_t)n->pid, &thread) || !read_tid(thread.process, &first))
        return "it cannot be seen what the process has";
    why = filters_refusal(&thread, &first, f->base, by_prctl ? 0 : (uint32_t)d->args[1]);
    return why ? why : allow(f, &thread);
}

static void report_refused(struct filters *f, pid_t pid, const char *why)
{
    uint64_t now = clock_mono_ms();

    f->unannounced++;
    if (f->reported_ms && now - f->reported_ms < REPORT_AGAIN_MS)
        return;
    logs_add(f->agent, "warn", "seccomp_filter_denied", pid,
             "no system call filter: %s (%u refused)", why, f->unannounced);
    f->reported_ms = now;
    f->unannounced = 0;
}

/* For a thread that was killed meanwhile the kernel returns ENOENT. */
static void answer(struct filters *f, const struct seccomp_notif *n, const char *why)
{
    union {
        struct seccomp_notif_resp of;
        char command_sandbox[MESSAGE_SIZE];
    } out;

    memset(&out, 0, sizeof(out));
    out.of.id = n->id;
    if (why) {
        out.of.error = -EPERM;
        report_refused(f, (pid_t)n->pid, why);
    } else {
        out.of.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    }
    (void)ioctl(AGENT_LISTENER_FD, SECCOMP_IOCTL_NOTIF_SEND, &out);
}

/* -- the rate ---------------------------------------------------------------------------------- */

static bool take_token(struct filters *f)
{
    uint64_t now = clock_mono_ms(), gained = (now - f->tokens_ms) / ONE_TOKEN_MS;

    f->tokens = (uint32_t)MIN(f->tokens + gained, (uint64_t)FILTERS_BURST);
    f->tokens_ms += gained * ONE_TOKEN_MS;
    if (f->tokens == 0)
        return false;
    f->tokens--;
    return true;
}

static void on_time(uv_timer_t *timer)
{
    struct filters *f = timer->data;

    while (f->n_waiting > 0 && take_token(f)) {
        const struct seccomp_notif *n = &f->waiting[f->first];

        answer(f, n, evaluate(f, n));
        f->first = (f->first + 1) % FILTERS_WAITING_MAX;
        f->n_waiting--;
    }
    if (f->n_waiting > 0)
        uv_timer_start(&f->timer, on_time, ONE_TOKEN_MS, 0);
}

void filters_requested(struct filters *f, const struct seccomp_notif *n)
{
    if (f->n_waiting == 0 && take_token(f)) {
        answer(f, n, evaluate(f, n));
        return;
    }
    if (f->n_waiting == FILTERS_WAITING_MAX) {
        answer(f, n, "too many are asked for at a time");
        return;
    }
    f->waiting[(f->first + f->n_waiting++) % FILTERS_WAITING_MAX] = *n;
    if (f->n_waiting == 1)
        uv_timer_start(&f->timer, on_time, ONE_TOKEN_MS, 0);
}

struct filters *filters_new(struct agent *a)
{
    struct filters *f = calloc(1, sizeof(*f));
    struct filters_task self;

    if (!f || !read_tid(getpid(), &self) || uv_timer_init(a->loop, &f->timer) < 0) {
        free(f);
        return NULL;
    }
    f->agent = a;
    f->base = self.filters;
    f->tokens = FILTERS_BURST;
    f->tokens_ms = clock_mono_ms();
    f->timer.data = f;
    return f;
}
