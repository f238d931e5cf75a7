#pragma once
/* A growing byte buffer with a hard maximum: what a peer can make us hold is always bounded.
 *
 * The holder owns the bytes; buf_free releases them. Contents are data[0..len), followed by a NUL
 * that does not count, so text can be used in place. Appending past max fails with -EMSGSIZE and
 * changes nothing. Reading from the front (buf_consume) is cheap: bytes move only when room is
 * needed. */

#include "base/util.h"

#include <stdarg.h>

struct buf {
    char *data; /* NULL until the first append */
    size_t len;
    size_t cap;
    size_t max;
    char *base; /* the allocation; data points into it */
};

#define CLEANUP_BUF CLEANUP(buf_free)

void buf_init(struct buf *b, size_t max);
void buf_free(struct buf *b);

/* Forgets the contents, keeps the memory. */
void buf_clear(struct buf *b);

/* 0, -EMSGSIZE (over max) or -ENOMEM. */
int buf_append(struct buf *b, const void *bytes, size_t n) WARN_UNUSED;
int buf_append_str(struct buf *b, const char *s) WARN_UNUSED;
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF(2, 3) WARN_UNUSED;
int buf_vprintf(struct buf *b, const char *fmt, va_list ap) PRINTF(2, 0) WARN_UNUSED;

/* Makes room for n more bytes at data + len, to be filled and then added by buf_commit. */
int buf_reserve(struct buf *b, size_t n) WARN_UNUSED;
void buf_commit(struct buf *b, size_t n);

/* Drops n bytes from the front; n must not be more than len. */
void buf_consume(struct buf *b, size_t n);

/* Drops what comes after the first len bytes; no more than there are. */
void buf_truncate(struct buf *b, size_t len);

/* The bytes as a malloc'd, NUL-terminated string that the caller frees; the buffer is empty after
 * it. NULL when memory is out. */
char *buf_take(struct buf *b);
