#pragma once
/* How cay-init makes a netlink socket although the filter sends every such call to it: by arguments
 * of which the kernel looks at the lower half, and the filter at all. Shared by the filter and by
 * the agent, which links no more of sys than this. */

#include <stdint.h>
#include <sys/socket.h>

#define FILTER_NETLINK_TYPE ((uint32_t)(SOCK_RAW | SOCK_CLOEXEC))

/* The argument in whose upper half the pass is. */
static inline uint64_t filter_netlink_argument(uint32_t pass, uint32_t value)
{
    return (uint64_t)pass << 32 | value;
}
