/* The child's life: locks_start forks it, with descriptors that locks_open made; it gives up
 * what it does not need, then repeats for ever: sleep until the kernel has counted enough
 * calls, note who called, look whether the cache of locks has grown, and if so have those
 * sandboxes checked that called most (locks_limit.c). It tells privd nothing; its end, which
 * nothing but a failure causes, is seen by pidfd and ends privd, which is started again with it.
 * locks_stop kills it. */

#include "privd/locks.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/test_bypass.h"
#include "privd/levels.h"
#include "privd/locks_limit.h"
#include "privd/loop.h"
#include "privd/options.h"
#include "privd/privd.h"
#include "runtime/runtime.h"
#include "sys/lockcalls.h"
#include "sys/ns.h"
#include "sys/pid.h"

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
#define CHECKED_MAX 4    /* sandboxes that one look goes through */
#define GATHER_MS   2    /* samples that come together are one look's */
/* A look that killed no process is followed by so many times as long without one: a fifth of a
 * processor. */
#define REST_FACTOR 4

struct locks {
    struct privd *privd;
    struct lockcalls calls;
    int slab_fd; /* -1: its size cannot be told; calls are counted instead */
    int pidfd;
    struct loop_source source;
    uint64_t lowest; /* objects in the cache when it was smallest since the last look */
    struct locks_caller callers[CALLERS_MAX];
    size_t n_callers;
    struct locks_limit *limit;
    pid_t samples[SAMPLES_MAX];
};

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
        l->callers[l->n_callers++] = (struct locks_caller){.slot = slot, .calls = 1, .pid = pid};
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

static bool check_sandboxes(struct locks *l, uint64_t grown)
{
    uint32_t done[CHECKED_MAX], slot = 0;
    size_t n = 0;
    bool killed = false;

    while (n < CHECKED_MAX && next_slot(l, done, n, &slot)) {
        killed |= locks_limit_check(l->limit, slot, grown, l->callers, l->n_callers);
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
    rc = locks_limit_new(p, &l->limit);
    if (rc == 0)
        rc = TEST_BYPASS(LOCK_WATCH) ? -ECANCELED : lockcalls_open(LOCKS_PERIOD, &l->calls);
    if (rc == 0) {
        l->slab_fd = open(SLAB, O_RDONLY | O_CLOEXEC);
        p->locks = l;
        return 0;
    }
    log_warn("locks on ranges of files are not bounded, %s: %s",
             "as this kernel does not tell who makes them", strerror(-rc));
    locks_limit_free(l->limit);
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
    loop_close_copy(&l->privd->loop);
    if (levels_seal_slots(l->privd) < 0 || getppid() != parent)
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
    locks_limit_free(p->locks->limit);
    free(TAKE_PTR(p->locks));
}
