#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 4096u
#define ALIGNMENT   16u

struct arena_block {
    struct arena_block *next;
    size_t size, used;
    _Alignas(ALIGNMENT) char bytes[];
};

void arena_init(struct arena *a, size_t max)
{
    *a = (struct arena){.max = max};
}

void arena_free(struct arena *a)
{
    struct arena_block *next;

    for (struct arena_block *b = a->blocks; b; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){.max = a->max};
}

static struct arena_block *add_block(struct arena *a, size_t n)
{
    size_t size = MAX(n, BLOCK_BYTES - sizeof(struct arena_block));
    struct arena_block *b = calloc(1, sizeof(*b) + size);

    if (!b)
        return NULL;
    b->size = size;
    b->next = a->blocks;
    a->blocks = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t n)
{
    struct arena_block *b = a->blocks;
    void *out;

    if (n > a->max)
        return NULL;
    n = (n + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (n > a->max || a->used > a->max - n)
        return NULL;
    if (!b || b->size - b->used < n)
        b = add_block(a, n);
    if (!b)
        return NULL;
    out = b->bytes + b->used;
    b->used += n;
    a->used += n;
    return out;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    char *out = arena_alloc(a, n + 1);

    if (out)
        memcpy(out, s, n);
    return out;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    char *out;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return NULL;
    out = arena_alloc(a, (size_t)n + 1);
    if (!out)
        return NULL;
    va_start(ap, fmt);
    vsnprintf(out, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return out;
}
