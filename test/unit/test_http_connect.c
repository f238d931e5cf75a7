#include "http_fixture.h"

#include "http/connect_rpc.h"

static struct buf got;

static void on_request(struct http_exchange *x, json_t *request, bool stream)
{
    const char *path = http_exchange_head(x)->path;

    if (strcmp(path, "/s/Fail") == 0) {
        connect_fail(x, CONNECT_NOT_FOUND, "no \"%s\" here", "thing");
    } else if (strcmp(path, "/s/Late") == 0) {
        connect_stream_begin(x);
        connect_stream_send_text(x, "{\"n\":1}", 7);
        connect_fail(x, CONNECT_DEADLINE_EXCEEDED, "%s", "too late");
    } else if (stream) {
        connect_stream_begin(x);
        connect_stream_send(x, request);
        connect_stream_send_text(x, "{\"n\":1}", 7);
        connect_stream_end(x, CONNECT_OK, "%s", "");
    } else {
        connect_reply(x, request);
    }
    json_decref(request);
}

static void handler(struct http_exchange *x, void *ctx)
{
    ((struct fixture *)ctx)->calls++;
    connect_read(x, 64, on_request);
}

static void ask(struct fixture *f, int fd, const char *path, const char *type, const char *body,
                size_t len)
{
    char head[512];

    snprintf(head, sizeof(head),
             "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", path,
             type, len);
    fixture_send(f, fd, head);
    assert_int_equal(send(fd, body, len, 0), (ssize_t)len);
    fixture_recv(f, fd, &got);
}

static const char *body(void)
{
    return strstr(got.data, "\r\n\r\n") + 4;
}

#define JSON   "application/json"
#define STREAM "application/connect+json"

/* The envelopes of a stream's chunks, one each, as "flags length text" lines. */
static const char *envelopes(void)
{
    static char out[1024];
    const char *p = body();
    size_t n = 0, chunk;

    while (sscanf(p, "%zx", &chunk) == 1 && chunk > 0) {
        const unsigned char *e = (const unsigned char *)strstr(p, "\r\n") + 2;
        unsigned len = (unsigned)e[1] << 24 | (unsigned)e[2] << 16 | (unsigned)e[3] << 8 | e[4];

        assert_int_equal(len + 5, chunk);
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%d %.*s\n", e[0], (int)len, e + 5);
        p = (const char *)e + chunk + 2;
    }
    assert_string_equal(p, "0\r\n\r\n");
    return out;
}

static void test_unary(void **state)
{
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    ask(&f, fd, "/s/Echo", JSON "; charset=utf-8", "{\"a\": [1]}", 10);
    assert_non_null(strstr(got.data, "HTTP/1.1 200 OK"));
    assert_non_null(strstr(got.data, "Content-Type: application/json\r\n"));
    assert_string_equal(body(), "{\"a\":[1]}");
    ask(&f, fd, "/s/Fail", JSON, "{}", 2);
    assert_non_null(strstr(got.data, "HTTP/1.1 404 "));
    assert_string_equal(body(), "{\"code\":\"not_found\",\"message\":\"no \\\"thing\\\" here\"}");
    close(fd);
    fixture_stop(&f);
}

static void test_unary_refused(void **state)
{
    static const struct {
        const char *type, *body, *want;
    } cases[] = {
        {JSON, "{", "HTTP/1.1 400 "},
        {JSON, "", "HTTP/1.1 400 "},
        {JSON, "[]", "HTTP/1.1 400 "},
        {JSON, "{\"a\":\"0123456789012345678901234567890123456789012345678901234567\"}",
         "HTTP/1.1 429 "},
        {"application/proto", "{}", "HTTP/1.1 415 "},
        {"application/jsonx", "{}", "HTTP/1.1 415 "},
        {JSON "\r\nContent-Encoding: gzip", "{}", "HTTP/1.1 501 "},
    };
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ask(&f, fd, "/s/Echo", cases[i].type, cases[i].body, strlen(cases[i].body));
        assert_non_null(strstr(got.data, cases[i].want));
    }
    fixture_send(&f, fd, "GET /s/Echo HTTP/1.1\r\nHost: a\r\nContent-Type: " JSON "\r\n\r\n");
    fixture_recv(&f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 405 "));
    assert_non_null(strstr(got.data, "Allow: POST\r\n"));
    close(fd);
    fixture_stop(&f);
}

static void test_stream(void **state)
{
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    ask(&f, fd, "/s/Go", STREAM, "\0\0\0\0\2{}", 7);
    assert_non_null(strstr(got.data, "HTTP/1.1 200 OK"));
    assert_non_null(strstr(got.data, "Content-Type: application/connect+json\r\n"));
    assert_string_equal(envelopes(), "0 {}\n0 {\"n\":1}\n2 {}\n");
    ask(&f, fd, "/s/Fail", STREAM, "\0\0\0\0\2{}", 7);
    assert_non_null(strstr(got.data, "HTTP/1.1 200 OK")); /* in band */
    assert_string_equal(
        envelopes(),
        "2 {\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"thing\\\" here\"}}\n");
    ask(&f, fd, "/s/Late", STREAM, "\0\0\0\0\2{}", 7);
    assert_string_equal(
        envelopes(),
        "0 {\"n\":1}\n2 {\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"too late\"}}\n");
    close(fd);
    fixture_stop(&f);
}

static void test_stream_refused(void **state)
{
    static const struct {
        const char *body;
        size_t len;
        const char *code;
    } cases[] = {
        {"", 0, "invalid_argument"},
        {"\0\0\0\0", 4, "invalid_argument"},
        {"\0\0\0\0\3{}", 7, "invalid_argument"},
        {"\0\0\0\0\1{}", 7, "invalid_argument"},
        {"\0\xff\xff\xff\xff{}", 7, "invalid_argument"},
        {"\2\0\0\0\2{}", 7, "invalid_argument"},
        {"\0\0\0\0\2{}\0\0\0\0\2{}", 14, "invalid_argument"},
        {"\0\0\0\0\2[]", 7, "invalid_argument"},
        {"\1\0\0\0\2{}", 7, "unimplemented"},
        {"0123456789012345678901234567890123456789012345678901234567890123456789", 70,
         "resource_exhausted"},
    };
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char want[64];

        ask(&f, fd, "/s/Go", STREAM, cases[i].body, cases[i].len);
        assert_non_null(strstr(got.data, "HTTP/1.1 200 OK"));
        snprintf(want, sizeof(want), "2 {\"error\":{\"code\":\"%s\"", cases[i].code);
        assert_ptr_equal(strstr(envelopes(), want), envelopes());
    }
    close(fd);
    fixture_stop(&f);
}

static void test_timeout_header(void **state)
{
    static const struct {
        const char *value;
        int r;
        uint64_t ms;
    } cases[] = {{NULL, 0, 0},
                 {"0", 0, 0},
                 {"1500", 0, 1500},
                 {"9999999999", 0, 9999999999},
                 {"99999999999", -EINVAL, 1},
                 {"", -EINVAL, 1},
                 {"-1", -EINVAL, 1},
                 {"1s", -EINVAL, 1}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http_head h = {.header_count = cases[i].value ? 1 : 0};
        uint64_t ms = 1;

        h.headers[0] = (struct http_header){"Connect-Timeout-MS", cases[i].value};
        assert_int_equal(connect_timeout_ms(&h, &ms), cases[i].r);
        assert_int_equal(ms, cases[i].ms);
    }
}

static void test_codes(void **state)
{
    assert_string_equal(connect_code_name(CONNECT_UNAUTHENTICATED), "unauthenticated");
    assert_int_equal(connect_code_http_status(CONNECT_UNAVAILABLE), 503);
    for (int code = 1; code < ERR_CODE_COUNT; code++) /* each error has a name of its own kind */
        assert_int_not_equal(connect_code_from_err(code), CONNECT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),          cmocka_unit_test(test_unary_refused),
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_stream_refused),
        cmocka_unit_test(test_timeout_header), cmocka_unit_test(test_codes),
    };
    int r;

    buf_init(&got, 1 << 20);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    buf_free(&got);
    return r;
}
