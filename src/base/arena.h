#pragma once
/* Memory that is freed all at once: one arena per request. It has a hard maximum; past it every
 * allocation answers NULL, which the caller reports as ERR_TOO_LARGE. Not thread-safe. */

#include "base/util.h"

struct arena_block;

struct arena {
    struct arena_block *blocks;
    size_t used;
    size_t max;
};

#define CLEANUP_ARENA CLEANUP(arena_free)

void arena_init(struct arena *a, size_t max);
void arena_free(struct arena *a);

/* n bytes, zeroed, aligned for any type; NULL when over max or out of memory. */
void *arena_alloc(struct arena *a, size_t n);

/* A NUL-terminated copy; NULL as above. */
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF(2, 3);
