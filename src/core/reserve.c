#include "core/reserve.h"

#include "base/log.h"
#include "base/util.h"

#include <stdlib.h>
#include <string.h>

bool reserve_fill(struct reserve *r)
{
    while (r->n < RESERVE_BLOCKS) {
        void *block = malloc(RESERVE_BLOCK_BYTES);

        if (!block)
            return false;
        r->blocks[r->n++] = block;
    }
    return true;
}

void reserve_free(struct reserve *r)
{
    while (r->n > 0)
        free(r->blocks[--r->n]);
}

void *reserve_take(struct reserve *r, size_t size)
{
    void *block = calloc(1, size);

    if (block)
        return block;
    if (r->n == 0 || size > RESERVE_BLOCK_BYTES) {
        log_error("memory is out, and so is what was set aside for answers; starting anew");
        abort();
    }
    block = r->blocks[--r->n];
    memset(block, 0, size);
    return block;
}
