#include "sys/caps.h"

#include "base/io.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int caps_last(void)
{
    static int last;
    if (last == 0) {
        int cap = CAP_LAST_CAP;
        while (prctl(PR_CAPBSET_READ, cap + 1, 0, 0, 0) >= 0 && cap < 62)
            cap++;
        while (cap > 0 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) < 0)
            cap--;
        last = cap;
    }
    return last;
}

int caps_bound(uint64_t keep)
{
    for (int cap = 0; cap <= caps_last(); cap++) {
        if (keep & CAPS_BIT(cap))
            continue;
        if (prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            return -errno;
    }
    return 0;
}

int caps_set(uint64_t effective, uint64_t permitted, uint64_t inheritable)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    for (int i = 0; i < 2; i++) {
        data[i].effective = (uint32_t)(effective >> (32 * i));
        data[i].permitted = (uint32_t)(permitted >> (32 * i));
        data[i].inheritable = (uint32_t)(inheritable >> (32 * i));
    }
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

int caps_get(uint64_t *effective, uint64_t *permitted)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    *effective = data[0].effective | (uint64_t)data[1].effective << 32;
    *permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    return 0;
}

int caps_become(uid_t uid, gid_t gid, uint64_t caps, uint64_t until_exec)
{
    int rc = caps_bound(caps);
    if (rc < 0)
        return rc;
    /* Without this, giving up uid 0 clears the permitted set. execve clears the flag again. */
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
        return -errno;
    rc = ns_become(uid, gid);
    if (rc == 0)
        rc = caps_set(caps | until_exec, caps | until_exec, caps);
    for (int cap = 0; rc == 0 && cap <= caps_last(); cap++) {
        bool on = caps & CAPS_BIT(cap);
        if (on && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            rc = -errno;
    }
    return rc;
}
