#include "seal/seal_walls.h"

#include "base/confine.h"
#include "base/util.h"
#include "sys/caps.h"

#include <errno.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static const int calls[] = {
    SCMP_SYS(openat),     SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(statx),
    SCMP_SYS(getdents64), SCMP_SYS(fsync), SCMP_SYS(unlinkat),
};

static int limit(uint64_t file_bytes_max)
{
    const struct rlimit none = {0, 0}, file = {file_bytes_max, file_bytes_max};
#ifdef __SANITIZE_ADDRESS__ /* its shadow is as large as the address space */
    const struct rlimit memory = {RLIM_INFINITY, RLIM_INFINITY};
#else
    const struct rlimit memory = {SEAL_WALLS_MEMORY_BYTES, SEAL_WALLS_MEMORY_BYTES};
#endif

    return setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_FSIZE, &file) < 0 ||
                   setrlimit(RLIMIT_AS, &memory) < 0
               ? -errno
               : 0;
}

int seal_walls_enter(int dir_fd, uid_t uid, uint64_t file_bytes_max, const char **what)
{
    static const struct confine_list list = {calls, ARRAY_SIZE(calls), NULL, 0};
    int rc;

    *what = "making the directory the root";
    if (fchdir(dir_fd) < 0 || chroot(".") < 0)
        return -errno;
    *what = "limits of the process";
    rc = limit(file_bytes_max);
    if (rc < 0)
        return rc;
    *what = "giving up root";
    rc = uid == 0 ? -EINVAL : caps_become(uid, uid, 0, 0);
    if (rc == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) /* the key is in its memory */
        rc = -errno;
    if (rc < 0)
        return rc;
    *what = "the filter of system calls";
    return confine_install(&list);
}
