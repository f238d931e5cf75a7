#include "http_fixture.h"

#include <stdlib.h>
#include <time.h>

#define R(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static const struct http_header text_type = {"Content-Type", "text/plain"};

static void echo(struct http_exchange *x, char *body, size_t len)
{
    http_respond(x, 200, &text_type, 1, body, len);
}

static void count_data(struct http_exchange *x, const char *data, size_t len)
{
    struct fixture *f = http_exchange_get(x);

    f->bytes += len;
    for (size_t i = 0; i < len; i++)
        f->sum = f->sum * 31 + (unsigned char)data[i];
}

static void count_end(struct http_exchange *x)
{
    struct fixture *f = http_exchange_get(x);
    char text[64];

    f->ends++;
    snprintf(text, sizeof(text), "%zu %u", f->bytes, f->sum);
    http_respond(x, 200, NULL, 0, text, strlen(text));
}

static void pausing_data(struct http_exchange *x, const char *data, size_t len)
{
    count_data(x, data, len);
    http_body_pause(x);
}

/* Writes on until told full; the rest comes with the drain. */
static void fill(struct http_exchange *x, void *data)
{
    struct fixture *f = data;
    static char piece[10000];

    f->drains++;
    while (f->bytes > 0) {
        size_t n = MIN(f->bytes, sizeof(piece));

        f->bytes -= n;
        if (http_response_write(x, piece, n) == 1)
            return;
    }
    http_response_end(x);
}

static void handler(struct http_exchange *x, void *ctx)
{
    struct fixture *f = ctx;
    const char *path = http_exchange_head(x)->path;

    f->calls++;
    http_exchange_set(x, f, fixture_on_close);
    if (strcmp(path, "/hello") == 0) {
        http_respond(x, 200, &text_type, 1, "hello\n", 6);
    } else if (strcmp(path, "/echo") == 0) {
        http_body_collect(x, 100, echo);
    } else if (strcmp(path, "/count") == 0) {
        f->bytes = 0;
        f->sum = 0;
        http_body_stream(x, count_data, count_end);
    } else if (strcmp(path, "/pausing") == 0) {
        f->bytes = 0;
        f->x = x;
        http_body_stream(x, pausing_data, count_end);
    } else if (strcmp(path, "/chunks") == 0) {
        http_response_begin(x, 200, &text_type, 1, -1);
        http_response_write(x, "one", 3);
        http_response_write(x, "twenty", 6);
        http_response_end(x);
    } else if (strcmp(path, "/big") == 0) {
        f->bytes = 50 * 1000 * 1000;
        http_response_begin(x, 200, NULL, 0, 50 * 1000 * 1000);
        http_response_on_drain(x, fill);
        fill(x, f);
    } else if (strcmp(path, "/short") == 0) {
        http_response_begin(x, 200, NULL, 0, 10);
        http_response_write(x, "abc", 3);
        http_response_end(x);
    } else if (strcmp(path, "/cut") == 0) {
        http_response_begin(x, 200, NULL, 0, -1);
        http_response_write(x, "abc", 3);
        f->x = x;
    } else {
        f->x = x; /* answered by the test */
    }
}

static struct buf got;

static int ask(struct fixture *f, int fd, const char *request)
{
    fixture_send(f, fd, request);
    return fixture_recv(f, fd, &got);
}

static size_t times(const char *hay, const char *needle)
{
    size_t n = 0;

    for (const char *p = hay; (p = strstr(p, needle)); p += strlen(needle))
        n++;
    return n;
}

static const char *body_of(const struct buf *b)
{
    const char *end = b->data ? strstr(b->data, "\r\n\r\n") : NULL;

    return end ? end + 4 : "";
}

static void test_plain(void **state)
{
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    assert_int_equal(ask(&f, fd, R("/hello")), FIXTURE_OPEN);
    assert_ptr_equal(strstr(got.data, "HTTP/1.1 200 OK\r\n"), got.data);
    assert_string_equal(body_of(&got), "hello\n");
    assert_non_null(strstr(got.data, "Content-Length: 6\r\n"));
    assert_non_null(strstr(got.data, "\r\nDate: "));
    assert_null(strstr(got.data, "Connection:"));
    assert_int_equal(f.closes, 1);
    assert_int_equal(ask(&f, fd, "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n"), FIXTURE_OPEN);
    assert_string_equal(body_of(&got), "");
    assert_non_null(strstr(got.data, "Content-Length: 6\r\n"));
    assert_int_equal(ask(&f, fd, "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
                     FIXTURE_EOF);
    assert_non_null(strstr(got.data, "Connection: close\r\n"));
    close(fd);
    fixture_stop(&f);
}

/* A client that speaks TLS to a port that does not gets an alert that it understands, and nothing is read
 * as a request. */
static void test_tls_client(void **state)
{
    static const char hello[] = "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00";
    static const char alert[] = "\x15\x03\x01\x00\x02\x02\x28";
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    assert_int_equal(send(fd, hello, sizeof(hello) - 1, MSG_NOSIGNAL), sizeof(hello) - 1);
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_EOF);
    assert_int_equal(got.len, sizeof(alert) - 1);
    assert_memory_equal(got.data, alert, sizeof(alert) - 1);
    assert_int_equal(f.calls, 0);
    close(fd);
    fixture_stop(&f);
}

static void test_http10(void **state)
{
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    assert_int_equal(ask(&f, fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
                     FIXTURE_OPEN);
    assert_non_null(strstr(got.data, "Connection: keep-alive\r\n"));
    assert_int_equal(ask(&f, fd, "GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
                     FIXTURE_EOF);
    assert_null(strstr(got.data, "chunked"));
    assert_string_equal(body_of(&got), "onetwenty");
    close(fd);
    fixture_stop(&f);
}

static void test_pipelined(void **state)
{
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    assert_int_equal(
        ask(&f, fd,
            R("/hello") "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" R(
                "/chunks") R("/wait") R("/hello")),
        FIXTURE_OPEN);
    assert_int_equal(times(got.data, "HTTP/1.1 200"), 3);
    assert_non_null(strstr(got.data, "\r\n\r\nabcHTTP/1.1 200"));
    assert_non_null(strstr(got.data, "3\r\none\r\n6\r\ntwenty\r\n0\r\n\r\n"));
    assert_int_equal(f.calls, 4); /* the fifth waits for the fourth's answer */
    assert_non_null(f.x);
    http_respond(f.x, 200, NULL, 0, "late", 4);
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_OPEN);
    assert_int_equal(times(got.data, "HTTP/1.1 200"), 2);
    assert_int_equal(f.calls, 5);
    assert_int_equal(f.closes, 5);
    close(fd);
    fixture_stop(&f);
}

/* Every way to cut the bytes in two, and byte by byte: always the same answers. */
static void test_split(void **state)
{
    static const char request[] =
        "POST /echo?a=b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: t\r\n\r\n" R("/hello");
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    for (size_t cut = 0; cut < sizeof(request); cut++) {
        fd = fixture_client(&f);
        for (size_t i = 0; i < sizeof(request) - 1;) {
            size_t n = cut == 0 ? 1 : i == 0 ? cut : sizeof(request) - 1 - i;

            n = MIN(n, sizeof(request) - 1 - i);
            assert_int_equal(send(fd, request + i, n, MSG_NOSIGNAL), (ssize_t)n);
            fixture_spin(&f);
            i += n;
        }
        fixture_recv(&f, fd, &got);
        if (times(got.data, "HTTP/1.1 200") != 2)
            fail_msg("cut at %zu: %s", cut, got.data);
        assert_non_null(strstr(got.data, "\r\n\r\nhello world"));
        assert_non_null(strstr(got.data, "\r\n\r\nhello\n"));
        close(fd);
    }
    fixture_stop(&f);
}

static void test_collect_limits(void **state)
{
    struct fixture f;
    int fd;
    char request[400];

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    snprintf(request, sizeof(request),
             "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n%0101d", 7);
    assert_int_equal(ask(&f, fd, request),
                     FIXTURE_OPEN); /* short enough to be read and forgotten */
    assert_non_null(strstr(got.data, "HTTP/1.1 413 "));
    assert_non_null(strstr(got.data, "\"code\":413"));
    snprintf(request, sizeof(request),
             "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n%0101d\r\n"
             "0\r\n\r\n" R("/hello"),
             7);
    ask(&f, fd, request);
    assert_non_null(strstr(got.data, "HTTP/1.1 413 "));
    assert_int_equal(times(got.data, "HTTP/1.1 200"), 1);
    ask(&f, fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n");
    assert_non_null(strstr(got.data, "HTTP/1.1 413 "));
    assert_non_null(strstr(got.data, "Connection: close"));
    close(fd);
    fixture_stop(&f);
    assert_int_equal(f.closes, f.calls);
}

static void test_expect(void **state)
{
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    ask(&f, fd,
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_string_equal(got.data, "HTTP/1.1 100 Continue\r\n\r\n");
    ask(&f, fd, "abc");
    assert_string_equal(body_of(&got), "abc");
    ask(&f, fd,
        "POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_int_equal(times(got.data, "100 Continue"), 0);
    assert_non_null(strstr(got.data, "Connection: close")); /* unclear whether the body will come */
    close(fd);
    fd = fixture_client(&f);
    ask(&f, fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: tea\r\n\r\n");
    assert_non_null(strstr(got.data, "HTTP/1.1 417 "));
    close(fd);
    fixture_stop(&f);
}

static void test_unread_body(void **state)
{
    struct fixture f;
    int fd;
    static char big[300000];

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    ask(&f, fd, "POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345" R("/hello"));
    assert_int_equal(times(got.data, "HTTP/1.1 200"), 2);
    /* Too much to be worth reading: the answer arrives whole all the same. */
    fixture_send(&f, fd, "POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
    assert_true(send(fd, big, sizeof(big), MSG_NOSIGNAL | MSG_DONTWAIT) > 0);
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_EOF);
    assert_string_equal(body_of(&got), "hello\n");
    close(fd);
    fixture_stop(&f);
}

static void test_stream_and_pause(void **state)
{
    struct fixture f;
    static char piece[100000];
    size_t sent = 0, total = 20 * 1000 * 1000;
    uint32_t sum = 0;
    char want[64];
    int fd, stuck = 0;

    for (size_t i = 0; i < sizeof(piece); i++)
        piece[i] = (char)(i * 7 + i / 251);
    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    fixture_send(&f, fd, "POST /pausing HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n");
    /* Paused: the kernel's buffers fill and no more goes through. */
    while (stuck < 20) {
        size_t at = sent % sizeof(piece);
        ssize_t n = send(fd, piece + at, sizeof(piece) - at, MSG_NOSIGNAL | MSG_DONTWAIT);

        sent += n > 0 ? (size_t)n : 0;
        stuck = n > 0 ? 0 : stuck + 1;
        fixture_spin(&f);
    }
    assert_true(sent < total);
    assert_true(f.bytes <= f.config.read_buffer_bytes);
    while (sent < total || f.ends == 0) {
        size_t at = sent % sizeof(piece);
        size_t n = MIN(sizeof(piece) - at, total - sent);
        ssize_t r = n ? send(fd, piece + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

        sent += r > 0 ? (size_t)r : 0;
        if (f.x)
            http_body_resume(f.x);
        uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    for (size_t i = 0; i < total; i++)
        sum = sum * 31 + (unsigned char)piece[i % sizeof(piece)];
    fixture_recv(&f, fd, &got);
    snprintf(want, sizeof(want), "%zu %u", total, sum);
    assert_string_equal(body_of(&got), want);
    close(fd);
    fixture_stop(&f);
}

/* A client that does not read: the server stops at its high-water mark, goes on when it reads. */
static void test_back_pressure(void **state)
{
    struct fixture f;
    size_t total = 0;
    static char bytes[65536];
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    fixture_send(&f, fd, R("/big"));
    for (int i = 0; i < 200; i++)
        uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_true(f.bytes > 30 * 1000 * 1000); /* most was not even made yet */
    for (int quiet = 0; quiet < 1000 && total < 50000000;) {
        ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        uv_run(&f.loop, UV_RUN_NOWAIT);
        quiet = n > 0 ? 0 : quiet + 1;
        total += n > 0 ? (size_t)n : 0;
    }
    fixture_recv(&f, fd, &got);
    assert_in_range(total + got.len, 50000000, 50000400);
    assert_int_equal(f.closes, 1);
    close(fd);
    fixture_stop(&f);
}

/* A slow taker is served as long as it takes anything; then it is cut. */
static void test_slow_reader(void **state)
{
    struct http_server_config c;
    struct fixture f;
    static char bytes[300000];
    int fd;

    http_server_config_default(&c);
    c.write_timeout_ms = 500;
    fixture_start(&f, &c, handler);
    fd = fixture_client(&f);
    fixture_send(&f, fd, R("/big"));
    for (int i = 0; i < 14; i++) { /* longer than the timeout, all in all */
        assert_true(recv(fd, bytes, sizeof(bytes), 0) > 0);
        fixture_wait(&f, 60);
        assert_int_equal(f.closes, 0);
    }
    for (int i = 0; i < 50 && f.closes == 0; i++)
        fixture_wait(&f, 100);
    assert_int_equal(f.closes, 1);
    close(fd);
    fixture_stop(&f);
}

static void test_abort(void **state)
{
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    assert_int_not_equal(ask(&f, fd, R("/short")), FIXTURE_OPEN);
    assert_int_equal(f.closes, 1);
    close(fd);
    fd = fixture_client(&f);
    assert_int_equal(ask(&f, fd, R("/cut")), FIXTURE_OPEN);
    assert_non_null(strstr(got.data, "3\r\nabc\r\n"));
    http_exchange_abort(f.x);
    assert_int_equal(f.closes, 1); /* never from inside the call */
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_RST);
    assert_int_equal(f.closes, 2);
    close(fd);
    fixture_stop(&f);
}

static void test_timeouts(void **state)
{
    struct http_server_config c;
    struct fixture f;
    int slow, idle, body, unread;

    http_server_config_default(&c);
    c.head_timeout_ms = 100;
    c.idle_timeout_ms = 200;
    c.body_timeout_ms = 100;
    c.write_timeout_ms = 100;
    fixture_start(&f, &c, handler);
    slow = fixture_client(&f);
    idle = fixture_client(&f);
    body = fixture_client(&f);
    unread = fixture_client(&f);
    fixture_send(&f, unread, R("/big"));
    fixture_send(&f, body, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    for (int i = 0; i < 8; i++) { /* a byte now and then does not prolong a head */
        if (i < 4)
            fixture_send(&f, slow, "G");
        fixture_wait(&f, 20);
    }
    assert_int_equal(fixture_recv(&f, slow, &got), FIXTURE_EOF);
    assert_non_null(strstr(got.data, "HTTP/1.1 408 "));
    assert_int_equal(fixture_recv(&f, body, &got), FIXTURE_EOF);
    assert_non_null(strstr(got.data, "HTTP/1.1 408 "));
    for (int i = 0; i < 50 && f.closes < 2; i++)
        fixture_wait(&f, 100);
    assert_int_equal(fixture_recv(&f, idle, &got), FIXTURE_EOF);
    assert_int_equal(got.len, 0);
    assert_int_equal(f.closes, 2); /* body and unread */
    close(slow);
    close(idle);
    close(body);
    close(unread);
    fixture_wait(&f, 50);
    assert_int_equal(http_server_connections(f.server), 0);
    fixture_stop(&f);
}

static void test_head_too_large(void **state)
{
    struct fixture f;
    static char request[40000];
    int fd;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    snprintf(request, sizeof(request), "GET / HTTP/1.1\r\nHost: a\r\nX: %033000d\r\n\r\n", 1);
    assert_int_equal(ask(&f, fd, request), FIXTURE_EOF);
    assert_non_null(strstr(got.data, "HTTP/1.1 431 "));
    close(fd);
    fd = fixture_client(&f);
    memset(request, 'a', 33000); /* no line at all */
    request[33000] = '\0';
    assert_int_equal(ask(&f, fd, request), FIXTURE_EOF);
    assert_non_null(strstr(got.data, "HTTP/1.1 431 "));
    close(fd);
    fixture_stop(&f);
}

static int listen_tcp(struct sockaddr_in *a)
{
    socklen_t size = sizeof(*a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* left blocking */

    *a = (struct sockaddr_in){.sin_family = AF_INET};
    a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)a, sizeof(*a)), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)a, &size), 0);
    return fd;
}

static void test_max_connections(void **state)
{
    struct http_server_config c;
    struct sockaddr_in a;
    struct fixture f;
    int fds[3];

    http_server_config_default(&c);
    c.max_connections = 2;
    fixture_start(&f, &c, handler);
    assert_int_equal(http_server_listen(f.server, listen_tcp(&a)), 0);
    for (int i = 0; i < 3; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
        fixture_spin(&f);
    }
    assert_int_equal(http_server_connections(f.server), 2);
    assert_int_equal(fixture_recv(&f, fds[2], &got), FIXTURE_EOF);
    assert_non_null(strstr(got.data, "HTTP/1.1 503 "));
    ask(&f, fds[0], R("/hello"));
    assert_string_equal(body_of(&got), "hello\n");
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    fixture_stop(&f);
}

/* A client that holds all connections and sends nothing does not keep others out. */
static void test_idle_ones_make_room(void **state)
{
    struct http_server_config c;
    struct sockaddr_in a;
    struct fixture f;
    int fds[3];

    http_server_config_default(&c);
    c.max_connections = 2;
    fixture_start(&f, &c, handler);
    assert_int_equal(http_server_listen(f.server, listen_tcp(&a)), 0);
    for (int i = 0; i < 2; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
        fixture_spin(&f);
    }
    fixture_send(&f, fds[0], "GET /in"); /* in the middle of a request: not idle */
    usleep(1100 * 1000);
    uv_update_time(&f.loop);
    fds[2] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[2], (struct sockaddr *)&a, sizeof(a)), 0);
    fixture_spin(&f);
    ask(&f, fds[2], R("/hello"));
    assert_string_equal(body_of(&got), "hello\n");
    assert_int_equal(fixture_recv(&f, fds[1], &got), FIXTURE_EOF);
    assert_int_equal(got.len, 0);
    assert_int_equal(http_server_connections(f.server), 2);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    fixture_stop(&f);
}

/* -- owners ------------------------------------------------------------------------------------- */

static void count_release(void *owner)
{
    (*(int *)owner)++;
}

/* An owner's end comes with that of its exchange, and not with its answer where more of its body is
 * still to come. */
static void test_an_owner_ends_with_its_exchange(void **state)
{
    struct fixture f;
    int fd, released = 0;

    fixture_start(&f, NULL, handler);
    fd = fixture_client(&f);
    ask(&f, fd, "POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n123");
    assert_false(http_exchange_is_owned(f.x));
    http_exchange_own(f.x, &released, count_release);
    assert_true(http_exchange_is_owned(f.x));
    http_respond(f.x, 200, NULL, 0, "x", 1);
    fixture_recv(&f, fd, &got);
    assert_string_equal(body_of(&got), "x");
    assert_int_equal(released, 0);
    fixture_send(&f, fd, "45678");
    assert_int_equal(released, 1);
    ask(&f, fd, R("/wait")); /* the next on its connection has none */
    assert_false(http_exchange_is_owned(f.x));
    http_exchange_own(f.x, &released, count_release);
    http_exchange_abort(f.x);
    fixture_spin(&f);
    assert_int_equal(released, 2);
    close(fd);
    fixture_stop(&f);
}

/* A request without an owner ends at its time, and one that has an owner does not. */
static void test_a_request_without_an_owner_has_a_time(void **state)
{
    struct http_server_config c;
    struct fixture f;
    int with, without, released = 0;

    http_server_config_default(&c);
    c.owner_timeout_ms = 100;
    fixture_start(&f, &c, handler);
    with = fixture_client(&f);
    ask(&f, with, R("/wait"));
    http_exchange_own(f.x, &released, count_release);
    without = fixture_client(&f);
    ask(&f, without, R("/wait"));
    usleep(150 * 1000);
    uv_update_time(&f.loop);
    assert_int_equal(fixture_recv(&f, without, &got), FIXTURE_EOF);
    assert_non_null(strstr(got.data, "HTTP/1.1 408 "));
    close(without);
    fixture_spin(&f);
    assert_int_equal(http_server_connections(f.server), 1);
    assert_int_equal(released, 0);
    close(with);
    fixture_stop(&f);
    assert_int_equal(released, 1);
}

/* Half heads that hold all connections keep no new one out; a request that has an owner stays. */
static void test_half_heads_make_room_and_owned_ones_do_not(void **state)
{
    struct http_server_config c;
    struct sockaddr_in a;
    struct fixture f;
    int fds[4], released = 0;

    http_server_config_default(&c);
    c.max_connections = 2;
    fixture_start(&f, &c, handler);
    assert_int_equal(http_server_listen(f.server, listen_tcp(&a)), 0);
    for (int i = 0; i < 4; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
        fixture_spin(&f);
        if (i == 0) {
            ask(&f, fds[0], R("/wait"));
            http_exchange_own(f.x, &released, count_release);
        } else if (i == 1) {
            fixture_send(&f, fds[1], "GET /in");
        } else if (i == 2) { /* at once: the head may still come */
            assert_int_equal(fixture_recv(&f, fds[2], &got), FIXTURE_EOF);
            assert_non_null(strstr(got.data, "HTTP/1.1 503 "));
            usleep(1100 * 1000);
            uv_update_time(&f.loop);
        }
    }
    ask(&f, fds[3], R("/hello"));
    assert_string_equal(body_of(&got), "hello\n");
    assert_int_equal(fixture_recv(&f, fds[1], &got), FIXTURE_EOF);
    assert_int_equal(got.len, 0);
    assert_int_equal(released, 0);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    fixture_stop(&f);
    assert_int_equal(released, 1);
}

/* A client whose end and the server's hold as much as they may: the next answer stays here. */
static int stuffed_client(struct fixture *f)
{
    static const char junk[4096];
    int pair[2], small = 4096;

    fixture_tcp_pair(pair);
    setsockopt(pair[0], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    for (int quiet = 0; quiet < 10;) {
        if (send(pair[1], junk, sizeof(junk), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
            quiet = 0;
            continue;
        }
        quiet++;
        usleep(5000);
    }
    assert_int_equal(http_server_adopt(f->server, pair[1]), 0);
    return pair[0];
}

/* Its place is given back; that of an answer is its request's. */
static void test_a_refusal_that_is_not_taken_ends(void **state)
{
    struct http_server_config c;
    struct fixture f;
    int refused, answered, released = 0;

    http_server_config_default(&c);
    c.head_timeout_ms = 100;
    fixture_start(&f, &c, handler);
    answered = stuffed_client(&f);
    fixture_send(&f, answered, R("/wait"));
    http_exchange_own(f.x, &released, count_release);
    http_respond(f.x, 200, NULL, 0, "x", 1);
    fixture_spin(&f);
    refused = stuffed_client(&f);
    fixture_send(&f, refused, "GET /wait\n\n");
    assert_int_equal(http_server_connections(f.server), 2);
    usleep(150 * 1000);
    uv_update_time(&f.loop);
    fixture_spin(&f);
    assert_int_equal(http_server_connections(f.server), 1);
    assert_int_equal(released, 0);
    close(answered);
    close(refused);
    fixture_stop(&f);
    assert_int_equal(released, 1);
}

static void test_all_bodies_together(void **state)
{
    static const char post[] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n123";
    struct http_server_config c;
    struct fixture f;
    int fds[4];

    http_server_config_default(&c);
    c.collect_total_bytes = 10;
    fixture_start(&f, &c, handler);
    for (int i = 0; i < 3; i++) {
        fds[i] = fixture_client(&f);
        fixture_send(&f, fds[i], post);
    }
    fds[3] = fixture_client(&f);
    ask(&f, fds[3], post);
    assert_non_null(strstr(got.data, "HTTP/1.1 503 "));
    for (int i = 0; i < 3; i++) {
        close(fds[i]);
        fixture_spin(&f);
    }
    ask(&f, fds[3], "45678"); /* the rest of what was refused */
    ask(&f, fds[3], "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n12345678");
    assert_non_null(strstr(got.data, "HTTP/1.1 200 "));
    close(fds[3]);
    fixture_stop(&f);
    assert_int_equal(f.closes, f.calls);
}

/* With a thousand idle connections the process does nothing at all. */
static void test_idle_costs_nothing(void **state)
{
    struct fixture f;
    struct timespec before, after;
    int fds[400];
    uint64_t end;
    int turns = 0;

    fixture_start(&f, NULL, handler);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = fixture_client(&f);
        fixture_send(&f, fds[i], R("/hello"));
    }
    fixture_spin(&f);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    end = clock_mono_ms() + 300;
    while (clock_mono_ms() < end) { /* what a blocking loop would do, but with an end */
        struct pollfd p = {.fd = uv_backend_fd(&f.loop), .events = POLLIN};
        int timeout = uv_backend_timeout(&f.loop);

        assert_true(timeout < 0 || timeout > 1000);
        assert_int_equal(poll(&p, 1, (int)(end - clock_mono_ms())), 0);
        uv_run(&f.loop, UV_RUN_NOWAIT);
        turns++;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_true(turns <= 2);
    assert_true((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec <
                20000000L);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    fixture_stop(&f);
}

static void test_stop_with_grace(void **state)
{
    struct fixture f;
    int busy, idle;

    fixture_start(&f, NULL, handler);
    busy = fixture_client(&f);
    idle = fixture_client(&f);
    fixture_send(&f, busy, R("/wait"));
    http_server_stop(f.server, 10000, fixture_on_stopped, &f);
    assert_int_equal(fixture_recv(&f, idle, &got), FIXTURE_EOF);
    assert_false(f.stopped);
    http_respond(f.x, 200, NULL, 0, "done", 4);
    assert_int_equal(fixture_recv(&f, busy, &got), FIXTURE_EOF);
    assert_string_equal(body_of(&got), "done");
    assert_non_null(strstr(got.data, "Connection: close"));
    fixture_spin(&f);
    assert_true(f.stopped);
    close(busy);
    close(idle);
    uv_run(&f.loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

/* Each must be refused with 400, and the connection ended: later bytes cannot be trusted. */
/* A connection of a server's own listener, of which it is told nothing. */
static int connect_to(int listener)
{
    struct sockaddr_in name;
    socklen_t size = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(getsockname(listener, (struct sockaddr *)&name, &size), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&name, size), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* While it rests its connections are gone, with what was served on them; new ones wait. */
static void test_rests_and_goes_on(void **state)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct fixture f;

    fixture_start(&f, NULL, handler);
    assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(http_server_listen(f.server, listener), 0);
    int idle = connect_to(listener), served = connect_to(listener);
    assert_int_equal(ask(&f, idle, R("/hello")), FIXTURE_OPEN);
    fixture_send(&f, served, R("/wait"));
    assert_int_equal(http_server_connections(f.server), 2);
    http_server_rest(f.server);
    assert_int_equal(f.closes, 2);
    fixture_spin(&f);
    assert_int_equal(http_server_connections(f.server), 0);
    int waiting = connect_to(listener);
    assert_int_equal(ask(&f, waiting, R("/hello")), FIXTURE_OPEN);
    assert_int_equal(got.len, 0);
    assert_int_equal(http_server_connections(f.server), 0);
    http_server_go_on(f.server);
    assert_int_equal(fixture_recv(&f, waiting, &got), FIXTURE_OPEN);
    assert_string_equal(body_of(&got), "hello\n");
    close(idle);
    close(served);
    close(waiting);
    fixture_stop(&f);
}

static void test_smuggling(void **state)
{
    static const char *const bad[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:99999\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\x80: b\r\n\r\n",
        "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\nHost: a\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n",
        "get / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent_Length: 30\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent.Length: 30\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer_Encoding: chunked\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: "
        "chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: "
        "3\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0b"
        "chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, Host\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: content-length\r\n\r\n",
    };
    static const char *const bad_bodies[] = {
        "g\r\n\r\n",
        "\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "3;a\rb\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc\r\n0\r\n\n",
        "3\r\nabc\r\n0\r\nX : y\r\n\r\n",
        "3\r\nabc\r\n0\r\n x: y\r\n\r\n",
        "3\r\nabc\r\n0\r\nx: y\n\r\n",
        "fffffffffffffffff\r\nabc\r\n",
        "0000000000000000000000003\r\nabc\r\n0\r\n\r\n",
    };
    struct fixture f;
    char request[2048];
    int fd;

    fixture_start(&f, NULL, handler);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        fd = fixture_client(&f);
        snprintf(request, sizeof(request), "%s" R("/hello"), bad[i]);
        ask(&f, fd, request);
        if (!strstr(got.data, "HTTP/1.1 400 ") || times(got.data, "\r\nDate: ") != 1)
            fail_msg("case %zu: %s\n answered: %s", i, bad[i], got.data);
        close(fd);
    }
    assert_int_equal(f.calls, 0);
    for (size_t i = 0; i < ARRAY_SIZE(bad_bodies); i++) {
        fd = fixture_client(&f);
        snprintf(
            request, sizeof(request),
            "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s" R("/hello"),
            bad_bodies[i]);
        ask(&f, fd, request);
        if (!strstr(got.data, "HTTP/1.1 400 ") || times(got.data, "\r\nDate: ") != 1)
            fail_msg("body %zu: %s\n answered: %s", i, bad_bodies[i], got.data);
        close(fd);
    }
    fixture_stop(&f);
    assert_int_equal(f.closes, f.calls);
}

/* NUL bytes do not fit into C strings of the table above. */
static void test_nul(void **state)
{
    static const char bad[][48] = {
        "GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", "GET /\0 HTTP/1.1\r\nHost: aa\r\nX: \r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\0\r\nX: \r\n\r\n", "GET / HTTP/1.1\0\r\nHost: a\r\nX: \r\n\r\n"};
    struct fixture f;
    int fd;

    fixture_start(&f, NULL, handler);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        fd = fixture_client(&f);
        send(fd, bad[i], 35, 0);
        send(fd, "\r\n\r\n", 4, 0);
        fixture_recv(&f, fd, &got);
        assert_non_null(strstr(got.data, "HTTP/1.1 400 "));
        close(fd);
    }
    assert_int_equal(f.calls, 0);
    fixture_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_tls_client),
        cmocka_unit_test(test_http10),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_collect_limits),
        cmocka_unit_test(test_expect),
        cmocka_unit_test(test_unread_body),
        cmocka_unit_test(test_stream_and_pause),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_head_too_large),
        cmocka_unit_test(test_max_connections),
        cmocka_unit_test(test_an_owner_ends_with_its_exchange),
        cmocka_unit_test(test_a_request_without_an_owner_has_a_time),
        cmocka_unit_test(test_half_heads_make_room_and_owned_ones_do_not),
        cmocka_unit_test(test_a_refusal_that_is_not_taken_ends),
        cmocka_unit_test(test_idle_ones_make_room),
        cmocka_unit_test(test_all_bodies_together),
        cmocka_unit_test(test_idle_costs_nothing),
        cmocka_unit_test(test_stop_with_grace),
        cmocka_unit_test(test_rests_and_goes_on),
        cmocka_unit_test(test_smuggling),
        cmocka_unit_test(test_nul),
    };
    int r;

    buf_init(&got, 64u << 20);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    buf_free(&got);
    return r;
}
