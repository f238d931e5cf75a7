#pragma once
/* FNV-1a (draft-eastlake-fnv): a hash for tables in memory, and for sums that find accidental
 * change. A peer that chooses the input can make two of one sum: a table whose names come from a
 * peer says what a flood of one bucket costs. */

#include <stddef.h>
#include <stdint.h>

#define FNV_32_START 0x811c9dc5u
#define FNV_64_START 0xcbf29ce484222325u

static inline uint32_t fnv_32_byte(uint32_t h, uint8_t byte)
{
    return (h ^ byte) * 0x01000193u;
}

/* Goes on from h (FNV_32_START at the beginning) with the bytes of text, without its end. */
static inline uint32_t fnv_32(uint32_t h, const char *text)
{
    for (; *text; text++)
        h = fnv_32_byte(h, (uint8_t)*text);
    return h;
}

/* Goes on from h (FNV_64_START at the beginning). */
static inline uint64_t fnv_64(uint64_t h, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}
