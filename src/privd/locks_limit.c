/* The locks of a sandbox are read from /proc/PID/fdinfo of its programs, whose pids its level's
 * row gives and whose signals it sends. A sandbox that holds too many is stopped as a whole
 * while each process is counted (stop_all), those with most are killed until the rest has few
 * enough (kill_most), and the rest goes on. Locks that no process's files show are in sockets:
 * where a sandbox has such, it is charged with what the kernel's cache grew by (unseen), and
 * those that hide are killed (kill_hidden). Called by the watcher alone (locks.c), which may
 * block. */

#include "privd/locks_limit.h"

#include "base/io.h"
#include "base/log.h"
#include "privd/levels.h"
#include "privd/locks.h"
#include "privd/privd.h"
#include "runtime/runtime.h"
#include "sys/pid.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define PIDS_MAX   8192 /* of a sandbox that are looked at */
#define FILES_MAX  65536
#define ROUNDS_MAX 4 /* of stopping what was made meanwhile */
#define END_MS     1000
#define READ_SIZE  65536

/* A process of a sandbox that is being reduced. */
struct held {
    pid_t pid;
    uint32_t locks;
    bool stopped; /* by us */
};

struct locks_limit {
    struct privd *privd;
    const struct runtime_driver *driver; /* of the sandbox that is checked */
    const struct locks_caller *callers;
    size_t n_callers;
    uint32_t *unseen; /* by slot: how much the cache grew by calls whose locks were not found */
    pid_t pids[PIDS_MAX];
    struct held held[PIDS_MAX];
    size_t n_held;
    char text[READ_SIZE];
};

/* The locks of one sandbox, as far as its processes' files tell. */
struct count {
    uint32_t locks, files;
    bool hides; /* descriptors are under way in sockets, or there are more than are looked at */
};

int locks_limit_new(struct privd *p, struct locks_limit **out)
{
    struct locks_limit *l = calloc(1, sizeof(*l));

    if (l)
        l->unseen = calloc(p->options.slots_max, sizeof(*l->unseen));
    if (!l || !l->unseen) {
        free(l);
        return -ENOMEM;
    }
    l->privd = p;
    *out = l;
    return 0;
}

void locks_limit_free(struct locks_limit *l)
{
    if (l)
        free(l->unseen);
    free(l);
}

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

/* "lock:" lines of one file; a line that a part's end cuts is not counted, so that one in a
 * thousand is missing. */
static void count_file(struct locks_limit *l, int dir, const char *name, uint32_t *locks,
                       bool *hides)
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

static void count_process(struct locks_limit *l, pid_t pid, struct count *c)
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
static void count_sandbox(struct locks_limit *l, uint32_t slot, struct count *c)
{
    int n = l->driver->program_pids(l->privd->rt, slot, l->pids, PIDS_MAX);

    *c = (struct count){.hides = n == PIDS_MAX};
    for (int i = 0; i < n && c->locks <= LOCKS_MAX && c->files < FILES_MAX; i++)
        count_process(l, l->pids[i], c);
    c->hides |= c->files >= FILES_MAX;
}

/* -- killing ----------------------------------------------------------------------------------- */

static void kill_one(struct locks_limit *l, uint32_t slot, pid_t pid, uint32_t locks,
                     const char *how)
{
    if (pid <= 0 || l->driver->program_signal(l->privd->rt, slot, pid, SIGKILL) < 0)
        return;
    l->driver->notify_locks(l->privd->rt, slot);
    if (log_rate_allows(&l->privd->command_sandbox_log))
        log_warn(
            "slot %u: process %d was killed: its sandbox held %u locks on ranges of files%s; %u "
            "are allowed",
            slot, (int)pid, locks, how, LOCKS_MAX);
}

static bool is_held(const struct locks_limit *l, pid_t pid)
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
static void stop_all(struct locks_limit *l, uint32_t slot)
{
    l->n_held = 0;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        int n = l->driver->program_pids(l->privd->rt, slot, l->pids, PIDS_MAX);
        size_t before = l->n_held;

        for (int i = 0; i < n && l->n_held < PIDS_MAX; i++) {
            if (is_held(l, l->pids[i]))
                continue;
            struct held h = {.pid = l->pids[i], .stopped = !is_stopped(l->pids[i])};
            h.stopped = h.stopped &&
                        l->driver->program_signal(l->privd->rt, slot, h.pid, SIGSTOP) == 0;
            l->held[l->n_held++] = h;
        }
        if (l->n_held == before)
            return;
    }
}

static struct held *holder_of_most(struct locks_limit *l)
{
    struct held *most = NULL;

    for (size_t i = 0; i < l->n_held; i++)
        if (!most || l->held[i].locks > most->locks)
            most = &l->held[i];
    return most;
}

/* Kills those with most until there are few enough, and waits until what they held is gone. */
static void kill_most(struct locks_limit *l, uint32_t slot, uint32_t locks)
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

static void reduce(struct locks_limit *l, uint32_t slot)
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
            (void)l->driver->program_signal(l->privd->rt, slot, l->held[i].pid, SIGCONT);
}

/* Locks that are in no process's files: all that call, and all that hold sockets in which
 * descriptors are. */
static void kill_hidden(struct locks_limit *l, uint32_t slot)
{
    int n = l->driver->program_pids(l->privd->rt, slot, l->pids, PIDS_MAX);

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

/* -- one sandbox ------------------------------------------------------------------------------- */

static bool check(struct locks_limit *l, uint32_t slot, uint64_t grown)
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

bool locks_limit_check(struct locks_limit *l, uint32_t slot, uint64_t grown,
                       const struct locks_caller *callers, size_t n_callers)
{
    l->driver = levels_driver_of_slot(l->privd, slot);
    l->callers = callers;
    l->n_callers = n_callers;
    return l->driver && check(l, slot, grown);
}
