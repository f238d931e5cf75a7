/* Checks of cay doctor about the rights and limits of the process that starts the server, and about
 * the space on the disk. */

#include "cli/doctor.h"

#include "cli/commands.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

static bool has_capability(unsigned cap)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    return syscall(SYS_capget, &head, data) == 0 && (data[cap / 32].effective & (1u << (cap % 32)));
}

void doctor_root(struct doctor_result *r)
{
    if (geteuid() == 0 && has_capability(CAP_SYS_ADMIN))
        doctor_say(r, DOCTOR_OK, "this is root, with CAP_SYS_ADMIN");
    else
        doctor_say(r, DOCTOR_MISSING, "`cay up` must be run as root, with CAP_SYS_ADMIN");
}

void doctor_open_files(struct doctor_result *r)
{
    struct rlimit l = {0, 0};

    getrlimit(RLIMIT_NOFILE, &l);
    if (l.rlim_max >= 65536)
        doctor_say(r, DOCTOR_OK, "%llu open files at most", (unsigned long long)l.rlim_max);
    else
        doctor_say(r, DOCTOR_LIMITED,
                   "%llu open files at most: about that many connections and idle "
                   "sandboxes together",
                   (unsigned long long)l.rlim_max);
}

void doctor_processes(struct doctor_result *r)
{
    struct rlimit l = {0};

    getrlimit(RLIMIT_NPROC, &l);
    if (l.rlim_max >= 1024)
        doctor_say(r, DOCTOR_OK, "no low limit on processes of a user");
    else
        doctor_say(r, DOCTOR_LIMITED,
                   "%llu processes at most for each user, in sandboxes too (RLIMIT_NPROC of the "
                   "program that starts the server)",
                   (unsigned long long)l.rlim_max);
}

void doctor_sys_resource(struct doctor_result *r)
{
    if (has_capability(CAP_SYS_RESOURCE))
        doctor_say(r, DOCTOR_OK, "CAP_SYS_RESOURCE is there: limits can be raised");
    else
        doctor_say(r, DOCTOR_LIMITED, "no CAP_SYS_RESOURCE: hard limits cannot be raised");
}

/* False: there is none above it. */
static bool to_parent(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || !slash[1])
        return false;
    slash[slash == path] = '\0';
    return true;
}

void doctor_space(const char *state_dir, struct doctor_result *r)
{
    CLEANUP_FREE char *dir = strdup(state_dir);
    struct statvfs v;
    char amount[32];
    uint64_t bytes;

    while (dir && statvfs(dir, &v) < 0) {
        if (errno != ENOENT || !to_parent(dir)) {
            doctor_say(r, DOCTOR_LIMITED, "%s: %s", dir, strerror(errno));
            return;
        }
    }
    if (!dir) {
        doctor_say(r, DOCTOR_LIMITED, "memory is out");
        return;
    }
    bytes = (uint64_t)v.f_bavail * v.f_frsize;
    table_bytes(bytes, amount, sizeof(amount));
    doctor_say(r, bytes < (UINT64_C(4) << 30) ? DOCTOR_LIMITED : DOCTOR_OK, "%s free in %.120s",
               amount, dir);
}
