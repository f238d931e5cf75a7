#pragma once
/* Logs a line per event on standard error: `2026-11-21T02:50:01.123Z info cayd: text`.
 *
 * Daemons write to standard error only; their starter (cay-keep, a service manager) decides where
 * it goes. Thread-safe: a line is one write(2). Control characters are replaced. Secrets are never
 * logged, and neither are bodies, environments or file contents. */

#include "base/util.h"

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* program is kept, not copied. Call once before any thread starts. */
void log_init(const char *program, enum log_level level);
void log_set_level(enum log_level level);

/* "error", "warn", "info", "debug" -> level; -EINVAL otherwise. */
int log_level_from_name(const char *name, enum log_level *out);

void log_write(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

/* The text of this thread's last log_error, so that the function that ends a step can hand on what
 * went wrong in it. Its length; 0: there was none. */
size_t log_last_error(char *out, size_t size);

/* For lines that a peer can cause as often as it likes: LOG_RATE_LINES in LOG_RATE_MS, the rest is
 * counted, and the number said when there may be one again. Owned by the caller, zeroed at first;
 * not thread-safe. */
#define LOG_RATE_LINES 20
#define LOG_RATE_MS    10000
struct log_rate {
    uint64_t began_ms;
    uint32_t said;
    uint64_t left_out;
};

/* Whether the next line of that kind is to be written. */
bool log_rate_allows(struct log_rate *r);

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_write(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
