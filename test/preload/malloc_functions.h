#pragma once
/* malloc(3) and its like, defined by a file that decides which of them fail and counts what is held; included once, behind
 *
 *   fails(caller)         is this the call, of that return address, that fails?
 *   noted(p, caller)      p, NULL or not, was given to the caller
 *   release(p)            p goes; was it noted?
 *   noted_again(p)        it has not gone
 *
 * glibc only, whose own functions have these other names. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *malloc(size_t size)
{
    const void *caller = __builtin_return_address(0);

    return fails(caller) ? NULL : noted(__libc_malloc(size), caller);
}

void *calloc(size_t n, size_t size)
{
    const void *caller = __builtin_return_address(0);

    return fails(caller) ? NULL : noted(__libc_calloc(n, size), caller);
}

static void *resize(void *p, size_t size, const void *caller)
{
    bool was = p && release(p);
    void *q = fails(caller) ? NULL : __libc_realloc(p, size);

    if (!q && was)
        noted_again(p);
    return noted(q, caller);
}

void *realloc(void *p, size_t size)
{
    return resize(p, size, __builtin_return_address(0));
}

void *reallocarray(void *p, size_t n, size_t size)
{
    size_t all;

    if (__builtin_mul_overflow(n, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return resize(p, all, __builtin_return_address(0));
}

void free(void *p)
{
    if (p)
        (void)release(p);
    __libc_free(p);
}

char *strndup(const char *text, size_t max)
{
    const void *caller = __builtin_return_address(0);
    size_t n = strnlen(text, max);
    char *copy = fails(caller) ? NULL : noted(__libc_malloc(n + 1), caller);

    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

char *strdup(const char *text)
{
    const void *caller = __builtin_return_address(0);
    size_t n = strlen(text) + 1;
    char *copy = fails(caller) ? NULL : noted(__libc_malloc(n), caller);

    return copy ? memcpy(copy, text, n) : NULL;
}
