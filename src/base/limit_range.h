#pragma once
/* The range of each limit that a sandbox can have: of the settings [sandbox], of requests, and of
 * what cay-privd takes on. */

#include <stdint.h>

#define LIMIT_MEMORY_MIN (32u * 1024u * 1024u)
#define LIMIT_MEMORY_MAX (UINT64_C(16) << 40)
#define LIMIT_DISK_MIN   (16u * 1024u * 1024u)
#define LIMIT_DISK_MAX   (UINT64_C(64) << 40)
#define LIMIT_CPU_MIN    10u /* thousandths of a processor */
#define LIMIT_CPU_MAX    1024000u
#define LIMIT_PIDS_MIN   16u
#define LIMIT_PIDS_MAX   1000000u
