#include "privd/image_groups.h"

#include "privd/privd.h"
#include "sys/cgroup.h"

#include <errno.h>

/* of the programs, and of an image beside the memory */
#define IMAGE_GROUP_BYTES (1024ull * 1024 * 1024)
#define IMAGE_GROUP_PIDS  1024
#define AGAIN_MS          50

_Static_assert(IMAGE_GROUP_FDS == 2 * CGROUP_ATTACH_MAX, "of both kinds of hierarchies");

static int open_files(const struct cgroup *cg, uint32_t number, int fds[static IMAGE_GROUP_FDS])
{
    int n = cgroup_open_attach(cg, number, CGROUP_WORK, fds);
    int more = n < 0 ? n : cgroup_open_attach_whole(cg, number, fds + n);

    if (more >= 0)
        return n + more;
    while (n > 0)
        util_close(&fds[--n]);
    return more;
}

int image_group_begin(struct privd *p, uint32_t group, uint64_t memory_bytes,
                      int fds[static IMAGE_GROUP_FDS])
{
    uint32_t number = IMAGE_GROUPS_FIRST + group;
    struct cgroup *cg = p->jobs_cgroup;
    struct cgroup_limits limits = {.memory_bytes = memory_bytes + IMAGE_GROUP_BYTES,
                                   .pids = IMAGE_GROUP_PIDS};

    if (p->stopping || !cg)
        return -ESHUTDOWN;
    p->image_groups_over &= ~(UINT32_C(1) << group);
    int r = cgroup_make(cg, number);
    if (r == 0)
        r = cgroup_limit(cg, number, CGROUP_WORK, &limits);
    return r == 0 ? open_files(cg, number, fds) : r;
}

static void remove_groups(struct privd *p);

static void on_again(void *arg)
{
    remove_groups(arg);
}

/* A process that was killed may be there for a moment longer. */
static void remove_groups(struct privd *p)
{
    for (uint32_t i = 0; i < IMAGE_GROUPS; i++) {
        uint32_t number = IMAGE_GROUPS_FIRST + i;

        if (!(p->image_groups_over & UINT32_C(1) << i))
            continue;
        (void)cgroup_kill(p->jobs_cgroup, number);
        if (cgroup_remove(p->jobs_cgroup, number) != -EBUSY)
            p->image_groups_over &= ~(UINT32_C(1) << i);
    }
    if (p->image_groups_over)
        loop_arm(&p->loop, &p->image_groups_timer, AGAIN_MS, on_again, p);
}

void image_group_end(struct privd *p, uint32_t group)
{
    if (!p->jobs_cgroup)
        return;
    p->image_groups_over |= UINT32_C(1) << group;
    remove_groups(p);
}
