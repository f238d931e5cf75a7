#pragma once
/* The range of each limit that a sandbox can have, and how its numbers are told: in the unit of the
 * request, and bytes as people write them too. */

#include "base/err.h"

#include <stdbool.h>

enum core_limit {
    CORE_LIMIT_MEMORY, /* bytes */
    CORE_LIMIT_DISK,
    CORE_LIMIT_CPU, /* thousandths of a processor */
    CORE_LIMIT_PIDS,
    CORE_LIMIT_COUNT
};

#define LIMIT_MEMORY_MIN (32u * 1024u * 1024u)
#define LIMIT_DISK_MIN   (16u * 1024u * 1024u)
#define LIMIT_CPU_MIN    10u
#define LIMIT_PIDS_MIN   16u

#define CORE_LIMIT_TEXT 80 /* bytes of a number with its unit */

/* "memoryBytes": the field of a request. */
const char *core_limit_name(enum core_limit limit);

uint64_t core_limit_min(enum core_limit limit);

/* "33554432 bytes (32 MiB)". */
void core_limit_text(enum core_limit limit, uint64_t value, char out[static CORE_LIMIT_TEXT]);

/* ERR_INVALID with both ends of the range. or_zero: 0, for the server's own, is in it too. */
enum err_code core_limit_check(enum core_limit limit, int64_t value, bool or_zero, struct err *e);
