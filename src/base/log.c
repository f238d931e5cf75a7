#include "base/log.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static const char *log_program = "cay";
static enum log_level log_max = LOG_INFO;
static _Thread_local char log_last[256];

void log_init(const char *program, enum log_level level)
{
    log_program = program;
    log_max = level;
}

void log_set_level(enum log_level level)
{
    log_max = level;
}

int log_level_from_name(const char *name, enum log_level *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    char line[1024], when[CLOCK_RFC3339_SIZE];
    size_t used;
    va_list ap;

    if (level > log_max)
        return;
    clock_format_rfc3339(clock_real_ms(), when);
    used = (size_t)snprintf(line, sizeof(line), "%s %s %s: ", when, level_names[level],
                            log_program);
    va_start(ap, fmt);
    vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
    va_end(ap);
    utf8_neutralise(line + used);
    if (level == LOG_ERROR) {
        snprintf(log_last, sizeof(log_last), "%s", line + used);
        utf8_neutralise(log_last); /* which may end earlier */
    }
    used = strlen(line);
    line[used++] = '\n';
    /* A log that cannot be written must not stop the program: nothing sensible is left to do. */
    if (write(STDERR_FILENO, line, used) < 0)
        return;
}

size_t log_last_error(char *out, size_t size)
{
    snprintf(out, size, "%s", log_last);
    return strlen(out);
}

bool log_rate_allows(struct log_rate *r)
{
    uint64_t now = clock_mono_ms(), left_out = r->left_out;

    if (r->began_ms == 0 || now - r->began_ms >= LOG_RATE_MS) {
        *r = (struct log_rate){.began_ms = now ? now : 1};
        if (left_out > 0)
            log_write(LOG_WARN, "%llu lines of the kind that follows were left out",
                      (unsigned long long)left_out);
    }
    if (r->said < LOG_RATE_LINES) {
        r->said++;
        return true;
    }
    r->left_out++;
    return false;
}
