#pragma once
/* System call filters of what runs as the host's root: a deny list, since a build runs programs of
 * others and everything that is started inherits it, sandboxes included (whose own filter refuses
 * all of this with the same answer). It refuses the kernel's configuration and its largest
 * surfaces. */

#include "base/util.h"

enum filter_host {
    FILTER_HOST_DAEMON, /* privd and all that it starts */
    FILTER_HOST_JOB     /* added to that: cay-job and the programs that it runs */
};

/* Installs one on the calling thread, for good: the calls answer EPERM; another architecture's (int
 * 0x80, x32) end the process. Allocates nothing. Needs CAP_SYS_ADMIN, not no_new_privs: package
 * scripts and sandboxes run set-uid programs. 0 or -errno. */
int filter_host_install(enum filter_host which) WARN_UNUSED;
