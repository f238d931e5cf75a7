/* Java's store of authorities: the authorities added, and those not touched. A JVM's reading of it:
 * test/scenario/test_egress_clients.py, test_java_trusts_the_authority. */
#include "agent/java_store.h"
#include "agent/pem_list.h"
#include "agent/sha1.h"

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

/* The entries of others stay as they are, and one that was taken out can be added again. */
static void test_removed(void **state)
{
    const char *second = strstr(pem + 1, "-----BEGIN");
    struct buf both, one, none, again;

    assert_int_equal(add(empty, EMPTY_BYTES, pem, &both), 1);
    buf_init(&one, 100000);
    buf_init(&none, 100000);
    assert_int_equal(java_store_remove(both.data, both.len, second, &one), 1);
    assert_null(memmem(one.data, one.len, "second certificate", 18));
    assert_memory_equal(one.data + 8, "\0\0\0\1", 4);
    assert_memory_equal(one.data + 12, both.data + 12, one.len - 20 - 12);
    assert_int_equal(java_store_remove(one.data, one.len, second, &none), 0);
    assert_int_equal(none.len, 0);
    assert_int_equal(java_store_remove(one.data, one.len, pem, &none), 1);
    assert_int_equal(none.len, EMPTY_BYTES);
    assert_memory_equal(none.data, empty, EMPTY_BYTES);
    assert_int_equal(add(none.data, none.len, pem, &again), 1);
    assert_int_equal(again.len, both.len);
    assert_memory_equal(again.data, both.data, both.len);
    buf_free(&both);
    buf_free(&one);
    buf_free(&none);
    buf_free(&again);
}

static void digest_again(struct buf *store)
{
    static const char before[] = "\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite";
    uint8_t sum[SHA1_DIGEST_BYTES];
    struct sha1 s;

    sha1_begin(&s);
    sha1_add(&s, before, sizeof(before) - 1);
    sha1_add(&s, store->data, store->len - sizeof(sum));
    sha1_end(&s, sum);
    memcpy(store->data + store->len - sizeof(sum), sum, sizeof(sum));
}

/* A store whose digest is right and whose entries are not is left as it is: a length that reaches
 * beyond its end, more entries or fewer than it says, an entry of another kind. */
static void test_not_removed(void **state)
{
    struct buf both, out;

    assert_int_equal(add(empty, EMPTY_BYTES, pem, &both), 1);
    for (size_t at = 8; at < both.len - 20; at++) {
        struct buf changed;

        buf_init(&changed, 100000);
        buf_init(&out, 100000);
        assert_int_equal(buf_append(&changed, both.data, both.len), 0);
        changed.data[at] = (char)(changed.data[at] ^ 0x80);
        digest_again(&changed);
        assert_in_range(java_store_remove(changed.data, changed.len, pem, &out) + 100, 100 - EINVAL,
                        101);
        assert_true(out.len <= changed.len);
        buf_free(&out);
        buf_free(&changed);
    }
    buf_free(&both);
}

/* Of a text with others' certificates and remarks nothing else goes. */
static void test_of_a_bundle(void **state)
{
#define ONE   "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
#define TWO   "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"
#define THREE "-----BEGIN CERTIFICATE-----\ndGhyZWU=\n-----END CERTIFICATE-----\n"
    static const struct {
        const char *text, *these, *left;
        int n;
    } cases[] = {
        {ONE TWO THREE, TWO, ONE THREE, 1},
        {"# first\n" ONE "# second\n" TWO, ONE TWO, "# first\n# second\n", 2},
        {ONE TWO, THREE, ONE TWO, 0},
        {ONE TWO ONE, ONE, TWO, 2},
        {ONE TWO, "", ONE TWO, 0},
        {"", ONE, "", 0},
        {ONE "-----BEGIN CERTIFICATE-----\nb25l\n", ONE, "-----BEGIN CERTIFICATE-----\nb25l\n", 1},
        {ONE TWO, "-----BEGIN CERTIFICATE-----\nb25l\n", ONE TWO, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf out;

        buf_init(&out, 100000);
        assert_int_equal(pem_list_without(cases[i].text, cases[i].these, &out), cases[i].n);
        assert_string_equal(out.data, cases[i].left);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_removed),     cmocka_unit_test(test_not_removed),
        cmocka_unit_test(test_of_a_bundle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
