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
    bool back;
};

static const enum cgroup_leaf inwards[] = {CGROUP_WHOLE, CGROUP_WORK};
static const enum cgroup_leaf outwards[] = {CGROUP_WORK, CGROUP_WHOLE};

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

static int set_memory(const struct resize_args *a, const struct privsep_limits *from,
                      const struct privsep_limits *to)
{
    struct privsep_limits l = *from;

    l.memory_bytes = to->memory_bytes;
    return change(a, to->memory_bytes > from->memory_bytes ? inwards : outwards, from, &l);
}

static int set_cpu(const struct resize_args *a, const struct privsep_limits *from,
                   const struct privsep_limits *to)
{
    struct privsep_limits l = *from;

    l.cpu_milli = to->cpu_milli;
    return change(a, to->cpu_milli > from->cpu_milli ? inwards : outwards, from, &l);
}

static bool has_other_disk(const struct resize_args *a)
{
    return a->to.disk_bytes != a->from.disk_bytes && !TEST_BYPASS(DISK_LIMIT);
}

static int limit_disk(const struct resize_args *a, uint64_t bytes)
{
    return a->rt->disk.backend->layer_limit(&a->rt->disk, a->sb.slot, a->sb.gen, bytes, NULL);
}

/* Written data is counted once it is on the disk. */
static int check_disk(const struct resize_args *a, struct task_result *out)
{
    struct disk *disk = &a->rt->disk;
    uint64_t used = 0, limit = 0;
    int rc;

    if (!disk->backend->layer_keep)
        return -EOPNOTSUPP;
    rc = a->to.disk_bytes < a->from.disk_bytes && syncfs(disk->layers_fd) < 0 ? -errno : 0;
    if (rc == 0)
        rc = disk->backend->layer_usage(disk, a->sb.slot, a->sb.gen, &used, &limit);
    if (rc < 0 || used <= a->to.disk_bytes)
        return rc;
    out->values[0] = PRIVSEP_USES_DISK;
    out->values[1] = used;
    return -EBUSY;
}

/* Memory before the processor: it is what is refused, or takes long. */
static int set_all(const struct resize_args *a, struct task_result *out)
{
    struct cgroup_stat st = {0};
    int rc = has_other_disk(a) ? check_disk(a, out) : 0;

    if (rc == 0 && has_other_disk(a))
        rc = limit_disk(a, a->to.disk_bytes);
    if (rc < 0 || TEST_BYPASS(LIMITS))
        return rc;
    rc = set_memory(a, &a->from, &a->to);
    if (rc == 0)
        return set_cpu(a, &a->from, &a->to);
    if (rc == -EBUSY && cgroup_stat(a->rt->cgroups, a->sb.slot, &st) == 0) {
        out->values[0] = PRIVSEP_USES_MEMORY;
        out->values[1] = st.memory_used_bytes + st.memory_cache_bytes;
    }
    return rc;
}

/* Wherever it stopped, or another before it that was cut off. All are tried. The use of its files
 * is not checked: where it is above the old limit, the sandbox can only remove files. */
static int set_back(const struct resize_args *a)
{
    int disk = 0, memory = 0, cpu = 0;

    if (has_other_disk(a) && a->rt->disk.backend->layer_keep)
        disk = limit_disk(a, a->from.disk_bytes);
    if (!TEST_BYPASS(LIMITS)) {
        memory = set_memory(a, &a->to, &a->from);
        cpu = set_cpu(a, &a->to, &a->from);
    }
    return disk < 0 || memory < 0 || cpu < 0 ? -ENOTRECOVERABLE : 0;
}

static int resize(void *arg, struct task_result *out)
{
    const struct resize_args *a = arg;
    int rc, back;

    if (a->back)
        return set_back(a);
    rc = set_all(a, out);
    back = rc < 0 ? set_back(a) : 0;
    return back < 0 ? back : rc;
}

int process_resize_begin(struct runtime *rt, const struct runtime_sandbox *sb,
                         const struct privsep_limits *from, const struct privsep_limits *to,
                         bool back, struct task *out)
{
    struct resize_args args = {rt, *sb, *from, *to, back};

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
