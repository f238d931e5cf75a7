/* SHA-1 of the standard's examples, and that the steps of the standard and of the processor's
 * instructions are one function. */
#include "agent/sha1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 67u

static void digest(const char *text, size_t n, size_t piece, bool x86, char out[static 41])
{
    uint8_t bytes[SHA1_DIGEST_BYTES];
    struct sha1 s;

    sha1_begin(&s);
    s.x86 = x86;
    for (size_t at = 0; at < n; at += piece)
        sha1_add(&s, text + at, piece < n - at ? piece : n - at);
    sha1_end(&s, bytes);
    for (unsigned i = 0; i < SHA1_DIGEST_BYTES; i++)
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", bytes[i]);
}

/* FIPS 180-4 (NIST's page of example values), and a million times "a" as RFC 3174 section 7.3. */
static void test_examples(void **state)
{
    static const struct {
        const char *text, *digest;
    } examples[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
    };
    static char a[1000000];
    char out[41];

    memset(a, 'a', sizeof(a));
    for (int x86 = 0; x86 <= sha1_has_x86(); x86++) {
        for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
            digest(examples[i].text, strlen(examples[i].text), 1000, x86, out);
            assert_string_equal(out, examples[i].digest);
        }
        digest(a, sizeof(a), sizeof(a), x86, out);
        assert_string_equal(out, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}

static void test_pieces(void **state)
{
    char text[1000], whole[41], out[41];

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i * i + i / 7);
    for (size_t n = 0; n < sizeof(text); n += 37) {
        digest(text, n, sizeof(text), false, whole);
        for (size_t piece = 1; piece < 200; piece += 9)
            for (int x86 = 0; x86 <= sha1_has_x86(); x86++) {
                digest(text, n, piece, x86, out);
                assert_string_equal(out, whole);
            }
    }
}

/* From any state, not only the first. */
static void test_both_kinds_are_equal(void **state)
{
    static uint8_t blocks[BLOCKS * SHA1_BLOCK_BYTES];
    uint32_t x = 1;

    if (!sha1_has_x86()) {
        print_message("# this processor has no instructions for SHA-1\n");
        skip();
    }
    for (unsigned round = 0; round < 200; round++) {
        uint32_t one[5], other[5];

        for (size_t i = 0; i < sizeof(blocks); i++)
            blocks[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
        memcpy(one, blocks, sizeof(one));
        memcpy(other, blocks, sizeof(other));
        sha1_blocks_portable(one, blocks, round % BLOCKS);
        sha1_blocks_x86(other, blocks, round % BLOCKS);
        assert_memory_equal(one, other, sizeof(one));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_both_kinds_are_equal),
    };
    return cmocka_run_group_tests_name("sha1", tests, NULL, NULL);
}
