#pragma once
/* Rates, as token buckets: pure but for the clock. */

#include <stdbool.h>
#include <stdint.h>

/* At most so many each second; a full second's worth at once. */
struct rate {
    uint32_t per_second; /* 0: no limit */
    uint64_t tokens_milli, at_ms;
};

/* The next one's worth of the rate, or false. */
bool rate_take(struct rate *r, uint32_t per_second);

/* The same, with another number at once: at most burst. */
bool rate_take_burst(struct rate *r, uint32_t per_second, uint32_t burst);

/* How many more it would give now. */
uint32_t rate_left(const struct rate *r, uint32_t per_second);
