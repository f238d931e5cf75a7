#include "core/reserve.h"

#include "base/log.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

struct reserve_block {
    struct reserve_block *next;
};

static bool fill_to(struct reserve *r, size_t n)
{
    while (r->n < n) {
        struct reserve_block *block = malloc(RESERVE_BLOCK_BYTES);

        if (!block)
            return false;
        block->next = r->first;
        r->first = block;
        r->n++;
    }
    return true;
}

static void *pop(struct reserve *r)
{
    struct reserve_block *block = r->first;

    r->first = block->next;
    r->n--;
    return block;
}

static size_t wanted(size_t calls)
{
    return RESERVE_BLOCKS + calls * RESERVE_CALL_BLOCKS;
}

bool reserve_fill(struct reserve *r)
{
    return fill_to(r, wanted(r->calls));
}

/* Frees the blocks that are more than the calls under way may need. */
static void give_back(struct reserve *r)
{
    while (r->n > wanted(r->calls))
        free(pop(r));
}

bool reserve_begin(struct reserve *r)
{
    if (!fill_to(r, wanted(r->calls + 1))) {
        give_back(r);
        return false;
    }
    r->calls++;
    return true;
}

void reserve_end(struct reserve *r)
{
    r->calls--;
    give_back(r);
}

void reserve_free(struct reserve *r)
{
    while (r->n > 0)
        free(pop(r));
}

void *reserve_take(struct reserve *r, size_t size)
{
    void *block = calloc(1, size);

    if (block)
        return block;
    if (r->n == 0 || size > RESERVE_BLOCK_BYTES) {
        log_error("a call took more memory than is set aside for each; starting anew");
        abort(); /* a broken invariant: test_core_memory.c counts what each call takes */
    }
    block = pop(r);
    memset(block, 0, size);
    return block;
}
