/* Control groups of ended sandboxes that are kept to be used again (version 1 only, where making
 * and removing one is slow): renamed to spare-N at an end, and to the slot's name at the next
 * start. Called by cgroup.c inside tasks of cay-privd, several at a time, so that rename(2)
 * alone decides who gets one. Which names there are is a page of bits that the tasks share: to try
 * all of them is 64 renames that fail, for each slot that finds none. A task that is killed midway
 * leaves a bit that is wrong, which costs others one such rename. A group is kept only if nothing
 * of its old sandbox is left in it: no process, little memory charged, no OOM, no quota, and if
 * it is whole; it is removed otherwise. Version 2 has none. */

#include "sys/cgroup_internal.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SPARE  "spare."
#define NO_OOM "oom_kill 0"

static const char *slot_file(char path[static PATH_SIZE], uint32_t slot, const char *rest)
{
    snprintf(path, PATH_SIZE, "%" PRIu32 "%s", slot, rest);
    return path;
}

static const char *spare_name(char name[static PATH_SIZE], unsigned k, const char *rest)
{
    snprintf(name, PATH_SIZE, SPARE "%u%s", k, rest);
    return name;
}

/* --- which there are -------------------------------------------------------------------------- */

_Static_assert(CGROUP_SPARES == 64, "a bit each of a uint64_t");

static bool note_name(void *arg, const char *name)
{
    const struct cgroup *cg = arg;
    char *end;
    unsigned long k;

    if (strncmp(name, SPARE, strlen(SPARE)) != 0)
        return true;
    k = strtoul(name + strlen(SPARE), &end, 10);
    if (*end == '\0' && end[-1] != '.' && k < CGROUP_SPARES)
        atomic_fetch_or(cg->spares, UINT64_C(1) << k);
    return true;
}

int cgroup_spare_open(struct cgroup *cg)
{
    void *page;

    if (cg->v2)
        return 0;
    page = mmap(NULL, sizeof(*cg->spares), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0);
    if (page == MAP_FAILED)
        return -errno;
    cg->spares = page;
    /* In the last hierarchy each appears first, and goes last. */
    return io_each_name_at(cg->h[cg->count - 1].fd, ".", note_name, cg);
}

void cgroup_spare_close(struct cgroup *cg)
{
    if (cg->spares)
        (void)munmap(cg->spares, sizeof(*cg->spares));
    cg->spares = NULL;
}

/* Name k becomes taken; false: it was. */
static bool mark(const struct cgroup *cg, unsigned k)
{
    uint64_t bit = UINT64_C(1) << k;

    return !(atomic_fetch_or(cg->spares, bit) & bit);
}

static void unmark(const struct cgroup *cg, unsigned k)
{
    atomic_fetch_and(cg->spares, ~(UINT64_C(1) << k));
}

static bool is_marked(const struct cgroup *cg, unsigned k)
{
    return atomic_load(cg->spares) >> k & 1;
}

/* --- is it as new? ---------------------------------------------------------------------------- */

static ssize_t read_file(const struct cgroup *cg, enum controller c, uint32_t slot,
                         const char *rest, char *text, size_t size)
{
    char path[PATH_SIZE];
    return io_read_text_at(cg->h[cg->of[c]].fd, slot_file(path, slot, rest), text, size);
}

static bool reads(const struct cgroup *cg, enum controller c, uint32_t slot, const char *rest,
                  const char *want)
{
    char text[32];
    return read_file(cg, c, slot, rest, text, sizeof(text)) > 0 && strcmp(text, want) == 0;
}

static bool is_charged_little(const struct cgroup *cg, uint32_t slot)
{
    char text[32];
    return read_file(cg, MEMORY, slot, "/memory.usage_in_bytes", text, sizeof(text)) > 0 &&
           strtoull(text, NULL, 10) <= SPARE_CHARGE_MAX;
}

/* Each of both counts its own. */
static bool was_never_short(const struct cgroup *cg, uint32_t slot, const char *file)
{
    char text[128];
    if (read_file(cg, MEMORY, slot, file, text, sizeof(text)) <= 0)
        return false;
    const char *kills = strstr(text, NO_OOM);
    return kills && (kills[strlen(NO_OOM)] == '\0' || kills[strlen(NO_OOM)] == '\n');
}

static bool has_no_quota(const struct cgroup *cg, uint32_t slot)
{
    return cg->of[CPU] < 0 || (reads(cg, CPU, slot, "/cpu.cfs_quota_us", "-1") &&
                               reads(cg, CPU, slot, "/work/cpu.cfs_quota_us", "-1"));
}

static int reset(const struct cgroup *cg, uint32_t slot)
{
    char path[PATH_SIZE];
    int rc = 0;
    if (cg->of[CPUACCT] >= 0)
        rc = io_write_text_at(cg->h[cg->of[CPUACCT]].fd, slot_file(path, slot, "/cpuacct.usage"),
                              "0");
    if (rc == 0 && cg->of[FREEZER] >= 0)
        rc = cgroup_freeze(cg, slot, false);
    return rc;
}

/* --- renaming --------------------------------------------------------------------------------- */

static int rename_in(const struct cgroup *cg, int i, const char *from, const char *to)
{
    return renameat(cg->h[i].fd, from, cg->h[i].fd, to) < 0 ? -errno : 0;
}

static void remove_one(const struct cgroup *cg, int i, unsigned k)
{
    char name[PATH_SIZE];
    if (cg->h[i].leaves)
        (void)unlinkat(cg->h[i].fd, spare_name(name, k, "/work"), AT_REMOVEDIR);
    (void)unlinkat(cg->h[i].fd, spare_name(name, k, ""), AT_REMOVEDIR);
}

/* A start that failed, or a task that was killed, may have made a part of it. */
static bool is_whole(const struct cgroup *cg, uint32_t slot)
{
    char path[PATH_SIZE];

    for (int i = 0; i < cg->count; i++) {
        if (!cg->h[i].leaves)
            continue;
        CLEANUP_CLOSE int dir = openat(cg->h[i].fd, slot_file(path, slot, "/work"),
                                       O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
            return false;
    }
    return true;
}

/* Tasks do this side by side. A process that puts one begins with the last hierarchy, in which its
 * place becomes taken; one that takes one begins with the first, in which it appears last: each has
 * it whole. */
int cgroup_spare_put(const struct cgroup *cg, uint32_t slot)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    int last = cg->count - 1, rc = -EEXIST;
    unsigned k = 0;

    if (cg->v2)
        return -EOPNOTSUPP;
    if (!reads(cg, PIDS, slot, "/pids.current", "0"))
        return -EBUSY;
    if (!is_charged_little(cg, slot) || !was_never_short(cg, slot, "/memory.oom_control") ||
        !was_never_short(cg, slot, "/work/memory.oom_control") || !has_no_quota(cg, slot) ||
        !is_whole(cg, slot) || reset(cg, slot) < 0)
        return -EUCLEAN;
    slot_file(from, slot, "");
    for (; rc == -EEXIST && k < CGROUP_SPARES; k++)
        if (mark(cg, k))
            rc = rename_in(cg, last, from, spare_name(to, k, ""));
    if (rc < 0) {
        if (rc != -EEXIST) /* which stays taken */
            unmark(cg, k - 1);
        return rc;
    }
    for (int i = last - 1; rc == 0 && i >= 0; i--)
        rc = rename_in(cg, i, from, to);
    for (int i = last; rc < 0 && i >= 0; i--)
        remove_one(cg, i, k - 1);
    if (rc < 0)
        unmark(cg, k - 1);
    return rc;
}

int cgroup_spare_take(const struct cgroup *cg, uint32_t slot)
{
    char from[PATH_SIZE], to[PATH_SIZE];
    int rc = -ENOENT;
    unsigned k = 0;

    if (cg->v2)
        return rc;
    slot_file(to, slot, "");
    for (; rc == -ENOENT && k < CGROUP_SPARES; k++)
        if (is_marked(cg, k))
            rc = rename_in(cg, 0, spare_name(from, k, ""), to);
    if (rc < 0)
        return rc;
    /* Whatever is missing in the end is made: cgroup_make does not mind what is there already. */
    for (int i = 1; rc == 0 && i < cg->count; i++)
        rc = rename_in(cg, i, from, to);
    unmark(cg, k - 1);
    return rc;
}

void cgroup_spare_remove_all(const struct cgroup *cg)
{
    for (unsigned k = 0; !cg->v2 && k < CGROUP_SPARES; k++)
        for (int i = 0; i < cg->count; i++)
            remove_one(cg, i, k);
    if (cg->spares)
        atomic_store(cg->spares, 0);
}
