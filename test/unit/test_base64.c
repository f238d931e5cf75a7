#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/base64.h"
#include "base/ids.h"
#include "base/util.h"

/* RFC 4648 section 10. */
static void test_vectors(void **state)
{
    static const char *const pairs[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"fooba", "Zm9vYmE="},
                                           {"foobar", "Zm9vYmFy"}};

    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        char text[16], back[16];
        size_t n = strlen(pairs[i][1]);

        base64_encode(pairs[i][0], strlen(pairs[i][0]), text);
        assert_string_equal(text, pairs[i][1]);
        assert_int_equal(base64_encoded_len(strlen(pairs[i][0])), n);
        assert_int_equal(base64_decode(text, n, back), (ssize_t)strlen(pairs[i][0]));
        assert_memory_equal(back, pairs[i][0], strlen(pairs[i][0]));
    }
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "Z",    "Zg",    "Zg=",      "=",    "====",  "Z===", "Zh==",
        "Zm9=", "Zm9v=", "Zg==Zg==", "Zm9 ", "Zm\n9", "Zm-_", "Zm9\xff"};
    char out[16];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(base64_decode(bad[i], strlen(bad[i]), out), -EINVAL);
    assert_int_equal(base64_decode("Zm\0v", 4, out), -EINVAL);
}

static void test_round_trip(void **state)
{
    unsigned char bytes[600];
    char text[801], back[801];

    ids_random_bytes(bytes, sizeof(bytes));
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        base64_encode(bytes, n, text);
        assert_int_equal(strlen(text), base64_encoded_len(n));
        assert_true((size_t)base64_decode(text, strlen(text), back) == n);
        assert_memory_equal(back, bytes, n);
        assert_int_equal(base64_decode(text, strlen(text), text), n); /* in place */
        assert_memory_equal(text, bytes, n);
    }
}

/* Of every character, exactly the alphabet decodes. */
static void test_alphabet(void **state)
{
    int good = 0;

    for (int c = 0; c < 256; c++) {
        char text[4] = {(char)c, 'A', 'A', 'A'}, out[3];

        good += base64_decode(text, 4, out) == 3;
    }
    assert_int_equal(good, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_alphabet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
