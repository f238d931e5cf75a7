#pragma once
/* The packet rules of a sandbox's network namespace, written by netlink in one transaction. */

#include "base/util.h"

/* In the calling process's network namespace: one inet table `cay` whose output chain accepts local
 * traffic (127/8, ::1 and the namespace's own addresses of sys/netlink.h) and refuses all else at
 * once: a TCP reset, "administratively prohibited" for the rest. No rule looks at connection state,
 * so nothing is tracked: a flood of loopback datagrams leaves nothing behind in the kernel. Needs
 * CAP_NET_ADMIN over the namespace. About 0.3 ms. 0 or -errno. */
int nft_setup_sealed(void) WARN_UNUSED;
