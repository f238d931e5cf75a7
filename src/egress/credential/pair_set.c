/* A pair is in a bucket's product when both nibbles of both of its bytes are the bucket's: four
 * looks into tables of sixteen bytes, which PSHUFB does for sixteen pairs at once (the method of
 * Hyperscan's "shufti" for two bytes). The product contains every pair of the bucket and some
 * more, so that what it finds is looked up in the exact table. */

#include "egress/credential/pair_set.h"

#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define STEP 16u /* pairs at a time */

/* As two bytes of a text are read at once. */
static uint16_t pair_of(const void *two)
{
    uint16_t pair;

    memcpy(&pair, two, sizeof(pair));
    return pair;
}

bool pair_set_has(const struct pair_set *set, const void *two)
{
    uint16_t pair = pair_of(two);

    return set->bits[pair / 32] >> (pair % 32) & 1;
}

void pair_set_add(struct pair_set *set, unsigned char first, unsigned char second)
{
    const unsigned char two[] = {first, second};
    uint8_t bucket = (uint8_t)(1u << (first >> 4) % 8);
    uint16_t pair = pair_of(two);

    set->bits[pair / 32] |= UINT32_C(1) << (pair % 32);
    set->first_low[first & 15] |= bucket;
    set->first_high[first >> 4] |= bucket;
    set->second_low[second & 15] |= bucket;
    set->second_high[second >> 4] |= bucket;
}

size_t pair_set_find_plain(const struct pair_set *set, const char *data, size_t n)
{
    size_t i = 0;

    for (; i + 8 < n; i += 8) /* eight pairs, and a byte after the last of them */
        for (size_t k = 0; k < 8; k++)
            if (pair_set_has(set, data + i + k))
                return i + k;
    while (i + 1 < n && !pair_set_has(set, data + i))
        i++;
    return i;
}

#ifdef __x86_64__
/* By bucket, which of the sixteen bytes' nibbles are in the tables. */
__attribute__((target("ssse3"))) static __m128i in_tables(const uint8_t low[static 16],
                                                          const uint8_t high[static 16],
                                                          __m128i bytes)
{
    const __m128i nibble = _mm_set1_epi8(15);
    __m128i of_low = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)low),
                                      _mm_and_si128(bytes, nibble));
    __m128i of_high = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)high),
                                       _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));

    return _mm_and_si128(of_low, of_high);
}

/* Bit k: the pair at data + k may be in the set. Reads STEP + 1 bytes. */
__attribute__((target("ssse3"))) static unsigned candidates(const struct pair_set *set,
                                                            const char *data)
{
    __m128i first = _mm_loadu_si128((const __m128i *)data);
    __m128i second = _mm_loadu_si128((const __m128i *)(data + 1));
    __m128i both = _mm_and_si128(in_tables(set->first_low, set->first_high, first),
                                 in_tables(set->second_low, set->second_high, second));

    return ~(unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(both, _mm_setzero_si128())) & 0xffff;
}

__attribute__((target("ssse3"))) static size_t find_ssse3(const struct pair_set *set,
                                                          const char *data, size_t n)
{
    size_t i = 0;

    for (; i + STEP < n; i += STEP)
        for (unsigned found = candidates(set, data + i); found; found &= found - 1) {
            unsigned k = (unsigned)__builtin_ctz(found);

            if (pair_set_has(set, data + i + k))
                return i + k;
        }
    return i + pair_set_find_plain(set, data + i, n - i);
}
#endif

size_t pair_set_find(const struct pair_set *set, const char *data, size_t n)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("ssse3"))
        return find_ssse3(set, data, n);
#endif
    return pair_set_find_plain(set, data, n);
}
