/* Java's store of authorities: what is added to it, and what is not touched. A JVM's reading of
 * it: test/scenario/test_egress_clients.py, test_java_trusts_the_authority. */
#include "agent/java_store.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define NOW_MS UINT64_C(0x19a0b1c2d3e)

/* A store of no entries, as keytool makes it, with its digest. */
static const char empty[] = "\xfe\xed\xfe\xed\0\0\0\2\0\0\0\0"
                            "\xe2\x68\x6e\x45\xfb\x43\xdf\xa4\xd9\x92"
                            "\xdd\x41\xce\xb6\xb2\x1c\x63\x30\xd7\x92";
#define EMPTY_BYTES (sizeof(empty) - 1)

/* The bytes 0 to 199, and a text. */
static const char pem[] = "-----BEGIN CERTIFICATE-----\n"
                          "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4v\n"
                          "MDEyMzQ1Njc4OTo7PD0+P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5f\n"
                          "YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn+AgYKDhIWGh4iJiouMjY6P\n"
                          "kJGSk5SVlpeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/\n"
                          "wMHCw8TFxsc=\n"
                          "-----END CERTIFICATE-----\n"
                          "-----BEGIN CERTIFICATE-----\r\n"
                          "c2Vjb25kIGNlcnRpZmljYXRl\r\n"
                          "-----END CERTIFICATE-----\n";

/* By hashlib.sha1 of the store that struct.pack made. */
static const char digest[] = "\xd3\xf0\x28\x6c\x8f\x27\xf1\x34\x4e\x33"
                             "\x0f\x0f\x31\x2d\xdd\xcd\x8c\x4d\x03\x53";

static int add(const char *store, size_t n, const char *more, struct buf *out)
{
    buf_init(out, 100000);
    return java_store_add(store, n, more, NOW_MS, out);
}

static void test_added(void **state)
{
    struct buf once, again;

    assert_int_equal(add(empty, EMPTY_BYTES, pem, &once), 1);
    assert_memory_equal(once.data, "\xfe\xed\xfe\xed\0\0\0\2\0\0\0\2\0\0\0\2", 16);
    assert_memory_equal(once.data + once.len - 20 - 18, "second certificate", 18);
    assert_memory_equal(once.data + once.len - 20, digest, 20);
    assert_int_equal(add(once.data, once.len, pem, &again), 0); /* it has them */
    assert_int_equal(again.len, 0);
    buf_free(&again);
    buf_free(&once);
}

/* A store that is damaged, has another password, or is of another form, is left as it is. */
static void test_refused(void **state)
{
    static const char pkcs12[] = "\x30\x82\x04\xce\x02\x01\x03\x30\x82\x04\x98\x06\x09\x2a\x86\x48"
                                 "\x86\xf7\x0d\x01\x07\x01\xa0\x82\x04\x89\x04\x82\x04\x85\x30\x82";
    char store[EMPTY_BYTES];
    struct buf out;

    assert_int_equal(add(pkcs12, sizeof(pkcs12) - 1, pem, &out), -EINVAL);
    for (size_t i = 0; i < EMPTY_BYTES; i++) {
        assert_int_equal(add(empty, i, pem, &out), -EINVAL);
        memcpy(store, empty, EMPTY_BYTES);
        store[i] ^= 1;
        assert_int_equal(add(store, EMPTY_BYTES, pem, &out), -EINVAL);
    }
    assert_int_equal(add(empty, EMPTY_BYTES, "-----BEGIN CERTIFICATE-----\nAAAA", &out), -EINVAL);
    buf_free(&out);
    assert_int_equal(
        add(empty, EMPTY_BYTES, "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----", &out),
        -EINVAL);
    buf_free(&out);
    assert_int_equal(add(empty, EMPTY_BYTES, "no certificate", &out), 0);
    assert_int_equal(out.len, 0);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
