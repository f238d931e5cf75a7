/* The child's life: locks_start forks it, with descriptors that locks_open made; it gives up
 * what it does not need, then repeats for ever: sleep until the kernel has counted enough
 * calls, note who called, look whether the cache of locks has grown, and if so count and kill
 * in the sandboxes that called most. It tells privd nothing; its end, which nothing but a
 * failure causes, is seen by pidfd and ends privd, which is started again with it. locks_stop
 * kills it. */

#include "privd/locks.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/test_bypass.h"
#include "privd/loop.h"
#include "privd/options.h"
#include "privd/privd.h"
#include "runtime/runtime.h"
#include "sys/lockcalls.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define SLAB        "/sys/kernel/slab/file_lock_cache/total_objects"
#define CALLERS_MAX 64   /* processes that are remembered between two looks */
#define SAMPLES_MAX 1024 /* taken at a time */
#define PIDS_MAX    8192 /* of a sandbox that are looked at */
#define FILES_MAX   65536
#define CHECKED_MAX 4 /* sandboxes that one look goes through */
#define ROUNDS_MAX  4 /* of stopping what was made meanwhile */
#define END_MS      1000
#define GATHER_MS   2 /* samples that come together are one look's */
/* A look that killed no process is followed by so many times as long without one: a fifth of a
 * processor. */
#define REST_FACTOR 4
#define READ_SIZE   65536

struct caller {
    uint32_t slot, calls;
    pid_t pid;
};

/* A process of a sandbox that is being reduced. */
struct held {
    pid_t pid;
    uint32_t locks;
    bool stopped; /* by us */
};

struct locks {
    struct privd *privd;
    struct lockcalls calls;
    int slab_fd; /* -1: its size cannot be told; calls are counted instead */
    int pidfd;
    struct loop_source source;
    uint64_t lowest; /* objects in the cache when it was smallest since the last look */
    struct caller callers[CALLERS_MAX];
    size_t n_callers;
    uint32_t *unseen; /* by slot: how much the cache grew by calls whose locks were not found */
    pid_t samples[SAMPLES_MAX], pids[PIDS_MAX];
    struct held held[PIDS_MAX];
    size_t n_held;
    char text[READ_SIZE];
};

/* The locks of one sandbox, as far as its processes' files tell. */
struct count {
    uint32_t locks, files;
    bool hides; /* descriptors are under way in sockets, or there are more than are looked at */
};

/* -- counting ---------------------------------------------------------------------------------- */

static uint32_t lines_that_begin(const char *text, size_t n, const char *with)
{
    size_t len = strlen(with);
    uint32_t found = 0;

    for (const char *at = text, *end = text + n; at && at < end;
         at = memchr(at, '\n', (size_t)(end - at)), at = at ? at + 1 : NULL)
        found += (size_t)(end - at) >= len && memcmp(at, with, len) == 0;
    return found;
}

/* "lock:" lines of one file; what is cut at the end of a part begins no line then, so that one in a
 * thousand is missing. */
static void count_file(struct locks *l, int dir, const char *name, uint32_t *locks, bool *hides)
{
    CLEANUP_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    while (fd >= 0 && *locks <= LOCKS_MAX && (n = read(fd, l->text, READ_SIZE - 1)) > 0) {
        l->text[n] = '\0';
        *locks += lines_that_begin(l->text, (size_t)n, "lock:\t");
        const char *flying = strstr(l->text, "\nscm_fds: ");
        *hides |= flying && flying[10] != '0';
    }
}

static void close_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

static void count_process(struct locks *l, pid_t pid, struct count *c)
{
    char path[32];
    uint32_t locks = 0;
    const struct dirent *entry;

    snprintf(path, sizeof(path), "/proc/%d/fdinfo", (int)pid);
    CLEANUP(close_dir) DIR *dir = opendir(path);
    while (dir && locks <= LOCKS_MAX && c->files < FILES_MAX && (entry = readdir(dir)))
        if (entry->d_name[0] != '.') {
            c->files++;
            count_file(l, dirfd(dir), entry->d_name, &locks, &c->hides);
        }
    c->locks += locks;
}

/* The rest is not looked at once it is too many. */
static void count_sandbox(struct locks *l, uint32_t slot, struct count *c)
{
    int n = runtime_program_pids(l->privd->rt, slot, l->pids, PIDS_MAX);

    *c = (struct count){.hides = n == PIDS_MAX};
    for (int i = 0; i < n && c->locks <= LOCKS_MAX && c->files < FILES_MAX; i++)
        count_process(l, l->pids[i], c);
    c->hides |= c->files >= FILES_MAX;
}

/* -- killing ----------------------------------------------------------------------------------- */

static void kill_one(struct locks *l, uint32_t slot, pid_t pid, uint32_t locks, const char *how)
{
    if (pid <= 0 || runtime_program_signal(l->privd->rt, slot, pid, SIGKILL) < 0)
        return;
    runtime_notify_locks(l->privd->rt, slot);
    if (log_rate_allows(&l->privd->command_sandbox_log))
        log_warn(
            "slot %u: process %d was killed: its sandbox held %u locks on ranges of files%s; %u "
            "are allowed",
            slot, (int)pid, locks, how, LOCKS_MAX);
}

static bool is_held(const struct locks *l, pid_t pid)
{
    for (size_t i = 0; i < l->n_held; i++)
        if (l->held[i].pid == pid)
            return true;
    return false;
}

/* Stopped already, so not to be continued by us: state T of /proc/PID/stat, behind the name, which
 * is the tenant's. */
static bool is_stopped(pid_t pid)
{
    char path[32], text[512];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
        return false;
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && (name_end[2] == 'T' || name_end[2] == 't');
}

/* All of its processes: what a few of them do not make any more, others would. */
static void stop_all(struct locks *l, uint32_t slot)
{
    l->n_held = 0;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        int n = runtime_program_pids(l->privd->rt, slot, l->pids, PIDS_MAX);
        size_t before = l->n_held;

        for (int i = 0; i < n && l->n_held < PIDS_MAX; i++) {
            if (is_held(l, l->pids[i]))
                continue;
            struct held h = {.pid = l->pids[i], .stopped = !is_stopped(l->pids[i])};
            h.stopped = h.stopped &&
                        runtime_program_signal(l->privd->rt, slot, h.pid, SIGSTOP) == 0;
            l->held[l->n_held++] = h;
        }
        if (l->n_held == before)
            return;
    }
}

static struct held *holder_of_most(struct locks *l)
{
    struct held *most = NULL;

    for (size_t i = 0; i < l->n_held; i++)
        if (!most || l->held[i].locks > most->locks)
            most = &l->held[i];
    return most;
}

/* Kills those with most until there are few enough, and waits until what they held is gone. */
static void kill_most(struct locks *l, uint32_t slot, uint32_t locks)
{
    for (struct held *h = holder_of_most(l); h && h->locks > 0 && locks > LOCKS_MAX;
         h = holder_of_most(l)) {
        CLEANUP_CLOSE int fd = pid_open(h->pid);

        kill_one(l, slot, h->pid, locks, "");
        if (fd >= 0)
            (void)pid_await_end(fd, END_MS);
        locks -= h->locks;
        h->locks = 0;
    }
}

static void reduce(struct locks *l, uint32_t slot)
{
    struct count c = {0};

    stop_all(l, slot);
    for (size_t i = 0; i < l->n_held; i++) {
        uint32_t before = c.locks;

        count_process(l, l->held[i].pid, &c); /* no more than FILES_MAX files of all */
        l->held[i].locks = c.locks - before;
    }
    kill_most(l, slot, c.locks);
    for (size_t i = 0; i < l->n_held; i++)
        if (l->held[i].stopped)
            (void)runtime_program_signal(l->privd->rt, slot, l->held[i].pid, SIGCONT);
}

/* Locks that are in no process's files: all that call, and all that hold sockets in which
 * descriptors are. */
static void kill_hidden(struct locks *l, uint32_t slot)
{
    int n = runtime_program_pids(l->privd->rt, slot, l->pids, PIDS_MAX);

    for (size_t i = 0; i < l->n_callers; i++)
        if (l->callers[i].slot == slot)
            kill_one(l, slot, l->callers[i].pid, l->unseen[slot], ", in sockets");
    for (int i = 0; i < n; i++) {
        struct count c = {0};

        count_process(l, l->pids[i], &c);
        if (c.hides)
            kill_one(l, slot, l->pids[i], l->unseen[slot], ", in sockets");
    }
    l->unseen[slot] = 0;
}

/* -- who calls --------------------------------------------------------------------------------- */

static bool slot_of(const struct locks *l, pid_t pid, uint32_t *out)
{
    const struct options *o = &l->privd->options;
    char path[32], text[4096];
    const char *line;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0 ||
        !(line = strstr(text, "\nUid:\t")))
        return false;
    unsigned long uid = strtoul(line + 6, NULL, 10);
    if (uid < o->uid_base || (uid - o->uid_base) / RUNTIME_UID_COUNT >= o->slots_max)
        return false;
    *out = (uint32_t)((uid - o->uid_base) / RUNTIME_UID_COUNT);
    return true;
}

static void note_caller(struct locks *l, pid_t pid)
{
    uint32_t slot;

    for (size_t i = 0; i < l->n_callers; i++)
        if (l->callers[i].pid == pid) {
            l->callers[i].calls++;
            return;
        }
    if (l->n_callers < CALLERS_MAX && slot_of(l, pid, &slot))
        l->callers[l->n_callers++] = (struct caller){.slot = slot, .calls = 1, .pid = pid};
}

static uint32_t calls_of(const struct locks *l, uint32_t slot)
{
    uint32_t calls = 0;

    for (size_t i = 0; i < l->n_callers; i++)
        calls += l->callers[i].slot == slot ? l->callers[i].calls : 0;
    return calls;
}

/* The sandbox that called most, of those that called less than `below`; false: none. */
static bool next_slot(const struct locks *l, const uint32_t *done, size_t n_done, uint32_t *out)
{
    uint32_t most = 0;

    for (size_t i = 0; i < l->n_callers; i++) {
        uint32_t slot = l->callers[i].slot, calls = calls_of(l, slot);
        bool is_done = false;

        for (size_t j = 0; j < n_done; j++)
            is_done |= done[j] == slot;
        if (!is_done && calls > most) {
            most = calls;
            *out = slot;
        }
    }
    return most > 0;
}

/* -- a look ------------------------------------------------------------------------------------ */

static uint64_t cache_size(struct locks *l, size_t samples)
{
    char text[64];
    ssize_t n = l->slab_fd < 0 ? -1 : pread(l->slab_fd, text, sizeof(text) - 1, 0);

    if (n <= 0) /* as if each call had made one */
        return l->lowest + (uint64_t)samples * LOCKS_PERIOD;
    text[n] = '\0';
    return strtoull(text, NULL, 10);
}

/* Whether it killed. */
static bool check_sandbox(struct locks *l, uint32_t slot, uint64_t grown)
{
    struct count c;

    count_sandbox(l, slot, &c);
    if (c.locks > LOCKS_MAX) {
        reduce(l, slot);
        return true;
    }
    l->unseen[slot] = c.hides ? l->unseen[slot] + (uint32_t)MIN(grown, LOCKS_MAX) : 0;
    if (l->unseen[slot] <= LOCKS_MAX + c.locks)
        return false;
    kill_hidden(l, slot);
    return true;
}

static bool check_sandboxes(struct locks *l, uint64_t grown)
{
    uint32_t done[CHECKED_MAX], slot = 0;
    size_t n = 0;
    bool killed = false;

    while (n < CHECKED_MAX && next_slot(l, done, n, &slot)) {
        killed |= check_sandbox(l, slot, grown);
        done[n++] = slot;
    }
    l->n_callers = 0;
    return killed;
}

static void nap(uint64_t us)
{
    const struct timespec t = {.tv_sec = (time_t)(us / 1000000),
                               .tv_nsec = (long)(us % 1000000) * 1000};

    nanosleep(&t, NULL);
}

NORETURN static void watch(struct locks *l)
{
    l->lowest = UINT64_MAX;
    if (lockcalls_begin(&l->calls) < 0)
        _exit(2);
    while (lockcalls_wait(&l->calls) == 0) {
        size_t n = lockcalls_take(&l->calls, l->samples, SAMPLES_MAX);
        uint64_t size = cache_size(l, n);

        l->lowest = MIN(l->lowest, size);
        for (size_t i = 0; i < n; i++)
            note_caller(l, l->samples[i]);
        if (size - l->lowest >= LOCKS_STEP) {
            uint64_t began = clock_mono_us();

            bool killed = check_sandboxes(l, size - l->lowest);
            l->lowest = cache_size(l, 0);
            if (!killed)
                nap((clock_mono_us() - began) * REST_FACTOR);
        }
        nap(GATHER_MS * 1000);
    }
    _exit(1);
}

/* -- the child --------------------------------------------------------------------------------- */

int locks_open(struct privd *p)
{
    struct locks *l = calloc(1, sizeof(*l));
    int rc;

    if (!l)
        return -ENOMEM;
    *l = (struct locks){.privd = p, .slab_fd = -1, .pidfd = -1, .source = LOOP_SOURCE_NONE};
    l->unseen = calloc(p->options.slots_max, sizeof(*l->unseen));
    rc = !l->unseen                ? -ENOMEM
         : TEST_BYPASS(LOCK_WATCH) ? -ECANCELED
                                   : lockcalls_open(LOCKS_PERIOD, &l->calls);
    if (rc == 0) {
        l->slab_fd = open(SLAB, O_RDONLY | O_CLOEXEC);
        p->locks = l;
        return 0;
    }
    log_warn("locks on ranges of files are not bounded, %s: %s",
             "as this kernel does not tell who makes them", strerror(-rc));
    free(l->unseen);
    free(l);
    return rc == -ENOMEM ? rc : 0;
}

static void on_end(void *arg, uint32_t events)
{
    struct privd *p = arg;
    int code = 0, status = 0;

    if (pid_reap(p->locks->pidfd, &code, &status) == -EAGAIN)
        return;
    loop_remove(&p->loop, &p->locks->source);
    util_close(&p->locks->pidfd);
    log_error("who watches locks on ranges of files has ended (%s %d); cay-privd is started again "
              "with it",
              code == CLD_EXITED ? "exit status" : "signal", status);
    p->exit_status = 1;
    loop_stop(&p->loop);
}

/* It is no cay-privd to who looks for one by its command line. */
static void take_name(void)
{
    char text[4096];
    CLEANUP_CLOSE int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

    if (n > 0)
        memset(program_invocation_name, 0, (size_t)n);
    prctl(PR_SET_NAME, "cay-locks", 0, 0, 0);
}

NORETURN static void run(struct locks *l, pid_t parent)
{
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    take_name();
    /* Descriptors of privd's alone: a process that waits for privd's end sees it when these are
     * closed here too. */
    util_close(&l->privd->options.ready_fd);
    util_close(&l->privd->signal_fd);
    loop_free(&l->privd->loop);
    if (getppid() != parent)
        _exit(1);
    watch(l);
}

int locks_start(struct privd *p)
{
    struct locks *l = p->locks;
    pid_t parent = getpid(), pid;

    if (!l)
        return 0;
    pid = ns_fork(0, SIGCHLD, &l->pidfd);
    if (pid == 0)
        run(l, parent);
    if (pid < 0)
        return pid;
    lockcalls_close(&l->calls);
    util_close(&l->slab_fd);
    return loop_add(&p->loop, &l->source, l->pidfd, on_end, p);
}

void locks_stop(struct privd *p)
{
    int code, status;

    if (!p->locks || p->locks->pidfd < 0)
        return;
    loop_remove(&p->loop, &p->locks->source);
    (void)pid_kill(p->locks->pidfd, SIGKILL);
    (void)pid_wait(p->locks->pidfd, &code, &status);
    util_close(&p->locks->pidfd);
    free(p->locks->unseen);
    free(TAKE_PTR(p->locks));
}
