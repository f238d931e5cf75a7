/* Peers that end their side of a connection, and those that leave: the first get their answers, the second are
 * noticed. Over TCP both look the same until something is sent. */
#include "http_fixture.h"

#define R(path)        "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define HALF_MS        200u
#define HALF_STREAM_MS 600u

static struct buf got;

static void echo(struct http_exchange *x, char *body, size_t len)
{
    http_respond(x, 200, NULL, 0, body, len);
}

static void handler(struct http_exchange *x, void *ctx)
{
    struct fixture *f = ctx;
    const char *path = http_exchange_head(x)->path;

    f->calls++;
    http_exchange_set(x, f, fixture_on_close);
    f->x = x;
    if (strcmp(path, "/hello") == 0)
        http_respond(x, 200, NULL, 0, "hello\n", 6);
    else if (strcmp(path, "/echo") == 0)
        http_body_collect(x, 100, echo);
    else if (strcmp(path, "/stream") == 0)
        http_response_begin(x, 200, NULL, 0, -1);
    else if (strcmp(path, "/ten") == 0)
        http_response_begin(x, 200, NULL, 0, 10);
    /* else the test answers */
}

static void start(struct fixture *f, uint64_t half_ms, uint64_t half_stream_ms)
{
    struct http_server_config c;

    http_server_config_default(&c);
    c.half_timeout_ms = half_ms;
    c.half_stream_timeout_ms = half_stream_ms;
    fixture_start(f, &c, handler);
}

static int half_closed(struct fixture *f, const char *request)
{
    int fd = fixture_client(f);

    assert_int_equal(send(fd, request, strlen(request), 0), (ssize_t)strlen(request));
    shutdown(fd, SHUT_WR);
    fixture_spin(f);
    return fd;
}

static void finish(struct fixture *f, int fd)
{
    close(fd);
    fixture_spin(f);
    assert_int_equal(http_server_connections(f->server), 0);
    assert_int_equal(f->closes, f->calls);
    fixture_stop(f);
}

static size_t count(const char *what)
{
    size_t n = 0;

    for (const char *p = got.data; (p = strstr(p, what)); p += strlen(what))
        n++;
    return n;
}

static void test_answers_at_once(void **state)
{
    struct fixture f;
    int fd;

    start(&f, HALF_MS, HALF_STREAM_MS);
    fd = half_closed(&f, R("/hello"));
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_EOF);
    assert_int_equal(count("hello\n"), 1);
    close(fd);
    fd = half_closed(&f, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_EOF);
    assert_int_equal(count("body"), 1);
    finish(&f, fd);
}

/* Everything that was received whole is answered, in its order; then the connection ends. */
static void test_later_and_several(void **state)
{
    struct fixture f;
    int fd;

    start(&f, 60000, 60000);
    fd = half_closed(&f, R("/later") R("/hello") R("/later"));
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_OPEN);
    assert_int_equal(f.calls, 1);
    assert_non_null(f.x);
    http_respond(f.x, 200, NULL, 0, "first\n", 6);
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_OPEN);
    assert_int_equal(count("first\n") + count("hello\n"), 2);
    assert_int_equal(f.calls, 3);
    http_respond(f.x, 200, NULL, 0, "last\n", 5);
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_EOF);
    assert_int_equal(count("last\n"), 1);
    finish(&f, fd);
}

static void test_in_the_middle(void **state)
{
    static const char *const requests[] = {
        "GET /hello HTTP/1.1\r\nHost: a\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    };
    struct fixture f;
    int fd = -1;

    start(&f, 60000, 60000);
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        util_close(&fd);
        fd = half_closed(&f, requests[i]);
        assert_int_not_equal(fixture_recv(&f, fd, &got), FIXTURE_OPEN);
        assert_int_equal(got.len, 0);
    }
    finish(&f, fd);
}

/* That begins after the peer's end: as long as something comes. */
static void test_a_stream(void **state)
{
    struct fixture f;
    int fd;

    start(&f, HALF_MS, HALF_STREAM_MS);
    fd = half_closed(&f, R("/later"));
    assert_non_null(f.x);
    http_response_begin(f.x, 200, NULL, 0, -1);
    for (int i = 0; i < 8; i++) {
        fixture_wait(&f, HALF_STREAM_MS / 6);
        assert_non_null(f.x);
        http_response_write(f.x, "piece\n", 6);
    }
    http_response_end(f.x);
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_EOF);
    assert_int_equal(count("piece\n"), 8);
    assert_int_equal(count("0\r\n\r\n"), 1);
    close(fd);
    fd = half_closed(&f, R("/later"));
    http_response_begin(f.x, 200, NULL, 0, -1);
    for (int i = 0; i < 1000 && f.x; i++)
        fixture_wait(&f, 5);
    assert_null(f.x); /* nothing came */
    finish(&f, fd);
}

static void leaves(const char *path)
{
    struct fixture f;
    char request[64];
    int fd;

    snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);
    start(&f, HALF_MS, 60000);
    fd = fixture_client(&f);
    fixture_send(&f, fd, request);
    fixture_recv(&f, fd, &got);
    assert_non_null(f.x);
    fixture_wait(&f, 2 * HALF_MS);
    assert_non_null(f.x); /* the control: a client that stays is waited for */
    close(fd);
    for (int i = 0; i < 1000 && f.x; i++)
        fixture_wait(&f, 5);
    assert_null(f.x);
    finish(&f, -1);
}

/* Nothing is sent to it, and nothing comes of it. */
static void test_one_that_left_is_noticed(void **state)
{
    leaves("/later");
    leaves("/ten");
}

static void test_what_is_sent_tells(void **state)
{
    struct fixture f;
    int fd;

    start(&f, 60000, 60000);
    fd = fixture_client(&f);
    fixture_send(&f, fd, R("/ten"));
    fixture_recv(&f, fd, &got);
    close(fd);
    for (int i = 0; i < 3 && f.x; i++) {
        http_response_write(f.x, "a", 1);
        fixture_wait(&f, 20);
    }
    assert_null(f.x);
    finish(&f, -1);
}

/* Streams; and where the kernel knows: a reset, and both halves of a unix socket. */
static void test_at_once_where_it_is_known(void **state)
{
    struct linger reset = {.l_onoff = 1};
    struct fixture f;
    int fd, pair[2];

    start(&f, 60000, 60000);
    fd = fixture_client(&f);
    fixture_send(&f, fd, R("/stream"));
    assert_non_null(f.x);
    close(fd);
    fixture_spin(&f);
    assert_null(f.x);
    fd = fixture_client(&f);
    fixture_send(&f, fd, R("/later"));
    assert_non_null(f.x);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    close(fd);
    fixture_spin(&f);
    assert_null(f.x);

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(http_server_adopt(f.server, pair[1]), 0);
    fixture_send(&f, pair[0], R("/later"));
    shutdown(pair[0], SHUT_WR);
    fixture_spin(&f);
    assert_non_null(f.x);
    http_respond(f.x, 200, NULL, 0, "one\n", 4);
    assert_int_equal(fixture_recv(&f, pair[0], &got), FIXTURE_EOF);
    assert_int_equal(count("one\n"), 1);
    close(pair[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(http_server_adopt(f.server, pair[1]), 0);
    fixture_send(&f, pair[0], R("/later"));
    assert_non_null(f.x);
    close(pair[0]);
    fixture_spin(&f);
    assert_null(f.x);
    finish(&f, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_at_once),
        cmocka_unit_test(test_later_and_several),
        cmocka_unit_test(test_in_the_middle),
        cmocka_unit_test(test_a_stream),
        cmocka_unit_test(test_one_that_left_is_noticed),
        cmocka_unit_test(test_what_is_sent_tells),
        cmocka_unit_test(test_at_once_where_it_is_known),
    };

    buf_init(&got, 1 << 20);
    return cmocka_run_group_tests_name("http_half", tests, NULL, NULL);
}
