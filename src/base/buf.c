#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_free(struct buf *b)
{
    free(b->base);
    *b = (struct buf){.max = b->max};
}

void buf_clear(struct buf *b)
{
    b->data = b->base;
    b->len = 0;
}

static size_t space_behind(const struct buf *b)
{
    return b->cap - (size_t)(b->data - b->base) - b->len;
}

/* Where room in front is enough, the bytes move there: as a rule once as many have been consumed as
 * move, so that a long buffer which is filled as fast as it is emptied does not move with each
 * append. */
static bool can_move(const struct buf *b, size_t want)
{
    size_t gap = (size_t)(b->data - b->base);

    return b->cap >= want && (gap >= b->len || b->cap > b->max);
}

int buf_reserve(struct buf *b, size_t n)
{
    size_t want, cap;
    char *grown;
    bool fits;

    if (n > b->max || b->len > b->max - n)
        return -EMSGSIZE;
    want = b->len + n + 1;
    if (b->base && space_behind(b) >= n + 1)
        return 0;
    if (b->base && b->data != b->base) {
        fits = can_move(b, want);
        memmove(b->base, b->data, b->len);
        b->data = b->base;
        if (fits)
            return 0;
    }
    for (cap = b->cap ? 2 * b->cap : 256; cap < want; cap *= 2)
        ;
    cap = MIN(cap, b->max + 1);
    grown = realloc(b->base, cap);
    if (!grown)
        return -ENOMEM;
    b->base = b->data = grown;
    b->cap = cap;
    return 0;
}

void buf_commit(struct buf *b, size_t n)
{
    assert(space_behind(b) > n);
    b->len += n;
    b->data[b->len] = '\0';
}

int buf_append(struct buf *b, const void *bytes, size_t n)
{
    int r = buf_reserve(b, n);

    if (r < 0)
        return r;
    if (n > 0)
        memcpy(b->data + b->len, bytes, n);
    buf_commit(b, n);
    return 0;
}

int buf_append_str(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    int n, r;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        return -EINVAL;
    r = buf_reserve(b, (size_t)n);
    if (r < 0)
        return r;
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    buf_commit(b, (size_t)n);
    return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = buf_vprintf(b, fmt, ap);
    va_end(ap);
    return r;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    if (n == 0)
        return; /* also where there is no memory yet: no arithmetic on NULL */
    b->data += n;
    b->len -= n;
    if (b->len == 0)
        b->data = b->base;
}

void buf_truncate(struct buf *b, size_t len)
{
    assert(len <= b->len);
    b->len = len;
    if (b->data)
        b->data[len] = '\0';
}

char *buf_take(struct buf *b)
{
    char *out;

    if (buf_reserve(b, 0) < 0)
        return NULL;
    if (b->data != b->base)
        memmove(b->base, b->data, b->len);
    out = b->base;
    out[b->len] = '\0';
    *b = (struct buf){.max = b->max};
    return out;
}
