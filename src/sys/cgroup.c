/* The base directory is found or made once (cgroup_find.c); then for each slot: made, limits
 * written, its first process put in, killed or frozen as a whole, removed when empty. Both
 * versions have the same calls; what only one can do is in the table of its files. A file that
 * this kernel lacks is an error unless the limit is optional. */

#include "sys/cgroup_internal.h"

#include "base/io.h"
#include "sys/pid.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Below a slot's directory. Version 1 lets processes stand above others, so that PID 1 needs no
 * directory of its own there: it has what the whole may use and `work` may not. Each memory group
 * costs the kernel a table with an entry for every file system there is, which at thousands of
 * sandboxes is most of what they take (docs/reports/benchmarks.md). */
static const char *const leaf_names[2][3] = {
    {[CGROUP_AGENT] = "", [CGROUP_WORK] = "/work", [CGROUP_WHOLE] = ""},
    {[CGROUP_AGENT] = "/agent", [CGROUP_WORK] = "/work", [CGROUP_WHOLE] = ""},
};

#define PERIOD_US     100000
#define SOCKETS_SHARE 4 /* the part of the memory that buffers of sockets may take */
#define SOCKETS_MAX   (20u * 1024u * 1024u) /* and at most: it comes on top of the memory */
#define KILL_ROUNDS   16
#define PIDS_PER_READ 256

int cgroup_remove_base(struct cgroup *cg)
{
    int rc = 0;
    cgroup_spare_remove_all(cg);
    for (int i = 0; i < cg->count; i++)
        if (unlinkat(cg->h[i].mount_fd, cg->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            rc = -errno;
    return rc;
}

static const char *slot_path(char path[static PATH_SIZE], uint32_t slot, const char *rest)
{
    snprintf(path, PATH_SIZE, "%u%s%s", slot, *rest ? "/" : "", rest);
    return path;
}

static const char *leaf_path(const struct cgroup *cg, char path[static PATH_SIZE], uint32_t slot,
                             enum cgroup_leaf leaf, const char *file)
{
    snprintf(path, PATH_SIZE, "%u%s%s%s", slot, leaf_names[cg->v2][leaf], *file ? "/" : "", file);
    return path;
}

/* Writes one number (or text) of a leaf. A file that this kernel lacks is no error when optional.
 */
static int put(const struct cgroup *cg, enum controller c, uint32_t slot, enum cgroup_leaf leaf,
               const char *file, const char *value, bool optional)
{
    char path[PATH_SIZE];
    if (cg->of[c] < 0)
        return optional ? 0 : -EOPNOTSUPP;
    int rc = io_write_text_at(cg->h[cg->of[c]].fd, leaf_path(cg, path, slot, leaf, file), value);
    return rc < 0 && optional ? 0 : rc;
}

/* Processes of a sandbox count as SCHED_IDLE where the kernel chooses a processor for a process
 * that wakes: one on which only sandboxes run is as good as idle for a daemon. All slots are alike,
 * so that their shares against each other stay equal, and what all of them have against programs of
 * the host is the weight of the base directory, which is not changed. Without this, a sandbox that
 * makes processes as fast as it can delays its neighbours (docs/reports/neighbour-cost.md).
 * Optional: Linux 5.15. */
static int yield(const struct cgroup *cg, uint32_t slot)
{
    return put(cg, CPU, slot, CGROUP_WHOLE, "cpu.idle", "1", true);
}

int cgroup_make(const struct cgroup *cg, uint32_t slot)
{
    char path[PATH_SIZE];
    if (cgroup_spare_take(cg, slot) == 0)
        return 0;
    for (int i = 0; i < cg->count; i++) {
        int fd = cg->h[i].fd;
        int rc = cgroup_make_dir(fd, slot_path(path, slot, ""));
        if (rc == 0 && cg->v2) {
            CLEANUP_CLOSE int dir = openat(fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
            rc = dir < 0 ? -errno : cgroup_delegate(dir);
        }
        if (rc == 0 && cg->v2)
            rc = cgroup_make_dir(fd, leaf_path(cg, path, slot, CGROUP_AGENT, ""));
        if (rc == 0 && cg->h[i].leaves)
            rc = cgroup_make_dir(fd, leaf_path(cg, path, slot, CGROUP_WORK, ""));
        if (rc < 0)
            return rc;
    }
    return yield(cg, slot);
}

/* Version 2 counts what sockets hold as memory; version 1 counts it apart, and not at all until
 * there is a limit: one sandbox could take what net.ipv4.tcp_mem gives the whole machine. At the
 * limit connections get small windows, nothing fails. Optional: a kernel may be built without. */
static int limit_sockets(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                         uint64_t memory_bytes)
{
    char value[32];
    snprintf(value, sizeof(value), "%llu",
             (unsigned long long)MIN(memory_bytes / SOCKETS_SHARE, (uint64_t)SOCKETS_MAX));
    return put(cg, MEMORY, slot, leaf, "memory.kmem.tcp.limit_in_bytes",
               memory_bytes ? value : "-1", true);
}

static int limit_memory(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                        uint64_t bytes)
{
    char value[32];
    snprintf(value, sizeof(value), "%llu", (unsigned long long)bytes);
    if (cg->v2) {
        int rc = put(cg, MEMORY, slot, leaf, "memory.max", bytes ? value : "max", false);
        return rc < 0 ? rc : put(cg, MEMORY, slot, leaf, "memory.swap.max", "0", true);
    }
    if (!bytes)
        snprintf(value, sizeof(value), "-1");
    int rc = put(cg, MEMORY, slot, leaf, "memory.limit_in_bytes", value, false);
    if (rc == -EINVAL) { /* raised above the limit with swap, which comes first then */
        put(cg, MEMORY, slot, leaf, "memory.memsw.limit_in_bytes", "-1", true);
        rc = put(cg, MEMORY, slot, leaf, "memory.limit_in_bytes", value, false);
    }
    if (rc == 0)
        rc = limit_sockets(cg, slot, leaf, bytes);
    /* Where swap is accounted at all, it is not an escape. */
    return rc < 0 ? rc : put(cg, MEMORY, slot, leaf, "memory.memsw.limit_in_bytes", value, true);
}

static int limit_cpu(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf, uint32_t milli)
{
    char value[48];
    uint64_t quota_us = (uint64_t)milli * PERIOD_US / 1000;
    if (quota_us > 0 && quota_us < 1000)
        quota_us = 1000; /* the kernel's minimum */
    if (cg->v2) {
        snprintf(value, sizeof(value), "%llu %d", (unsigned long long)quota_us, PERIOD_US);
        return put(cg, CPU, slot, leaf, "cpu.max", milli ? value : "max", false);
    }
    snprintf(value, sizeof(value), "%lld", milli ? (long long)quota_us : -1);
    return put(cg, CPU, slot, leaf, "cpu.cfs_quota_us", value, false);
}

int cgroup_limit(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                 const struct cgroup_limits *limits)
{
    char value[32];
    int rc = limit_memory(cg, slot, leaf, limits->memory_bytes);
    snprintf(value, sizeof(value), "%llu", (unsigned long long)limits->pids);
    if (rc == 0)
        rc = put(cg, PIDS, slot, leaf, "pids.max", limits->pids ? value : "max", false);
    if (rc == 0 && cg->of[CPU] >= 0 && limits->cpu_milli)
        rc = limit_cpu(cg, slot, leaf, limits->cpu_milli);
    return rc;
}

/* Version 2 kills at a limit that is below what is used: pages that can be given back are asked for
 * first. Version 1 refuses by itself. */
static int make_free(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf, uint64_t bytes)
{
    char path[PATH_SIZE], value[32];
    uint64_t now = 0;

    if (!cg->v2)
        return 0;
    for (int i = 0; i < 2; i++) {
        if (io_read_text_at(cg->h[cg->of[MEMORY]].fd,
                            leaf_path(cg, path, slot, leaf, "memory.current"), value,
                            sizeof(value)) < 0)
            return -EIO;
        now = strtoull(value, NULL, 10);
        if (now <= bytes)
            return 0;
        snprintf(value, sizeof(value), "%llu", (unsigned long long)(now - bytes));
        (void)put(cg, MEMORY, slot, leaf, "memory.reclaim", value, true); /* Linux 5.19 */
    }
    return -EBUSY;
}

/* Version 1 moves memory to swap for a limit that is lower, where the machine has some: a sandbox
 * that does not fit into the limit with swap is held still. */
static int limit_swap(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf, uint64_t bytes)
{
    char value[32];
    int rc;

    if (cg->v2)
        return 0;
    snprintf(value, sizeof(value), "%llu", (unsigned long long)bytes);
    rc = put(cg, MEMORY, slot, leaf, "memory.memsw.limit_in_bytes", value, false);
    return rc == -ENOENT ? 0 : rc;
}

int cgroup_change(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                  const struct cgroup_limits *from, const struct cgroup_limits *to)
{
    int rc = 0;

    if (to->memory_bytes < from->memory_bytes)
        rc = make_free(cg, slot, leaf, to->memory_bytes);
    if (rc == 0 && to->memory_bytes != from->memory_bytes)
        rc = limit_memory(cg, slot, leaf, to->memory_bytes);
    if (rc == 0 && to->memory_bytes < from->memory_bytes)
        rc = limit_swap(cg, slot, leaf, to->memory_bytes);
    if (rc == 0 && cg->of[CPU] >= 0 && to->cpu_milli != from->cpu_milli)
        rc = limit_cpu(cg, slot, leaf, to->cpu_milli);
    return rc;
}

/* Of the hierarchies that have leaves, or of the others, in which the whole is one. */
static int open_attach(const struct cgroup *cg, bool leaves, uint32_t slot, enum cgroup_leaf leaf,
                       int fds[static CGROUP_ATTACH_MAX])
{
    char path[PATH_SIZE];
    int count = 0;
    for (int i = 0; i < cg->count; i++) {
        if (cg->h[i].leaves != leaves)
            continue;
        int fd = -1;
        if (count < CGROUP_ATTACH_MAX)
            fd = openat(cg->h[i].fd,
                        leaf_path(cg, path, slot, leaf, cg->v2 ? "cgroup.procs" : "tasks"),
                        O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            int rc = count < CGROUP_ATTACH_MAX ? -errno : -E2BIG;
            while (count > 0)
                util_close(&fds[--count]);
            return rc;
        }
        fds[count++] = fd;
    }
    return count;
}

int cgroup_open_attach(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                       int fds[static CGROUP_ATTACH_MAX])
{
    return open_attach(cg, true, slot, leaf, fds);
}

int cgroup_open_attach_whole(const struct cgroup *cg, uint32_t slot,
                             int fds[static CGROUP_ATTACH_MAX])
{
    return open_attach(cg, false, slot, CGROUP_WHOLE, fds);
}

int cgroup_enter(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf)
{
    return cgroup_move(cg, slot, leaf, 0);
}

int cgroup_move(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf, pid_t pid)
{
    char path[PATH_SIZE], text[16];
    snprintf(text, sizeof(text), "%d", (int)pid);
    for (int i = 0; i < cg->count; i++) {
        const char *file = cg->v2 ? "cgroup.procs" : "tasks";
        /* `tasks` moves one thread and takes no global lock (cgroup.procs does, for milliseconds).
         */
        int rc = io_write_text_at(cg->h[i].fd,
                                  cg->h[i].leaves ? leaf_path(cg, path, slot, leaf, file)
                                                  : slot_path(path, slot, file),
                                  text);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int cgroup_pids(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf, pid_t *pids, int max)
{
    char path[PATH_SIZE];
    int fd = openat(cg->h[cg->of[PIDS]].fd, leaf_path(cg, path, slot, leaf, "cgroup.procs"),
                    O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    FILE *f = fdopen(fd, "r");
    if (!f) {
        close(fd);
        return -ENOMEM;
    }
    char line[32];
    int count = 0;
    while (count < max && fgets(line, sizeof(line), f)) {
        pids[count] = (pid_t)strtol(line, NULL, 10);
        count += pids[count] > 0; /* 0: a process that this pid namespace does not see */
    }
    fclose(f);
    return count;
}

/* The process is held before it is looked at: a number that has come again since the list was read
 * is not in the group, and one that comes again after that is not what is held. */
static void kill_member(const struct cgroup *cg, uint32_t slot, pid_t pid)
{
    CLEANUP_CLOSE int fd = pid_open(pid);
    if (fd >= 0 && cgroup_holds(cg, slot, pid))
        pid_kill(fd, SIGKILL);
}

static int kill_leaf(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf)
{
    pid_t pids[PIDS_PER_READ] = {0};
    int left = 0;
    /* Each round kills what the one before missed because it forked; a fork bomb's parents die
     * first. */
    for (int round = 0; round < KILL_ROUNDS; round++) {
        left = cgroup_pids(cg, slot, leaf, pids, PIDS_PER_READ);
        if (left <= 0)
            return left == -ENOENT ? 0 : left;
        for (int i = 0; i < left; i++)
            kill_member(cg, slot, pids[i]);
    }
    return 0;
}

int cgroup_kill(const struct cgroup *cg, uint32_t slot)
{
    char path[PATH_SIZE];
    int rc = -ENOENT;
    if (cg->v2)
        rc = io_write_text_at(cg->h[0].fd, slot_path(path, slot, "cgroup.kill"), "1");
    if (rc < 0) { /* version 1, or a kernel before 5.14 */
        rc = kill_leaf(cg, slot, CGROUP_WORK);
        int rc2 = kill_leaf(cg, slot, CGROUP_AGENT);
        rc = rc < 0 ? rc : rc2;
    }
    cgroup_freeze(cg, slot, false);
    return rc;
}

static uint64_t number(int dir_fd, const char *path)
{
    char text[64];
    if (io_read_text_at(dir_fd, path, text, sizeof(text)) < 0)
        return 0;
    return strtoull(text, NULL, 10);
}

/* The number after `key ` at the start of a line. */
static uint64_t field(int dir_fd, const char *path, const char *key)
{
    char text[4096];
    size_t n = strlen(key);
    if (io_read_text_at(dir_fd, path, text, sizeof(text)) < 0)
        return 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, n) == 0 && line[n] == ' ')
            return strtoull(line + n + 1, NULL, 10);
    }
    return 0;
}

static void stat_memory(const struct cgroup *cg, uint32_t slot, struct cgroup_stat *out)
{
    char path[PATH_SIZE];
    int fd = cg->h[cg->of[MEMORY]].fd;
    uint64_t all = number(
        fd, slot_path(path, slot, cg->v2 ? "memory.current" : "memory.usage_in_bytes"));
    slot_path(path, slot, "memory.stat");
    uint64_t cache = field(fd, path, cg->v2 ? "file" : "total_cache");
    out->memory_cache_bytes = MIN(cache, all);
    out->memory_used_bytes = all - out->memory_cache_bytes;
    uint64_t limit = number(fd, leaf_path(cg, path, slot, CGROUP_WORK,
                                          cg->v2 ? "memory.max" : "memory.limit_in_bytes"));
    out->memory_limit_bytes = limit > (uint64_t)1 << 60
                                  ? 0
                                  : limit; /* v1 says "none" as a huge number */
}

int cgroup_stat(const struct cgroup *cg, uint32_t slot, struct cgroup_stat *out)
{
    char path[PATH_SIZE];
    *out = (struct cgroup_stat){0};
    stat_memory(cg, slot, out);
    if (cg->v2)
        out->cpu_used_us = field(cg->h[0].fd, slot_path(path, slot, "cpu.stat"), "usage_usec");
    else if (cg->of[CPUACCT] >= 0)
        out->cpu_used_us = number(cg->h[cg->of[CPUACCT]].fd,
                                  slot_path(path, slot, "cpuacct.usage")) /
                           1000;
    out->pids_used = (uint32_t)number(cg->h[cg->of[PIDS]].fd,
                                      slot_path(path, slot, "pids.current"));
    return 0;
}

static const char *oom_path(const struct cgroup *cg, char *path, uint32_t slot,
                            enum cgroup_leaf leaf)
{
    return leaf_path(cg, path, slot, leaf, cg->v2 ? "memory.events" : "memory.oom_control");
}

uint64_t cgroup_oom_kills(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf)
{
    char path[PATH_SIZE];
    return field(cg->h[cg->of[MEMORY]].fd, oom_path(cg, path, slot, leaf), "oom_kill");
}

int cgroup_open_oom(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf)
{
    char path[PATH_SIZE];
    int fd = openat(cg->h[cg->of[MEMORY]].fd, oom_path(cg, path, slot, leaf),
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
}

bool cgroup_holds(const struct cgroup *cg, uint32_t slot, pid_t pid)
{
    char path[PATH_SIZE], text[4096], want[128];
    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
        return false;
    for (int leaf = CGROUP_AGENT; leaf <= CGROUP_WORK; leaf++) {
        snprintf(want, sizeof(want), "/%s/%u%s", cg->name, slot, leaf_names[cg->v2][leaf]);
        const char *at = strstr(text, want);
        size_t n = strlen(want);
        if (at && (at[n] == '\n' || at[n] == '\0'))
            return true;
    }
    return false;
}

bool cgroup_is_empty(const struct cgroup *cg, uint32_t slot)
{
    char path[PATH_SIZE], text[32];

    return io_read_text_at(cg->h[cg->of[PIDS]].fd, slot_path(path, slot, "pids.current"), text,
                           sizeof(text)) > 0 &&
           strcmp(text, "0") == 0;
}

static int remove_dir(int fd, const char *path)
{
    return unlinkat(fd, path, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

/* As long as PID 1 lives, nothing is taken away from it. In version 1 it stands in the slot's own
 * directory, which would be removed last. */
static int check_agent_gone(const struct cgroup *cg, uint32_t slot)
{
    pid_t pid;
    int rc = cg->v2 ? 0 : cgroup_pids(cg, slot, CGROUP_AGENT, &pid, 1);

    return rc > 0 ? -EBUSY : rc == -ENOENT ? 0 : rc;
}

static int remove_leaves(const struct cgroup *cg, int fd, uint32_t slot)
{
    char path[PATH_SIZE];
    int rc = cg->v2 ? remove_dir(fd, leaf_path(cg, path, slot, CGROUP_AGENT, "")) : 0;

    return rc < 0 ? rc : remove_dir(fd, leaf_path(cg, path, slot, CGROUP_WORK, ""));
}

int cgroup_remove(const struct cgroup *cg, uint32_t slot)
{
    char path[PATH_SIZE];
    int rc = check_agent_gone(cg, slot);
    if (rc == 0 && cgroup_spare_put(cg, slot) == 0)
        return 0;
    for (int i = 0; rc == 0 && i < cg->count; i++)
        if (cg->h[i].leaves)
            rc = remove_leaves(cg, cg->h[i].fd, slot);
    for (int i = 0; rc == 0 && i < cg->count; i++)
        rc = remove_dir(cg->h[i].fd, slot_path(path, slot, ""));
    return rc;
}

struct scan {
    void (*found)(void *arg, uint32_t slot);
    void *arg;
};

static bool scan_name(void *arg, const char *name)
{
    const struct scan *s = arg;
    char *end;
    unsigned long slot = strtoul(name, &end, 10);

    if (end != name && *end == '\0' && slot <= UINT32_MAX)
        s->found(s->arg, (uint32_t)slot);
    return true;
}

int cgroup_scan(const struct cgroup *cg, void (*found)(void *arg, uint32_t slot), void *arg)
{
    struct scan scan = {found, arg};

    return io_each_name_at(cg->h[cg->of[PIDS]].fd, ".", scan_name, &scan);
}
