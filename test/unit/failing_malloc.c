#include "failing_malloc.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define HELD_MAX 65536u /* a power of two */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void __libc_free(void *p);

extern char __executable_start, etext;

static _Thread_local bool mine; /* the thread that is tested */
static bool counting, for_good, hit;
static size_t calls, fail_at, n_held;
static void *held[HELD_MAX];

/* -- what is held: a hash table with linear probing; TAKEN stands where one was removed ------------ */

#define TAKEN ((void *)1)

static size_t slot_of(const void *p)
{
    return ((uintptr_t)p >> 4) * 2654435761u % HELD_MAX;
}

static void hold(void *p)
{
    size_t i = slot_of(p);

    while (held[i] && held[i] != TAKEN)
        i = (i + 1) % HELD_MAX;
    held[i] = p;
    if (++n_held == HELD_MAX / 2)
        abort();
}

static bool release(const void *p)
{
    for (size_t i = slot_of(p), n = 0; held[i] && n < HELD_MAX; i = (i + 1) % HELD_MAX, n++)
        if (held[i] == p) {
            held[i] = TAKEN;
            n_held--;
            return true;
        }
    return false;
}

/* -- the decision ---------------------------------------------------------------------------------- */

static bool is_own(const void *caller)
{
    return mine && (const char *)caller >= &__executable_start && (const char *)caller < &etext;
}

static bool fails(const void *caller)
{
    if (!counting || !is_own(caller))
        return false;
    calls++;
    if (fail_at == 0 || calls < fail_at || (calls > fail_at && !for_good))
        return false;
    hit = true;
    errno = ENOMEM;
    return true;
}

static void *noted(void *p, const void *caller)
{
    if (p && is_own(caller))
        hold(p);
    return p;
}

/* -- the functions --------------------------------------------------------------------------------- */

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
    bool was = p && mine && release(p);
    void *q;

    if (fails(caller))
        q = NULL;
    else
        q = __libc_realloc(p, size);
    if (!q && was)
        hold(p);
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
    if (p && mine)
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

/* jansson's calls come from here, and so from the program. */
static void *for_jansson(size_t size)
{
    return malloc(size);
}

void failing_malloc_init(void)
{
    mine = true;
    json_set_alloc_funcs(for_jansson, free);
}

void failing_malloc_begin(size_t n, bool all_after)
{
    calls = 0;
    fail_at = n;
    for_good = all_after;
    hit = false;
    counting = true;
}

bool failing_malloc_end(void)
{
    counting = false;
    return hit;
}

size_t failing_malloc_held(void)
{
    return n_held;
}
