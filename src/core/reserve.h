#pragma once
/* Memory for what a caller is owed: the answer to a call that was taken on, and what has to be kept
 * until then. An answer cannot be dropped when memory is out, so that memory is set aside ahead.
 *
 * A block is an ordinary one of malloc(3): its holder frees it as always, and the reserve is filled
 * up again by reserve_fill, which the API asks before it takes on a request (core_admits). */

#include <stdbool.h>
#include <stddef.h>

#define RESERVE_BLOCKS      64u
#define RESERVE_BLOCK_BYTES 2048u

struct reserve {
    void *blocks[RESERVE_BLOCKS];
    size_t n;
};

/* Fills it up as far as there is memory. true: it is full. */
bool reserve_fill(struct reserve *r);
void reserve_free(struct reserve *r);

/* Zeroed memory of that size, at most RESERVE_BLOCK_BYTES: a fresh block, or one of the reserve
 * where memory is out. Never NULL: a call is taken on only while the reserve is full, and takes a
 * few blocks at most (test_core_memory.c). It is used up only where memory goes while very many
 * calls are under way, none of which could be answered: the process ends, and its next start
 * recovers. The caller frees it. */
void *reserve_take(struct reserve *r, size_t size);

#define RESERVE_NEW(r, type)                                                                    \
    ({                                                                                          \
        _Static_assert(sizeof(type) <= RESERVE_BLOCK_BYTES, "a block of the reserve holds it"); \
        (type *)reserve_take((r), sizeof(type));                                                \
    })
