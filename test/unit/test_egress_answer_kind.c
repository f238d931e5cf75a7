/* Headers of answers that stand several times: none of their fields passes unread behind the first.
 * Those of HTTP/2 go the same way (test_egress_h2.c). */
#include "egress/credential/redact.h"
#include "egress/http/answer_kind.h"
#include "egress/http/rewrite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECRET "secret-value"
/* SECRET "cra", compressed by deflate */
#define DEFLATED \
    "\x78\xda\x2b\x4e\x4d\x2e\x4a\x2d\xd1\x2d\x4b\xcc\x29\x05\xb2\x12\x01\x30\x4f\x06\x07"

static void answer_to(const char *answer, struct redact *redact, struct buf *out)
{
    static const char request[] = "GET / HTTP/1.1\r\n\r\n";
    struct rewrite *w = rewrite_new();
    struct buf sent;

    buf_init(&sent, 65536);
    rewrite_set(w, NULL, redact);
    assert_int_equal(rewrite_outward(w, request, sizeof(request) - 1, &sent), 0);
    assert_int_equal(rewrite_inward(w, answer, strlen(answer), out), 0);
    assert_int_equal(rewrite_inward_end(w, out), 0);
    buf_free(&sent);
    rewrite_free(w);
}

/* The answer that arrives has expected in it, with its status, and nothing of a secret. */
static void check(const char *headers, const char *body, const char *expected)
{
    struct redact *r = redact_new();
    char answer[1024];
    struct buf out;

    buf_init(&out, 65536);
    assert_int_equal(redact_add(r, SECRET, sizeof(SECRET) - 1), 0);
    snprintf(answer, sizeof(answer), "HTTP/1.1 200 OK\r\n%sContent-Length: %zu\r\n\r\n%s", headers,
             strlen(body), body);
    answer_to(answer, r, &out);
    if (!strstr(out.data, expected))
        fail_msg("%s: %s", headers, out.data);
    assert_null(strstr(out.data, SECRET));
    assert_null(strstr(out.data, DEFLATED));
    buf_free(&out);
}

#define FOUND "[redacted]**cra"

static void test_codings(void **state)
{
    static const char *const unzipped[] = {
        "Content-Encoding: deflate\r\n",
        "Content-Encoding: identity\r\nContent-Encoding: deflate\r\n",
        "Content-Encoding: deflate\r\nContent-Encoding: identity\r\n",
        "Content-Encoding: \r\nContent-Encoding: deflate\r\n",
        "Content-Encoding: deflate\r\nContent-Encoding: \r\n",
        "Content-Encoding: identity\r\nX: y\r\ncontent-encoding: , Deflate ,\r\n",
        "Content-Encoding: identity, deflate\r\n",
        "Content-Encoding: identity\r\ngrpc-encoding: identity\r\nContent-Encoding: deflate\r\n"};
    static const char *const refused[] = {
        "Content-Encoding: identity\r\nContent-Encoding: br\r\n",
        "Content-Encoding: deflate\r\nContent-Encoding: deflate\r\n",
        "Content-Encoding: deflate, identity, gzip\r\n",
        "Content-Encoding: deflate;q=1\r\n",
        "Content-Encoding: \", deflate\r\n",
        "grpc-encoding: identity\r\ngrpc-encoding: gzip\r\n",
        "Content-Encoding: deflate\r\nconnect-content-encoding: gzip\r\n"};
    static const char *const plain[] = {"", "Content-Encoding: identity\r\n",
                                        "Content-Encoding: \r\nContent-Encoding: identity, ,\r\n"};

    for (size_t i = 0; i < ARRAY_SIZE(unzipped); i++)
        check(unzipped[i], DEFLATED, FOUND);
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        check(refused[i], DEFLATED, "HTTP/1.1 502 ");
        check(refused[i], DEFLATED, ANSWER_KIND_CODED_REASON);
    }
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        check(plain[i], SECRET "cra", FOUND);
}

static void test_types(void **state)
{
    static const char *const refused[] = {
        "Content-Type: text/plain\r\nContent-Type: application/grpc\r\n",
        "Content-Type: application/grpc\r\nContent-Type: text/plain\r\n",
        "Content-Type: text/plain\r\nContent-Type: multipart/byteranges; boundary=x\r\n",
        "Content-Type: text/plain, application/grpc\r\n",
        "Content-Type: \r\nContent-Type: text/plain\r\nContent-Type: text/html\r\n"};
    static const char *const passed[] = {
        "Content-Type: text/plain\r\n", "Content-Type: text/plain\r\nContent-Type: Text/Plain\r\n",
        "Content-Type: multipart/mixed; boundary=\"a/b,c/\\\"d,e/f\"\r\n",
        "Content-Type: text/plain; odata=minimal,plain\r\n"};

    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        check(refused[i], SECRET "cra", "HTTP/1.1 502 ");
        check(refused[i], SECRET "cra", "several types");
    }
    for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
        check(passed[i], SECRET "cra", FOUND);
}

static void test_parts(void **state)
{
    static const char *const refused[] = {
        "Content-Range: bytes 0-9/30\r\n", "content-range: Bytes=0-9/30\r\n",
        "Content-Range: bytes */30\r\nContent-Range: bytes 0-9/30\r\n",
        "Content-Range: bytes 0-9/30\r\nContent-Range: bytes */30\r\n",
        "Content-Type: \r\nContent-Type: multipart/byteranges; boundary=x\r\n"};
    static const char *const passed[] = {"Content-Range: bytes */30\r\n",
                                         "Content-Range: 0-24/3573\r\n", /* PostgREST */
                                         "Content-Range: items 0-24/3573\r\n"};
    struct answer_kind none = {.coding = UNZIP_NONE};

    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        check(refused[i], SECRET "cra", "HTTP/1.1 502 ");
        check(refused[i], SECRET "cra", "a part of the whole");
    }
    for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
        check(passed[i], SECRET "cra", FOUND);
    assert_non_null(answer_kind_refusal(&none, 206));
    assert_non_null(answer_kind_refusal(&none, 226));
    assert_null(answer_kind_refusal(&none, 200));
    assert_null(answer_kind_refusal(&none, 103));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codings),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
