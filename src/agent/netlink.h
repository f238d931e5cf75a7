#pragma once
/* The netlink sockets of the sandbox's programs, which ask by them for addresses and routes
 * (getifaddrs, `ip`).
 *
 * Unread bytes of such a socket are charged to no memory group, so the system call filter lets no
 * program make one: it stops at socket(2), the kernel tells cay-init, and cay-init makes the socket
 * and puts it among the program's descriptors, while there are few in this network namespace. The
 * kernel counts them, also those that were passed on or are on their way between programs. No other
 * thread makes any: the one thread that counts is the one that makes. */

#include "agent/common/agent.h"

/* At a time; each holds about net.core.rmem_default. */
#define NETLINK_MAX                 8 /* of a sandbox, beside those of its command sandboxs */
#define NETLINK_COMMAND_SANDBOX_MAX 2 /* of a command sandbox */

/* Takes AGENT_LISTENER_FD, if it is open, and answers on the agent's loop from then on. Must come
 * before any program of a tenant's is started. 0 or -errno. */
int netlink_serve(struct agent *a);

/* It answers nothing, and AGENT_LISTENER_FD may be closed, until it goes on with a listener of that
 * number: calls made meanwhile wait there. 0 or -errno. */
void netlink_rest(struct agent *a);
int netlink_go_on(struct agent *a);
