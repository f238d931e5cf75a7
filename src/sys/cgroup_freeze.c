/* All processes of a slot stop or go on, by freezer.state (v1) or cgroup.freeze (v2). The kernel is
 * done a little later, which cgroup_is_frozen tells. */

#include "sys/cgroup_internal.h"

#include "base/io.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *slot_file(char path[static PATH_SIZE], uint32_t slot, const char *file)
{
    snprintf(path, PATH_SIZE, "%" PRIu32 "/%s", slot, file);
    return path;
}

int cgroup_freeze(const struct cgroup *cg, uint32_t slot, bool frozen)
{
    char path[PATH_SIZE];
    if (cg->of[FREEZER] < 0)
        return -EOPNOTSUPP;
    int fd = cg->h[cg->of[FREEZER]].fd;
    if (cg->v2)
        return io_write_text_at(fd, slot_file(path, slot, "cgroup.freeze"), frozen ? "1" : "0");
    return io_write_text_at(fd, slot_file(path, slot, "freezer.state"),
                            frozen ? "FROZEN" : "THAWED");
}

bool cgroup_is_frozen(const struct cgroup *cg, uint32_t slot)
{
    char path[PATH_SIZE], text[256];
    if (cg->of[FREEZER] < 0)
        return false;
    const char *file = cg->v2 ? "cgroup.events" : "freezer.state";
    if (io_read_text_at(cg->h[cg->of[FREEZER]].fd, slot_file(path, slot, file), text,
                        sizeof(text)) < 0)
        return false;
    return cg->v2 ? strstr(text, "frozen 1") != NULL : strcmp(text, "FROZEN") == 0;
}
