#include "unpack/walls.h"

#include "base/confine.h"
#include "base/util.h"
#include "sys/caps.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* Owners, modes and set-id bits of files of any owner. Without mknod no device can be made. */
#define KEPT \
    (CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_DAC_OVERRIDE) | CAPS_BIT(CAP_FOWNER) | CAPS_BIT(CAP_FSETID))

static const int calls[] = {
    SCMP_SYS(openat),     SCMP_SYS(openat2),   SCMP_SYS(fstat),     SCMP_SYS(newfstatat),
    SCMP_SYS(statx),      SCMP_SYS(stat),      SCMP_SYS(lstat),     SCMP_SYS(mkdirat),
    SCMP_SYS(unlinkat),   SCMP_SYS(symlinkat), SCMP_SYS(linkat),    SCMP_SYS(fchownat),
    SCMP_SYS(fchmodat),   SCMP_SYS(fchmod),    SCMP_SYS(ftruncate), SCMP_SYS(utimensat),
    SCMP_SYS(getdents64), SCMP_SYS(fstatfs),   SCMP_SYS(fadvise64), SCMP_SYS(access),
};

static int enter_tree(const char *tree, const char **what)
{
    *what = "a mount namespace of its own";
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    *what = "mounting the tree";
    if (mount(tree, tree, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, tree, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return -errno;
    *what = "making the tree the root";
    if (chdir(tree) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
        chdir("/") < 0)
        return -errno;
    return 0;
}

int walls_enter(const char *tree, const char **what)
{
    static const struct confine_list list = {calls, ARRAY_SIZE(calls), NULL, 0};
    static const struct rlimit none = {0, 0};
#ifdef __SANITIZE_ADDRESS__ /* its shadow is as large as the address space */
    static const struct rlimit memory = {RLIM_INFINITY, RLIM_INFINITY};
#else
    static const struct rlimit memory = {WALLS_MEMORY_BYTES, WALLS_MEMORY_BYTES};
#endif
    int r = enter_tree(tree, what);

    if (r < 0)
        return r;
    *what = "limits of the process";
    if (setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_AS, &memory) < 0)
        return -errno;
    *what = "giving up capabilities";
    r = caps_bound(KEPT);
    if (r == 0)
        r = caps_set(KEPT, KEPT, 0);
    if (r < 0)
        return r;
    *what = "the filter of system calls";
    return confine_install(&list);
}
