/* Looking at sandboxes from outside: which processes are theirs, what they use, and what is
 * there after a restart of cay-privd. A pid is a number that can be used again: each use is
 * checked against a descriptor (pidfd or /proc directory) that was opened in between, and a
 * process counts as the sandbox's only if its cgroup, its uid range and its place in the pid
 * namespaces agree. Nothing from inside is believed: no name, no file of the tenant's is read.
 * runtime_scan is called by recover.c alone, at the start. */

#include "runtime/observe.h"

#include "base/io.h"
#include "runtime/level.h"
#include "runtime/state.h"
#include "sys/mnt.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>

#define AGENT_PIDS_MAX  64
#define LIVING_PIDS_MAX 1024 /* of a leaf */

/* "Key:\tvalue..." of /proc/<pid>/status. */
static bool status_line(pid_t pid, const char *key, char *out, size_t size)
{
    char path[32], text[4096];
    size_t n = strlen(key);

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
        return false;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ':') {
            snprintf(out, size, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return true;
        }
    }
    return false;
}

/* Up to max numbers of a line; how many there are (max + 1: more). */
static int status_numbers(pid_t pid, const char *key, unsigned long *out, int max)
{
    char text[256];
    int n = 0;
    if (!status_line(pid, key, text, sizeof(text)))
        return 0;
    for (char *p = text, *end; n <= max; p = end, n++) {
        unsigned long number = strtoul(p, &end, 10);
        if (end == p)
            break;
        if (n < max)
            out[n] = number;
    }
    return n;
}

/* Whether pid is PID 1 of a pid namespace so many below ours: 1 a sandbox's, 2 a command sandbox's
 * in one. */
static bool is_first_of(pid_t pid, int depth)
{
    unsigned long ids[3] = {0};
    return status_numbers(pid, "NSpid", ids, 3) == depth + 1 && ids[depth] == 1;
}

static bool is_first(pid_t pid)
{
    return is_first_of(pid, 1);
}

static bool is_in_range(const struct runtime *rt, pid_t pid, uint32_t slot)
{
    unsigned long uid = 0, first = runtime_slot_uid(rt, slot);
    if (status_numbers(pid, "Uid", &uid, 1) < 1)
        return false;
    return uid >= first && uid - first < RUNTIME_UID_COUNT;
}

pid_t process_find_first(const struct runtime *rt, uint32_t slot)
{
    pid_t pids[AGENT_PIDS_MAX] = {0};
    int n = cgroup_pids(rt->cgroups, slot, CGROUP_AGENT, pids, AGENT_PIDS_MAX);
    for (int i = 0; i < n; i++)
        if (is_first(pids[i]))
            return pids[i];
    return 0;
}

int process_hold_first(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd)
{
    CLEANUP_CLOSE int fd = pid_open(pid);
    if (fd < 0)
        return -ESRCH;
    /* All is read by number, and only then is the descriptor asked whether it is still the same. */
    if (!is_first(pid) || !is_in_range(rt, pid, slot) || pid_has_ended(fd))
        return -ESRCH;
    *pidfd = TAKE_FD(fd);
    return 0;
}

int process_adopt(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd)
{
    CLEANUP_CLOSE int fd = -1;
    int rc = process_hold_first(rt, slot, pid, &fd);

    if (rc < 0 || !cgroup_holds(rt->cgroups, slot, pid) || pid_has_ended(fd))
        return -ESRCH;
    *pidfd = TAKE_FD(fd);
    task_move_high_fd(pidfd);
    return 0;
}

/* Looked at by number, then held, then looked at again: a pid that came again is not killed. */
uint32_t process_command_sandboxes_kill(const struct runtime *rt, uint32_t slot)
{
    uint32_t killed = 0;
    pid_t pids[AGENT_PIDS_MAX] = {0};
    int n = cgroup_pids(rt->cgroups, slot, CGROUP_AGENT, pids, AGENT_PIDS_MAX);
    for (int i = 0; i < n; i++) {
        CLEANUP_CLOSE int fd = is_first_of(pids[i], 2) ? pid_open(pids[i]) : -1;
        if (fd >= 0 && is_first_of(pids[i], 2) && is_in_range(rt, pids[i], slot))
            killed += pid_kill(fd, SIGKILL) == 0;
    }
    return killed;
}

/* The agent's leaf holds cay's processes only: cay-init, from its memory file, and those to become
 * one. */
static bool is_unfinished(pid_t pid)
{
    static const char agent[] = "/memfd:cay-init";
    char path[32], program[64];

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, program, sizeof(program));
    return n > 0 &&
           ((size_t)n < sizeof(agent) - 1 || memcmp(program, agent, sizeof(agent) - 1) != 0);
}

/* Held, and then looked at: what the number stands for now is what was opened, or that has
 * ended. */
void process_command_sandboxes_kill_unfinished(const struct runtime *rt, uint32_t slot)
{
    pid_t pids[AGENT_PIDS_MAX] = {0};
    int n = cgroup_pids(rt->cgroups, slot, CGROUP_AGENT, pids, AGENT_PIDS_MAX);
    for (int i = 0; i < n; i++) {
        CLEANUP_CLOSE int fd = pid_open(pids[i]);
        if (fd >= 0 && cgroup_holds(rt->cgroups, slot, pids[i]) && is_unfinished(pids[i]))
            pid_kill(fd, SIGKILL);
    }
}

int process_program_pids(const struct runtime *rt, uint32_t slot, pid_t *pids, int max)
{
    return cgroup_pids(rt->cgroups, slot, CGROUP_WORK, pids, max);
}

/* A process of a frozen version 1 group ends when it goes on; one that is gone has ended. */
static bool is_killed(pid_t pid)
{
    char mask[32];

    return !status_line(pid, "SigPnd", mask, sizeof(mask)) ||
           (strtoull(mask, NULL, 16) & (1ull << (SIGKILL - 1))) != 0;
}

static int count_living(const struct runtime *rt, uint32_t slot, enum cgroup_leaf leaf)
{
    pid_t pids[LIVING_PIDS_MAX] = {0};
    int n = cgroup_pids(rt->cgroups, slot, leaf, pids, LIVING_PIDS_MAX), living = 0;

    if (n < 0 || n == LIVING_PIDS_MAX)
        return n < 0 ? n : -E2BIG;
    for (int i = 0; i < n; i++)
        living += !is_killed(pids[i]);
    return living;
}

int process_living(const struct runtime *rt, const struct runtime_sandbox *sb)
{
    int agent = count_living(rt, sb->slot, CGROUP_AGENT);
    int work = agent < 0 ? agent : count_living(rt, sb->slot, CGROUP_WORK);

    return work < 0 ? work : agent + work;
}

int process_program_signal(const struct runtime *rt, uint32_t slot, pid_t pid, int signal)
{
    CLEANUP_CLOSE int fd = pid_open(pid);

    if (fd < 0 || !cgroup_holds(rt->cgroups, slot, pid) || is_first(pid))
        return -ESRCH;
    return pid_kill(fd, signal);
}

/* PID 1 of a namespace is not ended by a signal that it does not take: one that is not cay-init
 * yet. */
void process_notify_locks(const struct runtime *rt, uint32_t slot)
{
    pid_t pid = process_find_first(rt, slot);
    CLEANUP_CLOSE int fd = pid > 0 ? pid_open(pid) : -1;

    if (fd >= 0 && is_first(pid) && is_in_range(rt, pid, slot))
        pid_kill(fd, SIGUSR2);
}

/* A layer in memory is visible only through the sandbox's own root: asked by descriptor, O_PATH, of
 * its overlay's file system, with no name of the tenant's. */
static int root_usage(const struct runtime *rt, uint32_t slot, struct runtime_stat *out)
{
    char path[32];
    struct statfs fs;
    pid_t pid = process_find_first(rt, slot);
    snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
    CLEANUP_CLOSE int fd = pid ? open(path, O_PATH | O_CLOEXEC) : -1;
    if (fd < 0 || fstatfs(fd, &fs) < 0)
        return -ESRCH;
    out->disk_limit_bytes = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    out->disk_used_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
    return 0;
}

int process_stat(const struct runtime *rt, const struct runtime_sandbox *sb,
                 struct runtime_stat *out)
{
    struct cgroup_stat cg;
    struct runtime_stat s = {0};
    int rc = cgroup_stat(rt->cgroups, sb->slot, &cg);
    if (rc < 0)
        return rc;
    s.memory_used_bytes = cg.memory_used_bytes;
    s.memory_cache_bytes = cg.memory_cache_bytes;
    s.memory_limit_bytes = cg.memory_limit_bytes;
    s.cpu_used_us = cg.cpu_used_us;
    s.pids_used = cg.pids_used;
    rc = rt->disk.backend->layer_usage(&rt->disk, sb->slot, sb->gen, &s.disk_used_bytes,
                                       &s.disk_limit_bytes);
    if (rc == -EOPNOTSUPP)
        root_usage(rt, sb->slot, &s);
    *out = s;
    return 0;
}

/* --- after a restart -------------------------------------------------------------------------- */

struct scan {
    const struct runtime *rt;
    void (*found)(void *arg, const struct runtime_found *f);
    void *arg;
    uint8_t seen[RUNTIME_SLOTS_MAX]; /* 1: has a cgroup, 2: was reported with a layer */
};

static void see_cgroup(void *arg, uint32_t slot)
{
    struct scan *s = arg;
    if (slot < RUNTIME_SLOTS_MAX)
        s->seen[slot] |= 1;
}

static void report(struct scan *s, uint32_t slot, uint32_t gen, bool has_layer)
{
    bool has_cgroup = s->seen[slot] & 1;
    struct runtime_found f = {.slot = slot,
                              .gen = gen,
                              .has_layer = has_layer,
                              .has_cgroup = has_cgroup,
                              .pid = has_cgroup ? process_find_first(s->rt, slot) : 0};
    s->found(s->arg, &f);
}

static void see_layer(void *arg, uint32_t slot, uint32_t gen)
{
    struct scan *s = arg;
    if (slot >= RUNTIME_SLOTS_MAX)
        return;
    s->seen[slot] |= 2;
    report(s, slot, gen, true);
}

int runtime_scan(const struct runtime *rt, void (*found)(void *arg, const struct runtime_found *f),
                 void *arg)
{
    CLEANUP_FREE struct scan *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->rt = rt;
    s->found = found;
    s->arg = arg;
    int rc = cgroup_scan(rt->cgroups, see_cgroup, s);
    if (rc == 0)
        rc = disk_scan(&rt->disk, see_layer, s);
    for (uint32_t slot = 0; rc == 0 && slot < RUNTIME_SLOTS_MAX; slot++)
        if (s->seen[slot] == 1)
            report(s, slot, 0, false);
    return rc;
}
