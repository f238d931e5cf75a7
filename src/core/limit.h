#pragma once
/* The limits that a sandbox can have: whether a number is in range (base/limit_range.h), and how
 * numbers are told: in the unit of the request, and bytes as people write them too. */

#include "base/err.h"

#include <stdbool.h>

enum core_limit {
    CORE_LIMIT_MEMORY, /* bytes */
    CORE_LIMIT_DISK,
    CORE_LIMIT_CPU, /* thousandths of a processor */
    CORE_LIMIT_PIDS,
    CORE_LIMIT_COUNT
};

#define CORE_LIMIT_TEXT 80 /* bytes of a number with its unit */

/* "memoryBytes": the field of a request. */
const char *core_limit_name(enum core_limit limit);

uint64_t core_limit_min(enum core_limit limit);

/* "33554432 bytes (32 MiB)". */
void core_limit_text(enum core_limit limit, uint64_t value, char out[static CORE_LIMIT_TEXT]);

/* ERR_INVALID with both ends of the range. or_zero: 0, for the server's own, is in it too. */
enum err_code core_limit_check(enum core_limit limit, int64_t value, bool or_zero, struct err *e);
