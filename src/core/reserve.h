#pragma once
/* Memory for what a caller is owed: the answer to a call that was taken on, and what has to be kept
 * until then. An answer cannot be dropped when memory is out, so that memory is set aside ahead:
 * for each call, and each pause and resume, under way what one call takes at most, and beside that
 * RESERVE_BLOCKS.
 *
 * A block is an ordinary one of malloc(3): its holder frees it as always, and the reserve is
 * filled up again by reserve_fill (core_admits) and reserve_begin (core_call_begin). */

#include <stdbool.h>
#include <stddef.h>

#define RESERVE_BLOCKS      64u /* for what takes one and asks reserve_fill first, each time */
#define RESERVE_CALL_BLOCKS 8u  /* more, for each call, pause or resume that has begun */
#define RESERVE_BLOCK_BYTES 2048u

struct reserve {
    struct reserve_block *first;
    size_t n;
    size_t calls; /* under way */
};

/* Fills it up as far as there is memory. true: it is full. */
bool reserve_fill(struct reserve *r);
void reserve_free(struct reserve *r);

/* Counts a call as under way, until reserve_end. false: there is no memory for it, and nothing has
 * begun. */
bool reserve_begin(struct reserve *r);
void reserve_end(struct reserve *r);

/* Zeroed memory of that size, at most RESERVE_BLOCK_BYTES: a fresh block, or one of the reserve
 * where memory is out. Never NULL: the taker is a call under way, of which none takes more than
 * RESERVE_CALL_BLOCKS (test_core_memory.c), or has found the reserve full just before
 * (core_admits). That it is empty all the same is a broken invariant, and ends the process. The
 * caller frees it. */
void *reserve_take(struct reserve *r, size_t size);

#define RESERVE_NEW(r, type)                                                                    \
    ({                                                                                          \
        _Static_assert(sizeof(type) <= RESERVE_BLOCK_BYTES, "a block of the reserve holds it"); \
        (type *)reserve_take((r), sizeof(type));                                                \
    })
