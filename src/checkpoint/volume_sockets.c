#include "checkpoint/volume_sockets.h"

#include "base/util.h"
#include "checkpoint/diag.h"
#include "contract/agent_boot.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
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

static bool is_in_a_volume(const struct devices *d, const struct rtattr *a)
{
    const struct unix_diag_vfs *vfs = RTA_DATA(a);

    if (a->rta_type != UNIX_DIAG_VFS || RTA_PAYLOAD(a) < sizeof(*vfs))
        return false;
    for (size_t i = 0; i < d->n; i++)
        if (d->of[i] == vfs->udiag_vfs_dev)
            return true;
    return false;
}

static bool is_found(const void *arg, const void *answer, size_t len)
{
    const size_t head = NLMSG_ALIGN(sizeof(struct unix_diag_msg));
    const struct rtattr *a = (const void *)((const char *)answer + head);
    long left = (long)len - (long)head;

    for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (is_in_a_volume(arg, a))
            return true;
    return false;
}

int volume_sockets_find(int proc_fd, bool *found)
{
    const struct {
        struct nlmsghdr head;
        struct unix_diag_req what;
    } request = {
        .head = {.nlmsg_len = sizeof(request),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .what = {.sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_show = UDIAG_SHOW_VFS}};
    struct devices devices;

    *found = false;
    find_devices(proc_fd, &devices);
    return devices.n > 0 ? diag_find(&request, sizeof(request), is_found, &devices, found) : 0;
}
