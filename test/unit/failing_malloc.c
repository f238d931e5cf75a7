#include "failing_malloc.h"

#include <errno.h>
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

static void noted_again(void *p)
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
    if (!mine)
        return false;
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
        noted_again(p);
    return p;
}

#include "../preload/malloc_functions.h"

void failing_malloc_init(void)
{
    mine = true;
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
