#pragma once
/* The log of one build: lines with a time and a level, counted from 0, which stay as long as the
 * build's object. It is bounded: lines after CORE_BUILD_LOG_ENTRIES or CORE_BUILD_LOG_BYTES are
 * dropped, and the last line says so. Lines come from a sandbox: without control characters, cut at
 * CORE_BUILD_LOG_LINE. Pure but for memory. */

#include "core/build.h"

#include "base/buf.h"

struct build_log {
    struct build_log_line *lines;
    size_t n, cap, bytes;
    bool full;
    struct buf partial[2]; /* of both outputs of a command: a line without its end yet */
    char tail[CORE_BUILD_WHY_SIZE / 2]; /* the last of a command's output, for its error */
    size_t tail_len;
};

void build_log_init(struct build_log *l);
void build_log_free(struct build_log *l);

void build_log_add(struct build_log *l, const char *level, const char *step, const char *fmt, ...)
    PRINTF(4, 5);

/* which: EXEC_STDOUT, EXEC_STDERR. */
void build_log_output(struct build_log *l, const char *step, int which, const char *bytes,
                      size_t len);

/* A command begins, or has ended: what it left without an end of line is a line. */
void build_log_command(struct build_log *l, const char *step, bool begins);

void build_log_each(const struct build_log *l, size_t offset, size_t limit,
                    void (*fn)(void *arg, const struct core_build_line *line), void *arg);
