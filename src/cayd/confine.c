#include "cayd/confine.h"

#include "base/confine.h"
#include "base/util.h"

#include <seccomp.h>

static const int own[] = {
    /* the database's files, the keys', the archives of builds (core/build_files.c, which lists them
     * at the start), images of registries (core/image_spool.c) and nothing else
     * that its user could reach; splice: http/pass.h */
    SCMP_SYS(open),      SCMP_SYS(openat),     SCMP_SYS(stat),     SCMP_SYS(lstat),
    SCMP_SYS(fstat),     SCMP_SYS(newfstatat), SCMP_SYS(statx),    SCMP_SYS(access),
    SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd),    SCMP_SYS(unlink),     SCMP_SYS(unlinkat), SCMP_SYS(rename),
    SCMP_SYS(renameat),  SCMP_SYS(renameat2),  SCMP_SYS(fchmod),   SCMP_SYS(umask),
    SCMP_SYS(ftruncate), SCMP_SYS(fallocate),  SCMP_SYS(fsync),    SCMP_SYS(fdatasync),
    SCMP_SYS(flock),     SCMP_SYS(splice),     SCMP_SYS(mkdir),    SCMP_SYS(getdents64),
    SCMP_SYS(fstatfs),
};

int confine_self(void)
{
    const struct confine_list list = {.calls = own, .n_calls = ARRAY_SIZE(own)};

    return confine_install(&list);
}
