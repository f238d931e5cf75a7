#pragma once
/* How many creates of a tenant were taken on within the last minute, for the quota of them
 * (quota.h). Pure; the caller says what time it is. */

#include <stdint.h>

#define QUOTA_SECONDS 61u /* of a window: any 60 s lie in so many seconds of the clock */

/* All zero: none. */
struct quota_rate {
    uint32_t seconds[QUOTA_SECONDS]; /* by second of the monotonic clock, modulo */
    uint64_t last_s;
    uint32_t sum;
};

uint32_t quota_rate_sum(struct quota_rate *r, uint64_t now_s);
void quota_rate_add(struct quota_rate *r, uint64_t now_s);
