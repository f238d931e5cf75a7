#include "checkpoint/volume_sockets.h"

#include "base/util.h"
#include "checkpoint/diag.h"
#include "contract/agent_boot.h"

#include <fcntl.h>
#include <linux/unix_diag.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define MINOR_BITS 20 /* of the kernel's own numbers of devices, which are not those of stat(2) */

struct devices {
    uint32_t of[AGENT_VOLUMES_MAX];
    size_t n;
};

static void find_devices(int proc_fd, struct devices *d)
{
    char path[64];
    struct stat st;

    d->n = 0;
    for (unsigned i = 0; i < AGENT_VOLUMES_MAX; i++) {
        snprintf(path, sizeof(path), "1/root" AGENT_VOLUMES_DIR "/%u", i);
        if (fstatat(proc_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
            d->of[d->n++] = major(st.st_dev) << MINOR_BITS | minor(st.st_dev);
    }
}

struct search {
    const struct devices *devices;
    bool found;
};

static bool read_one(void *arg, const struct rtattr *a)
{
    const struct unix_diag_vfs *vfs = RTA_DATA(a);
    struct search *s = arg;

    if (a->rta_type != UNIX_DIAG_VFS || RTA_PAYLOAD(a) < sizeof(*vfs))
        return true;
    for (size_t i = 0; i < s->devices->n; i++)
        s->found = s->found || s->devices->of[i] == vfs->udiag_vfs_dev;
    return !s->found;
}

static bool is_in_a_volume(const void *arg, const void *answer, size_t len)
{
    struct search s = {.devices = arg};

    diag_each_attribute(answer, len, sizeof(struct unix_diag_msg), read_one, &s);
    return s.found;
}

int volume_sockets_find(int proc_fd, bool *found)
{
    struct devices devices;

    *found = false;
    find_devices(proc_fd, &devices);
    return devices.n == 0 ? 0
                          : diag_find_unix(~0u, UDIAG_SHOW_VFS, is_in_a_volume, &devices, found);
}
