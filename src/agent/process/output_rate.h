#pragma once
/* How fast the output of a sandbox's processes is carried to who reads it: a token bucket of bytes,
 * with a second's worth at once. Without a bound, one sandbox that writes as fast as it is read
 * keeps the daemons, which carry it, as busy as it likes, at the cost of its neighbours
 * (docs/reports/neighbour-cost.md). Pure: the caller has the clock. Where it allows nothing the
 * output stays in its pipe, so that its writer waits; nothing is lost. */

#include <stdbool.h>
#include <stdint.h>

struct output_rate {
    uint64_t bytes_per_second; /* 0: no bound */
    int64_t left_bytes;        /* may be below 0 by one read */
    uint64_t at_ms;            /* of the last look */
};

/* Sets the bound, with all of its burst. */
void output_rate_set(struct output_rate *r, uint64_t bytes_per_second, uint64_t now_ms);

/* May more be carried now? */
bool output_rate_allows(struct output_rate *r, uint64_t now_ms);

/* So much has been. */
void output_rate_charge(struct output_rate *r, uint64_t bytes);

/* For how long to wait, at least 1 ms, until it is worth to go on: for the least of 1/128 s and one
 * read. For who was not allowed. */
uint64_t output_rate_wait_ms(const struct output_rate *r);
