/* OpenSSL's own contexts on the stack. OpenSSL 3 marks these functions as deprecated; what it
 * recommends (EVP, and its one-call forms SHA256() and HMAC(), which are made of it) allocates a
 * context for each digest. They always return 1 there: they have nothing that fails. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "http/digest.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

void digest_sha1(const void *data, size_t n, unsigned char out[static DIGEST_SHA1_SIZE])
{
    SHA_CTX c;

    (void)SHA1_Init(&c);
    (void)SHA1_Update(&c, data, n);
    (void)SHA1_Final(out, &c);
}

void digest_sha256(const void *data, size_t n, unsigned char out[static DIGEST_SHA256_SIZE])
{
    SHA256_CTX c;

    (void)SHA256_Init(&c);
    (void)SHA256_Update(&c, data, n);
    (void)SHA256_Final(out, &c);
}

/* H(key xor pad || data): both steps of RFC 2104. */
static void keyed(const unsigned char key[static SHA256_CBLOCK], unsigned char pad,
                  const void *data, size_t n, unsigned char out[static DIGEST_SHA256_SIZE])
{
    unsigned char block[SHA256_CBLOCK];
    SHA256_CTX c;

    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = key[i] ^ pad;
    (void)SHA256_Init(&c);
    (void)SHA256_Update(&c, block, sizeof(block));
    (void)SHA256_Update(&c, data, n);
    (void)SHA256_Final(out, &c);
    OPENSSL_cleanse(block, sizeof(block));
    OPENSSL_cleanse(&c, sizeof(c));
}

void digest_hmac_sha256(const void *key, size_t key_len, const void *data, size_t n,
                        unsigned char out[static DIGEST_SHA256_SIZE])
{
    unsigned char block[SHA256_CBLOCK] = {0}, inner[DIGEST_SHA256_SIZE];

    if (key_len > sizeof(block))
        digest_sha256(key, key_len, block);
    else if (key_len > 0)
        memcpy(block, key, key_len);
    keyed(block, 0x36, data, n, inner);
    keyed(block, 0x5c, inner, sizeof(inner), out);
    OPENSSL_cleanse(block, sizeof(block));
}
