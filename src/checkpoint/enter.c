#include "checkpoint/enter.h"

#include "sys/mnt.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>

/* CRIU leaves namespaces alone that it is in itself: those that the sandbox gets anew when it is
 * restored. The user namespace comes last, as the others are entered with the host's right. A mount
 * namespace of the sandbox's user namespace is one to which CRIU can come back, when it has looked
 * into the sandbox's, and in which nothing can be unmounted that was there before. */
int enter_sandbox(int pidfd)
{
    int rc = mnt_hide_processes();

    if (rc == 0)
        rc = ns_enter(pidfd, CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWTIME);
    if (rc == 0)
        rc = ns_enter(pidfd, CLONE_NEWUSER);
    if (rc == 0)
        rc = ns_become(0, 0);
    if (rc == 0 && unshare(CLONE_NEWNS) < 0)
        rc = -errno;
    return rc == 0 ? mnt_make_private() : rc;
}
