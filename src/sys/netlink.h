#pragma once
/* The loopback device of a network namespace with nothing else in it, by rtnetlink. */

#include "base/util.h"

#include <netinet/in.h>

/* A second, non-loopback address of each family on lo: so that resolvers (AI_ADDRCONFIG) see a
 * network. From the documentation ranges: nothing real has them. */
#define NETLINK_OWN_IPV4 "192.0.2.2"
#define NETLINK_OWN_IPV6 "2001:db8::2"

/* In the calling process's network namespace: lo up, the own addresses, default routes over lo, so
 * that a connect to any address has a route and is answered by the rules at once. Needs
 * CAP_NET_ADMIN over the namespace. Without IPv6 in the kernel its part is left out. About 0.2 ms.
 * 0 or -errno. */
int netlink_setup_loopback(void) WARN_UNUSED;
