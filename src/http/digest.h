#pragma once
/* SHA-1, SHA-256 and HMAC-SHA256 of bytes in memory, for tokens, signatures and hashes of keys.
 *
 * Pure, and without allocation: a digest that can fail for lack of memory would have to end the
 * program, or be an answer that every caller may forget to look at (what it leaves in out is then
 * compared with a key's hash). In a library of its own, because cay-init has the server without
 * OpenSSL. */

#include <stddef.h>

#define DIGEST_SHA1_SIZE   20
#define DIGEST_SHA256_SIZE 32

/* FIPS 180-4. */
void digest_sha1(const void *data, size_t n, unsigned char out[static DIGEST_SHA1_SIZE]);
void digest_sha256(const void *data, size_t n, unsigned char out[static DIGEST_SHA256_SIZE]);

/* RFC 2104 with SHA-256. A key of any length. */
void digest_hmac_sha256(const void *key, size_t key_len, const void *data, size_t n,
                        unsigned char out[static DIGEST_SHA256_SIZE]);
