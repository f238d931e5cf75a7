#pragma once
/* SHA-1 (FIPS 180-4 section 6.1), for the digest of Java's store alone (agent/java_store.h): it
 * finds damage there, and protects from nothing. Here, for the agent is static, and libcrypto alone
 * would be larger than it is. Pure; nothing blocks.
 *
 * A sandbox with Java digests its store twice at its start, 330 KB: 1.7 ms by the steps of the
 * standard, 0.2 ms by the processor's instructions for them, where it has these. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA1_DIGEST_BYTES 20u
#define SHA1_BLOCK_BYTES  64u

struct sha1 {
    uint32_t h[5];
    uint64_t bytes;
    bool x86; /* by the processor's instructions */
    uint8_t block[SHA1_BLOCK_BYTES];
};

void sha1_begin(struct sha1 *s);
void sha1_add(struct sha1 *s, const void *bytes, size_t n);
void sha1_end(struct sha1 *s, uint8_t out[static SHA1_DIGEST_BYTES]);

/* The step of both kinds, which are equal: n blocks into h. The second only where sha1_has_x86. */
void sha1_blocks_portable(uint32_t h[static 5], const uint8_t *blocks, size_t n);
bool sha1_has_x86(void);
void sha1_blocks_x86(uint32_t h[static 5], const uint8_t *blocks, size_t n);
