/* Units of src/http/digest.c: test vectors, and that no digest needs memory. */
#include "base/util.h"
#include "http/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

static bool out_of_memory;

static void *may_malloc(size_t n, const char *file, int line)
{
    return out_of_memory ? NULL : malloc(n);
}

static void *may_realloc(void *p, size_t n, const char *file, int line)
{
    return out_of_memory ? NULL : realloc(p, n);
}

static void may_free(void *p, const char *file, int line)
{
    free(p);
}

/* FIPS 180-4's examples; RFC 4231 test cases 1, 2 and 6, the last with a key longer than a block. */
static void check_vectors(void)
{
    static const unsigned char sha1[DIGEST_SHA1_SIZE] =
        "\xa9\x99\x3e\x36\x47\x06\x81\x6a\xba\x3e\x25\x71\x78\x50\xc2\x6c\x9c\xd0\xd8\x9d";
    static const unsigned char sha256[DIGEST_SHA256_SIZE] =
        "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23"
        "\xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad";
    static const struct {
        unsigned char byte; /* the key, key_len times; 0: it is "Jefe" */
        size_t key_len;
        const char *data;
        unsigned char mac[DIGEST_SHA256_SIZE];
    } macs[] = {
        {0x0b, 20, "Hi There",
         "\xb0\x34\x4c\x61\xd8\xdb\x38\x53\x5c\xa8\xaf\xce\xaf\x0b\xf1\x2b"
         "\x88\x1d\xc2\x00\xc9\x83\x3d\xa7\x26\xe9\x37\x6c\x2e\x32\xcf\xf7"},
        {0, 4, "what do ya want for nothing?",
         "\x5b\xdc\xc1\x46\xbf\x60\x75\x4e\x6a\x04\x24\x26\x08\x95\x75\xc7"
         "\x5a\x00\x3f\x08\x9d\x27\x39\x83\x9d\xec\x58\xb9\x64\xec\x38\x43"},
        {0xaa, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
         "\x60\xe4\x31\x59\x1e\xe0\xb6\x7f\x0d\x8a\x26\xaa\xcb\xf5\xb7\x7f"
         "\x8e\x0b\xc6\x21\x37\x28\xc5\x14\x05\x46\x04\x0f\x0e\xe3\x7f\x54"},
    };
    unsigned char out[DIGEST_SHA256_SIZE], key[131];

    digest_sha1("abc", 3, out);
    assert_memory_equal(out, sha1, DIGEST_SHA1_SIZE);
    digest_sha256("abc", 3, out);
    assert_memory_equal(out, sha256, DIGEST_SHA256_SIZE);
    for (size_t i = 0; i < ARRAY_SIZE(macs); i++) {
        memset(key, macs[i].byte, sizeof(key));
        if (macs[i].byte == 0)
            memcpy(key, "Jefe", 4);
        digest_hmac_sha256(key, macs[i].key_len, macs[i].data, strlen(macs[i].data), out);
        assert_memory_equal(out, macs[i].mac, sizeof(out));
    }
}

static void test_vectors(void **state)
{
    check_vectors();
}

/* The control: what OpenSSL has for one call fails then, and leaves its output as it was. */
static void test_no_memory_is_needed(void **state)
{
    unsigned char out[DIGEST_SHA256_SIZE] = "untouched", *hash, *mac;
    unsigned n = 0;

    assert_non_null(SHA256((const unsigned char *)"abc", 3, NULL));
    out_of_memory = true;
    hash = SHA256((const unsigned char *)"abc", 3, out);
    mac = HMAC(EVP_sha256(), "key", 3, (const unsigned char *)"abc", 3, out, &n);
    check_vectors();
    out_of_memory = false;
    assert_null(hash);
    assert_null(mac);
    assert_string_equal((const char *)out, "untouched");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors),
                                       cmocka_unit_test(test_no_memory_is_needed)};

    if (CRYPTO_set_mem_functions(may_malloc, may_realloc, may_free) != 1)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
