#pragma once
/* Time: milliseconds everywhere, monotonic for waiting, real for what users see. */

#include <stddef.h>
#include <stdint.h>

#define CLOCK_RFC3339_SIZE 32

/* Milliseconds of CLOCK_MONOTONIC: for timeouts and durations, never shown or stored. */
uint64_t clock_mono_ms(void);

/* The same in microseconds, for measuring. */
uint64_t clock_mono_us(void);

/* Milliseconds since 1970-01-01 UTC (CLOCK_REALTIME); may jump. */
int64_t clock_real_ms(void);

/* The same in microseconds. */
int64_t clock_real_us(void);

/* RFC 3339 in UTC with milliseconds, "2026-11-21T02:50:01.123Z", into out. */
void clock_format_rfc3339(int64_t real_ms, char out[static CLOCK_RFC3339_SIZE]);

/* Parses an RFC 3339 date-time (any offset, any fraction, cut to milliseconds).
 * 0, or -EINVAL with *out_ms untouched. */
int clock_parse_rfc3339(const char *text, int64_t *out_ms);
