#pragma once
/* The packet rules of a sandbox's network namespace, written by netlink in one transaction. */

#include "base/util.h"

/* How many new connections and questions are let through, both together: what the kernel tracks of
 * them is in no limit of memory. */
struct nft_rate {
    uint32_t per_second, burst;
};

/* In the calling process's network namespace: one inet table `cay`.
 *
 * Local traffic (127/8, ::1 and the namespace's own addresses of sys/netlink.h) passes and is not
 * tracked: a flood of loopback datagrams leaves nothing behind in the kernel. A TCP connection to
 * anywhere else ends at tcp_port of the namespace itself, a datagram to port 53 of anywhere else at
 * udp_port, both with SO_ORIGINAL_DST; the listener there decides. All else is refused at once: a
 * TCP reset, "administratively prohibited" for the rest; without a listener the two are, too.
 * New connections and questions above `rate` are dropped: a connection is tried again after a
 * second by the kernel; sendto(2) of a question says EPERM, which resolvers hand on as EAI_AGAIN
 * (glibc) or ECONNREFUSED (c-ares). cay-egress tells the sandbox (egress/flow/arrivals.h).
 *
 * Needs CAP_NET_ADMIN over the namespace. About 0.4 ms. 0 or -errno. */
int nft_setup_proxied(uint16_t tcp_port, uint16_t udp_port, struct nft_rate rate) WARN_UNUSED;
