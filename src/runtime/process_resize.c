/* The process level: other limits for a sandbox that lives. A task of privd, since the kernel takes
 * memory back for a limit that is lower, and changes a quota of the disk in a transaction.
 *
 * A limit of the whole slot is never below one of `work`: what grows does so from the outside in,
 * what shrinks from the inside out. After a failure all are as they were. */

#include "runtime/level.h"
#include "runtime/process_limits.h"
#include "runtime/state.h"

#include <errno.h>
#include <unistd.h>

struct resize_args {
    struct runtime *rt;
    struct runtime_sandbox sb;
    struct privsep_limits from, to;
};

/* Of each limit the greater one. */
static struct privsep_limits greater(const struct privsep_limits *a, const struct privsep_limits *b)
{
    struct privsep_limits l = *a;

    l.memory_bytes = MAX(a->memory_bytes, b->memory_bytes);
    l.cpu_milli = MAX(a->cpu_milli, b->cpu_milli);
    return l;
}

static int change(const struct resize_args *a, const enum cgroup_leaf leaves[static 2],
                  const struct privsep_limits *from, const struct privsep_limits *to)
{
    int rc = 0;

    for (int i = 0; rc == 0 && i < 2; i++) {
        struct cgroup_limits was = process_limits(a->rt, leaves[i], from);
        struct cgroup_limits is = process_limits(a->rt, leaves[i], to);

        rc = cgroup_change(a->rt->cgroups, a->sb.slot, leaves[i], &was, &is);
    }
    return rc;
}

static int set_groups(const struct resize_args *a, const struct privsep_limits *from,
                      const struct privsep_limits *to)
{
    static const enum cgroup_leaf inwards[] = {CGROUP_WHOLE, CGROUP_WORK};
    static const enum cgroup_leaf outwards[] = {CGROUP_WORK, CGROUP_WHOLE};
    struct privsep_limits between = greater(from, to);
    int rc;

    if (TEST_BYPASS(LIMITS))
        return 0;
    rc = change(a, inwards, from, &between);
    if (rc == 0)
        rc = change(a, outwards, &between, to);
    if (rc == 0)
        return 0;
    /* The way back, wherever it stopped: no limit is above `between`, nor below `to`. */
    (void)change(a, inwards, to, &between);
    (void)change(a, outwards, &between, from);
    return rc;
}

/* What it has written is counted once it is on the disk. Nothing is lost by a limit that is below
 * what is used: it can only remove files then. */
static int set_disk(const struct resize_args *a, struct task_result *out)
{
    struct disk *disk = &a->rt->disk;
    uint64_t used = 0, limit = 0;
    int rc;

    if (a->to.disk_bytes == a->from.disk_bytes || TEST_BYPASS(DISK_LIMIT))
        return 0;
    if (!disk->backend->layer_keep)
        return -EOPNOTSUPP;
    rc = a->to.disk_bytes < a->from.disk_bytes && syncfs(disk->layers_fd) < 0 ? -errno : 0;
    if (rc == 0)
        rc = disk->backend->layer_usage(disk, a->sb.slot, a->sb.gen, &used, &limit);
    if (rc < 0)
        return rc;
    if (used > a->to.disk_bytes) {
        out->values[0] = PRIVSEP_USES_DISK;
        out->values[1] = used;
        return -EBUSY;
    }
    return disk->backend->layer_limit(disk, a->sb.slot, a->sb.gen, a->to.disk_bytes);
}

static int resize(void *arg, struct task_result *out)
{
    const struct resize_args *a = arg;
    struct cgroup_stat st = {0};
    int rc = set_disk(a, out);

    if (rc < 0)
        return rc;
    rc = set_groups(a, &a->from, &a->to);
    if (rc == 0)
        return 0;
    if (a->to.disk_bytes != a->from.disk_bytes)
        (void)a->rt->disk.backend->layer_limit(&a->rt->disk, a->sb.slot, a->sb.gen,
                                               a->from.disk_bytes);
    if (rc == -EBUSY && cgroup_stat(a->rt->cgroups, a->sb.slot, &st) == 0) {
        out->values[0] = PRIVSEP_USES_MEMORY;
        out->values[1] = st.memory_used_bytes + st.memory_cache_bytes;
    }
    return rc;
}

int process_resize_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                         const struct privsep_limits *from, const struct privsep_limits *to,
                         struct task *out)
{
    struct resize_args args = {rt, *sb, *from, *to};

    return task_spawn(resize, &args, out);
}

int process_resize_finish(struct runtime *rt, struct task *t, struct runtime_resized *out)
{
    struct task_result result = {0};
    int rc = task_collect(t, &result);

    if (rc < 0)
        return rc;
    *out = (struct runtime_resized){(uint32_t)result.values[0], result.values[1]};
    return result.status;
}
