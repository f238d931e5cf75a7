#include "egress/confine.h"

#include "base/confine.h"
#include "base/util.h"

#include <seccomp.h>
#include <sys/socket.h>

static const int own[] = {
    SCMP_SYS(splice),
    /* the log, the CAs, the sealing key: its state directory, which is all that
     * its user owns */
    SCMP_SYS(openat),
    SCMP_SYS(open),
    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),
    SCMP_SYS(stat),
    SCMP_SYS(statx),
    SCMP_SYS(access),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(unlinkat),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(fchmod),
    SCMP_SYS(ftruncate),
    SCMP_SYS(fsync),
    SCMP_SYS(fdatasync),
    SCMP_SYS(sendmmsg),
    SCMP_SYS(socketpair),
};

static const struct confine_form forms[] = {
    {SCMP_SYS(socket), 0, CONFINE_ANY_BITS, AF_INET},
    {SCMP_SYS(socket), 0, CONFINE_ANY_BITS, AF_INET6},
    /* its own helper threads' priority, which without a capability can only fall */
    {SCMP_SYS(setpriority), 1, CONFINE_ANY_BITS, 0},
};

int confine_self(void)
{
    const struct confine_list list = {own, ARRAY_SIZE(own), forms, ARRAY_SIZE(forms)};

    return confine_install(&list);
}
