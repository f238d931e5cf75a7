#include "agent/sha1.h"

#include "base/util.h"

#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

/* -- by the standard's steps ------------------------------------------------------------------- */

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Ch, Parity and Maj of the round, with its constant. */
static uint32_t mix(unsigned t, uint32_t b, uint32_t c, uint32_t d)
{
    if (t < 20)
        return ((b & c) | (~b & d)) + 0x5a827999u;
    if (t < 40)
        return (b ^ c ^ d) + 0x6ed9eba1u;
    if (t < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu;
    return (b ^ c ^ d) + 0xca62c1d6u;
}

static void take_block(uint32_t h[static 5], const uint8_t *block)
{
    uint32_t w[80], v[5];

    for (unsigned t = 0; t < 16; t++)
        w[t] = read_u32(block + (size_t)4 * t);
    for (unsigned t = 16; t < 80; t++)
        w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    memcpy(v, h, sizeof(v));
    for (unsigned t = 0; t < 80; t++) {
        uint32_t next = rotate(v[0], 5) + mix(t, v[1], v[2], v[3]) + v[4] + w[t];

        v[4] = v[3];
        v[3] = v[2];
        v[2] = rotate(v[1], 30);
        v[1] = v[0];
        v[0] = next;
    }
    for (unsigned i = 0; i < 5; i++)
        h[i] += v[i];
}

void sha1_blocks_portable(uint32_t h[static 5], const uint8_t *blocks, size_t n)
{
    for (; n > 0; n--, blocks += SHA1_BLOCK_BYTES)
        take_block(h, blocks);
}

/* -- by the processor's instructions ----------------------------------------------------------- */

#ifdef __x86_64__

#define GROUP 4 /* rounds that an instruction does */

bool sha1_has_x86(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3) && (c & bit_SSE4_1) &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

/* The next four words of the schedule, of the sixteen before, over the oldest of them. */
__attribute__((target("sha,sse4.1"))) static __m128i schedule(__m128i w[static 4], unsigned group)
{
    __m128i sum = _mm_xor_si128(_mm_sha1msg1_epu32(w[group % 4], w[(group + 1) % 4]),
                                w[(group + 2) % 4]);

    w[group % 4] = _mm_sha1msg2_epu32(sum, w[(group + 3) % 4]);
    return w[group % 4];
}

/* Which rounds an instruction does is a constant of it. */
__attribute__((target("sha,sse4.1"))) static __m128i rounds(__m128i abcd, __m128i e, unsigned group)
{
    switch (group * GROUP / 20) {
    case 0: return _mm_sha1rnds4_epu32(abcd, e, 0);
    case 1: return _mm_sha1rnds4_epu32(abcd, e, 1);
    case 2: return _mm_sha1rnds4_epu32(abcd, e, 2);
    default: return _mm_sha1rnds4_epu32(abcd, e, 3);
    }
}

__attribute__((target("sha,sse4.1"))) static void take_block_x86(__m128i *abcd, __m128i *e,
                                                                 const uint8_t *block)
{
    /* The standard's words have their highest byte first, and the instructions the first word
     * highest. */
    const __m128i turn = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
    __m128i w[4], abcd_before = *abcd, e_before = *e;

    for (unsigned i = 0; i < 4; i++)
        w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block + (size_t)16 * i)), turn);
#pragma GCC unroll 20
    for (unsigned group = 0; group < 80 / GROUP; group++) {
        __m128i words = group < 4 ? w[group] : schedule(w, group);
        __m128i with_e = group == 0 ? _mm_add_epi32(*e, words) : _mm_sha1nexte_epu32(*e, words);

        *e = *abcd;
        *abcd = rounds(*abcd, with_e, group);
    }
    *e = _mm_sha1nexte_epu32(*e, e_before);
    *abcd = _mm_add_epi32(*abcd, abcd_before);
}

__attribute__((target("sha,sse4.1"))) void sha1_blocks_x86(uint32_t h[static 5],
                                                           const uint8_t *blocks, size_t n)
{
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h), 0x1b);
    __m128i e = _mm_set_epi32((int)h[4], 0, 0, 0);

    for (; n > 0; n--, blocks += SHA1_BLOCK_BYTES)
        take_block_x86(&abcd, &e, blocks);
    _mm_storeu_si128((__m128i *)h, _mm_shuffle_epi32(abcd, 0x1b));
    h[4] = (uint32_t)_mm_extract_epi32(e, 3);
}

#else

bool sha1_has_x86(void)
{
    return false;
}

void sha1_blocks_x86(uint32_t h[static 5], const uint8_t *blocks, size_t n)
{
    sha1_blocks_portable(h, blocks, n);
}

#endif

/* -- a text ------------------------------------------------------------------------------------ */

static void take_blocks(struct sha1 *s, const uint8_t *blocks, size_t n)
{
    if (s->x86)
        sha1_blocks_x86(s->h, blocks, n);
    else
        sha1_blocks_portable(s->h, blocks, n);
}

void sha1_begin(struct sha1 *s)
{
    *s = (struct sha1){.h = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u},
                       .x86 = sha1_has_x86()};
}

void sha1_add(struct sha1 *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    while (n > 0) {
        size_t at = s->bytes % SHA1_BLOCK_BYTES;
        size_t part = at == 0 && n >= SHA1_BLOCK_BYTES ? n - n % SHA1_BLOCK_BYTES
                                                       : MIN(n, SHA1_BLOCK_BYTES - at);

        if (part >= SHA1_BLOCK_BYTES) {
            take_blocks(s, p, part / SHA1_BLOCK_BYTES);
        } else {
            memcpy(s->block + at, p, part);
            if (at + part == SHA1_BLOCK_BYTES)
                take_blocks(s, s->block, 1);
        }
        s->bytes += part;
        p += part;
        n -= part;
    }
}

void sha1_end(struct sha1 *s, uint8_t out[static SHA1_DIGEST_BYTES])
{
    static const uint8_t padding[SHA1_BLOCK_BYTES] = {0x80};
    uint64_t bits = s->bytes * 8;
    uint8_t length[8];

    for (unsigned i = 0; i < sizeof(length); i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha1_add(s, padding, 1 + (119 - s->bytes % 64) % 64);
    sha1_add(s, length, sizeof(length));
    for (unsigned i = 0; i < SHA1_DIGEST_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
