/* The relay between a client and an upstream that the test plays by hand, and the one-shot client. */
#include "http_fixture.h"

#include <stdlib.h>

#include "http/client.h"
#include "http/relay.h"
#include "http/server_internal.h"

struct relay_test {
    struct fixture f;
    struct http_relay_options o;
    int up;      /* the upstream's end */
    int next_fd; /* what the handler relays to */
    int fails, breaks, reused, reused_fd;
    struct err why;
};

static struct buf got, seen;

static void on_close(struct http_exchange *x, void *data)
{
    struct relay_test *t = data;

    t->f.closes++;
}

static void on_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    struct relay_test *t = arg;

    t->fails++;
    t->why = *why;
    http_respond_error(x, why->code == ERR_TIMEOUT ? 504 : 502, "%s", why->text);
}

static void on_break(struct http_exchange *x, const struct err *why, void *arg)
{
    ((struct relay_test *)arg)->breaks++;
}

static void on_reusable(int fd, void *arg)
{
    struct relay_test *t = arg;

    t->reused++;
    t->reused_fd = fd;
}

static void handler(struct http_exchange *x, void *ctx)
{
    struct relay_test *t = CONTAINER_OF(ctx, struct relay_test, f);

    t->f.calls++;
    http_exchange_set(x, t, on_close);
    t->o.fd = t->next_fd;
    t->next_fd = -1;
    http_relay_start(x, &t->o);
}

/* The next request is relayed to this test's end of a new pair. */
static void new_upstream(struct relay_test *t)
{
    int pair[2];

    fixture_tcp_pair(pair);
    t->up = pair[0];
    t->next_fd = pair[1];
}

static int start_with(struct relay_test *t, const struct http_server_config *config)
{
    struct http_server_config c;

    http_server_config_default(&c);
    if (config)
        c = *config;
    c.relays = true;
    memset(t, 0, sizeof(*t));
    fixture_start(&t->f, &c, handler);
    t->o = (struct http_relay_options){
        .on_fail = on_fail, .on_break = on_break, .on_reusable = on_reusable, .arg = t};
    new_upstream(t);
    t->reused_fd = -1;
    return fixture_client(&t->f);
}

static int start(struct relay_test *t)
{
    return start_with(t, NULL);
}

/* As start, with a request without a body sent. */
static int start_get(struct relay_test *t)
{
    int fd = start(t);

    fixture_send(&t->f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    return fd;
}

static void end(struct relay_test *t, int fd)
{
    close(fd);
    if (t->up >= 0)
        close(t->up);
    if (t->reused_fd >= 0)
        close(t->reused_fd);
    fixture_spin(&t->f);
    assert_int_equal(http_server_connections(t->f.server), 0);
    assert_int_equal(t->f.closes, t->f.calls);
    fixture_stop(&t->f);
}

/* A relay that fails is begun anew on another upstream, where it may be. */
static void repeat_on_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    struct relay_test *t = arg;

    close(t->up);
    t->up = -1;
    if (t->fails > 0 || !http_relay_may_repeat(x)) {
        on_fail(x, why, arg);
        return;
    }
    t->fails++;
    new_upstream(t);
    t->o.fd = t->next_fd;
    t->next_fd = -1;
    http_relay_start(x, &t->o);
}

static void cut_upstream(struct relay_test *t)
{
    fixture_recv(&t->f, t->up, &seen);
    assert_int_equal(shutdown(t->up, SHUT_RDWR), 0);
    fixture_spin(&t->f);
}

static void test_without_a_body_it_may_be_begun_anew(void **state)
{
    struct relay_test t;
    int fd = start(&t);

    t.o.on_fail = repeat_on_fail;
    for (int i = 0; i < 2; i++) { /* and the client's connection goes on */
        t.fails = 0;
        fixture_send(&t.f, fd, "GET /again HTTP/1.1\r\nHost: a\r\n\r\n");
        cut_upstream(&t);
        fixture_recv(&t.f, t.up, &seen);
        assert_string_equal(seen.data, "GET /again HTTP/1.1\r\nHost: a\r\n\r\n");
        fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        fixture_recv(&t.f, fd, &got);
        assert_string_equal(got.data, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_int_equal(t.fails, 1);
        close(t.up);
        close(t.reused_fd);
        t.reused_fd = -1;
        new_upstream(&t);
    }
    close(t.next_fd);
    end(&t, fd);

    fd = start(&t);
    t.o.on_fail = repeat_on_fail;
    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    cut_upstream(&t);
    fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 502 "));
    end(&t, fd);
}

static void test_headers(void **state)
{
    static const struct http_header add[] = {{"X-Token", "ours"}, {"X-New", "n"}};
    static const char *const drop[] = {"x-secret", NULL};
    struct relay_test t;
    int fd = start(&t);

    t.o.add = add;
    t.o.add_count = 2;
    t.o.remove = drop;
    t.o.host = "inside:80";
    t.o.add_cors = true;
    fixture_send(&t.f, fd,
                 "POST /p?q HTTP/1.1\r\nHost: outside\r\nX-Token: theirs\r\nX-SECRET: s\r\n"
                 "Connection: x-hop, keep-alive\r\nX-Hop: h\r\nKeep-Alive: 5\r\nTE: trailers\r\n"
                 "Accept: */*\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    fixture_recv(&t.f, fd, &got);
    assert_string_equal(got.data, "HTTP/1.1 100 Continue\r\n\r\n");
    fixture_send(&t.f, fd, "abc");
    fixture_recv(&t.f, t.up, &seen);
    assert_string_equal(seen.data, "POST /p?q HTTP/1.1\r\nHost: inside:80\r\nAccept: */*\r\n"
                                   "Content-Length: 3\r\nX-Token: ours\r\nX-New: n\r\n\r\nabc");
    fixture_send(&t.f, t.up,
                 "HTTP/1.1 201 Whatever\r\nContent-Length: 2\r\nConnection: x-up\r\nX-Up: 1\r\n"
                 "X-Kept: 2\r\nAccess-Control-Allow-Origin: a\r\n\r\nok");
    fixture_recv(&t.f, fd, &got);
    assert_string_equal(got.data, "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nX-Kept: 2\r\n"
                                  "Access-Control-Allow-Origin: *\r\n\r\nok");
    assert_int_equal(t.reused, 1);
    end(&t, fd);
}

/* Chunks travel as they were sent, extensions and trailers too, at any split: but for a request's
 * trailers where they are to be left out. */
static void chunks(bool drop)
{
    static const char without[] = "3;e=1\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
    static const char body[] = "3;e=1\r\nabc\r\n1\r\nd\r\n0\r\nTrail: t\r\n\r\n";

    for (size_t cut = 0; cut < sizeof(body) - 1; cut++) {
        struct relay_test t;
        int fd = start(&t);
        char first[64];

        t.o.drop_trailers = drop;
        fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        snprintf(first, sizeof(first), "%.*s", (int)cut, body);
        fixture_send(&t.f, fd, first);
        fixture_send(&t.f, fd, body + cut);
        fixture_recv(&t.f, t.up, &seen);
        assert_string_equal(strstr(seen.data, "\r\n\r\n") + 4, drop ? without : body);
        fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        fixture_send(&t.f, t.up, first);
        fixture_send(&t.f, t.up, body + cut);
        fixture_recv(&t.f, fd, &got);
        assert_string_equal(strstr(got.data, "\r\n\r\n") + 4, body);
        assert_int_equal(t.reused, 1);
        end(&t, fd);
    }
}

static void test_chunks(void **state)
{
    chunks(false);
    chunks(true);
}

/* HTTP/1.0 has no chunks: they are taken off. */
static void test_http10_client(void **state)
{
    struct relay_test t;
    int fd = start(&t);

    fixture_send(&t.f, fd, "GET / HTTP/1.0\r\n\r\n");
    fixture_recv(&t.f, t.up, &seen);
    assert_string_equal(seen.data, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    fixture_send(&t.f, t.up,
                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_int_equal(fixture_recv(&t.f, fd, &got), FIXTURE_EOF);
    assert_string_equal(got.data, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc");
    end(&t, fd);
}

static void test_until_close(void **state)
{
    struct relay_test t;
    int fd = start_get(&t);

    fixture_send(&t.f, t.up, "HTTP/1.0 200 OK\r\n\r\nsome");
    assert_int_equal(fixture_recv(&t.f, fd, &got), FIXTURE_OPEN);
    fixture_send(&t.f, t.up, " more");
    shutdown(t.up, SHUT_WR);
    assert_int_equal(fixture_recv(&t.f, fd, &seen), FIXTURE_EOF);
    assert_string_equal(got.data, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsome");
    assert_string_equal(seen.data, " more");
    assert_int_equal(t.reused, 0);
    end(&t, fd);
}

static void test_bodyless(void **state)
{
    struct relay_test t;
    int fd = start(&t);

    fixture_send(&t.f, fd, "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    fixture_recv(&t.f, fd, &got);
    assert_string_equal(got.data, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n");
    assert_int_equal(t.reused, 1);
    close(t.reused_fd);
    close(t.up);
    new_upstream(&t);
    fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_send(&t.f, t.up, "HTTP/1.1 304\r\nContent-Length: 500\r\nETag:x\r\nX-Empty:\r\n\r\n");
    fixture_recv(&t.f, fd, &got);
    assert_string_equal(
        got.data,
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nETag: x\r\nX-Empty: \r\n\r\n");
    assert_int_equal(t.reused, 2);
    end(&t, fd);
}

static void test_interim(void **state)
{
    struct relay_test t;
    int fd = start_get(&t);

    fixture_send(&t.f, t.up,
                 "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                 "HTTP/1.1 204 No Content\r\n\r\n");
    fixture_recv(&t.f, fd, &got);
    assert_string_equal(
        got.data, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
    end(&t, fd);
}

/* An interim answer too many, and an end as with any other answer that cannot be read. */
static void test_interim_flood(void **state)
{
    static const char interim[] = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";

    for (int more = 0; more < 2; more++) {
        struct relay_test t;
        int fd = start_get(&t);

        for (int i = 0; i < 16 + more; i++)
            fixture_send(&t.f, t.up, interim);
        if (more == 0) /* the control */
            fixture_send(&t.f, t.up, "HTTP/1.1 204 No Content\r\n\r\n");
        fixture_recv(&t.f, fd, &got);
        assert_non_null(strstr(got.data, more == 0 ? "HTTP/1.1 204 " : "HTTP/1.1 502 "));
        assert_int_equal(t.fails, more);
        end(&t, fd);
    }
}

/* The answer comes while the request's body is still on its way; it must arrive whole. */
static void test_early_response(void **state)
{
    struct relay_test t;
    int fd = start(&t);

    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    fixture_send(&t.f, t.up, "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno");
    fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 413 Content Too Large\r\n"));
    assert_int_equal(t.reused, 0); /* it still waits for a body */
    assert_int_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_EOF);
    end(&t, fd);
}

static void test_upstream_breaks(void **state)
{
    static const char *const bad[] = {
        "",
        "HTTP/1.1 200",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
        "HTTP/2 200\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct relay_test t;
        int fd = start_get(&t);

        fixture_send(&t.f, t.up, bad[i]);
        shutdown(t.up, SHUT_WR);
        fixture_recv(&t.f, fd, &got);
        assert_non_null(strstr(got.data, "HTTP/1.1 502 "));
        assert_int_equal(t.fails, 1);
        end(&t, fd);
    }
}

/* All that comes until the connection is over, however long that takes. */
static int recv_to_end(struct relay_test *t, int fd)
{
    uint64_t end = clock_mono_ms() + 60000;
    char bytes[4096];
    ssize_t n = -1;

    buf_clear(&got);
    errno = EAGAIN;
    while (clock_mono_ms() < end && n != 0 && (n > 0 || errno == EAGAIN)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        fixture_spin(&t->f);
        poll(&p, 1, 2);
        n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n > 0)
            assert_int_equal(buf_append(&got, bytes, (size_t)n), 0);
    }
    return n == 0 ? FIXTURE_EOF : errno == EAGAIN ? FIXTURE_OPEN : FIXTURE_RST;
}

/* After the head there is no way to say so but to cut. */
static void test_cut_body(void **state)
{
    static const char *const bad[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct relay_test t;
        int fd = start_get(&t);

        fixture_send(&t.f, t.up, bad[i]);
        shutdown(t.up, SHUT_WR);
        assert_int_equal(recv_to_end(&t, fd), FIXTURE_RST);
        assert_int_equal(t.fails, 0);
        end(&t, fd);
    }
}

/* The part of an answer that came is read before the reset, also by a client whose kernel takes the
 * next piece only when it has read the last. */
static void test_cut_body_is_taken(void **state)
{
    static const char *const heads[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
    };
    static const struct linger reset = {1, 0};
    static char piece[6001];
    const int least = 1;

    memset(piece, 'x', sizeof(piece) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
        struct relay_test t;
        int fd = start_get(&t);

        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)), 0);
        fixture_send(&t.f, t.up, heads[i]);
        for (int n = 0; n < 10; n++)
            fixture_send(&t.f, t.up, piece);
        fixture_recv(&t.f, t.up, &seen);
        if (heads[i][17] == '\r') /* its end would be that of the answer */
            assert_int_equal(setsockopt(t.up, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
        close(t.up);
        t.up = -1;
        fixture_spin(&t.f);
        assert_int_equal(t.breaks, 1);
        assert_int_equal(recv_to_end(&t, fd), FIXTURE_RST);
        assert_non_null(strstr(got.data, "\r\n\r\n"));
        assert_int_equal(strspn(got.data + got.len - 60000, "x"), 60000);
        end(&t, fd);
    }
}

/* A client that goes, or takes nothing for long, holds no connection for the part that it was sent. */
static void test_cut_body_is_not_taken(void **state)
{
    static char piece[60001];
    struct http_server_config c;
    const int least = 1;

    memset(piece, 'x', sizeof(piece) - 1);
    http_server_config_default(&c);
    c.write_timeout_ms = 200;
    for (int leaves = 0; leaves < 2; leaves++) {
        struct relay_test t;
        int fd = start_with(&t, leaves ? NULL : &c);

        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)), 0);
        fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        for (int n = 0; n < 2; n++)
            fixture_send(&t.f, t.up, piece);
        shutdown(t.up, SHUT_WR);
        fixture_recv(&t.f, t.up, &seen);
        assert_int_equal(http_server_connections(t.f.server), 1);
        if (leaves)
            shutdown(fd, SHUT_RDWR), close(fd);
        for (int n = 0; n < 30000 && http_server_connections(t.f.server) > 0; n++)
            fixture_wait(&t.f, 2);
        assert_int_equal(http_server_connections(t.f.server), 0);
        end(&t, leaves ? dup(t.up) : fd);
    }
}

/* Before an answer has begun, in the middle of one whose length is known, and in the middle of a stream. */
static void test_client_leaves(void **state)
{
    static const char *const answers[] = {
        "", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.0 200 OK\r\n\r\nabc"};
    struct http_server_config c;
    struct relay_test t;

    http_server_config_default(&c);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        int fd, how = FIXTURE_OPEN;

        c.half_timeout_ms = i < 2 ? 50 : 60000;
        c.half_stream_timeout_ms = 60000; /* in its middle it is known at once */
        fd = start_with(&t, &c);
        fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        fixture_send(&t.f, t.up, answers[i]);
        assert_int_equal(fixture_recv(&t.f, fd, &got), FIXTURE_OPEN);
        fixture_wait(&t.f, 100);
        assert_int_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_OPEN); /* the control */
        close(fd);
        for (int n = 0; n < 500 && how == FIXTURE_OPEN; n++)
            how = fixture_recv(&t.f, t.up, &seen);
        assert_int_not_equal(how, FIXTURE_OPEN);
        end(&t, -1);
    }
}

/* It gets its answer all the same. */
static void test_client_ends_its_side(void **state)
{
    struct relay_test t;
    int fd = start_get(&t);

    assert_int_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_OPEN);
    shutdown(fd, SHUT_WR);
    fixture_spin(&t.f);
    fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    fixture_send(&t.f, t.up, "3\r\ndef\r\n0\r\n\r\n");
    assert_int_equal(fixture_recv(&t.f, fd, &got), FIXTURE_EOF);
    assert_non_null(strstr(got.data, "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"));
    end(&t, fd);
}

static void test_connect_fails(void **state)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(1)};
    struct relay_test t;
    int fd = start(&t);

    close(t.next_fd);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    t.next_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    t.o.connecting = connect(t.next_fd, (struct sockaddr *)&a, sizeof(a)) < 0 &&
                     errno == EINPROGRESS;
    t.o.connect_timeout_ms = 1000;
    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 502 "));
    assert_int_equal(t.why.code, ERR_UNAVAILABLE);
    end(&t, fd);
    fd = start(&t); /* not a socket: fails, and not from inside the call */
    close(t.next_fd);
    t.next_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 502 "));
    assert_int_equal(t.fails, 1);
    end(&t, fd);
}

static void test_head_timeout(void **state)
{
    struct relay_test t;
    int fd = start(&t);

    t.o.head_timeout_ms = 30;
    fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_wait(&t.f, 80);
    fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 504 "));
    end(&t, fd);

    /* A client that takes its time with the body has all of it; the upstream's begins then. */
    fd = start(&t);
    t.o.head_timeout_ms = 30;
    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    fixture_wait(&t.f, 80);
    assert_int_equal(t.fails, 0);
    fixture_send(&t.f, fd, "def");
    fixture_wait(&t.f, 80);
    fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 504 "));
    assert_int_equal(t.fails, 1);
    end(&t, fd);
}

static const char upgrade[] = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n"
                              "Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";

static void test_tunnel(void **state)
{
    struct relay_test t;
    int fd = start(&t);

    fixture_send(&t.f, fd, upgrade);
    fixture_recv(&t.f, t.up, &seen);
    assert_string_equal(seen.data, "GET /ws HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Key: k\r\n"
                                   "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    fixture_send(&t.f, t.up,
                 "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                 "Sec-WebSocket-Accept: z\r\n\r\nfirst");
    fixture_recv(&t.f, fd, &got);
    assert_string_equal(got.data, "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: z\r\n"
                                  "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst");
    fixture_send(&t.f, fd, "to server");
    fixture_recv(&t.f, t.up, &seen);
    assert_string_equal(seen.data, "to server");
    /* A direction ends, the other goes on. */
    shutdown(fd, SHUT_WR);
    assert_int_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_EOF);
    fixture_send(&t.f, t.up, "last words");
    assert_int_equal(fixture_recv(&t.f, fd, &got), FIXTURE_OPEN);
    assert_string_equal(got.data, "last words");
    shutdown(t.up, SHUT_WR);
    assert_int_equal(fixture_recv(&t.f, fd, &got), FIXTURE_EOF);
    fixture_spin(&t.f);
    assert_int_equal(t.f.closes, 1);
    end(&t, fd);
}

static void test_tunnel_ends(void **state)
{
    struct relay_test t;
    int fd = start(&t);

    /* The upstream ends first, then the client answers and ends. */
    fixture_send(&t.f, fd, upgrade);
    fixture_send(&t.f, t.up, "HTTP/1.1 101 Switching Protocols\r\n\r\nbye");
    shutdown(t.up, SHUT_WR);
    assert_int_equal(fixture_recv(&t.f, fd, &got), FIXTURE_EOF);
    fixture_send(&t.f, fd, "bye too");
    shutdown(fd, SHUT_WR);
    assert_int_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_EOF);
    assert_non_null(strstr(seen.data, "bye too"));
    end(&t, fd);
    /* The client breaks off. */
    fd = start(&t);
    fixture_send(&t.f, fd, upgrade);
    fixture_send(&t.f, t.up, "HTTP/1.1 101 Switching Protocols\r\n\r\n");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(fd);
    assert_int_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_EOF);
    end(&t, -1);
    /* Not an upgrade that is passed on: HTTP/2 would be a second, unchecked protocol. */
    fd = start(&t);
    fixture_send(&t.f, fd,
                 "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                 "Upgrade: h2c\r\nHTTP2-Settings: AAM\r\n\r\n");
    fixture_recv(&t.f, t.up, &seen);
    assert_string_equal(seen.data, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    end(&t, fd);
}

/* 100 MiB each way at the same time through slow ends: equal to the last byte, and never much held. */
static void test_big_both_ways(void **state)
{
    enum { TOTAL = 100 << 20, PIECE = 1 << 16 };
    static unsigned char out_piece[PIECE], in_piece[PIECE];
    size_t sent = 0, answered = 0, up_got = 0, down_got = 0;
    uint64_t up_sum = 0, down_sum = 0, want = 0;
    struct relay_test t;
    int fd = start(&t);
    bool up_head = false, down_head = false;

    for (size_t i = 0; i < PIECE; i++)
        out_piece[i] = (unsigned char)(i * 13 + i / 255);
    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n");
    for (int i = 0; i < 4000000 && (up_got < TOTAL || down_got < TOTAL); i++) {
        struct {
            int to, from;
            size_t *sent, *got;
            uint64_t *sum;
            bool *head;
        } ways[2] = {{fd, t.up, &sent, &up_got, &up_sum, &up_head},
                     {t.up, fd, &answered, &down_got, &down_sum, &down_head}};

        for (int w = 0; w < 2; w++) {
            size_t at = *ways[w].sent % PIECE, skip = 0;
            ssize_t n = *ways[w].sent < TOTAL ? send(ways[w].to, out_piece + at, PIECE - at,
                                                     MSG_DONTWAIT | MSG_NOSIGNAL)
                                              : 0;

            *ways[w].sent += n > 0 ? (size_t)n : 0;
            n = recv(ways[w].from, in_piece, PIECE, MSG_DONTWAIT);
            if (n <= 0)
                continue;
            if (!*ways[w].head) { /* it arrives in one piece: the test waits for it */
                char *end_of_head = memmem(in_piece, (size_t)n, "\r\n\r\n", 4);

                assert_non_null(end_of_head);
                skip = (size_t)(end_of_head + 4 - (char *)in_piece);
                *ways[w].head = true;
            }
            for (size_t k = skip; k < (size_t)n; k++)
                *ways[w].sum += (uint64_t)in_piece[k] * ((*ways[w].got + k - skip) % 65521 + 1);
            *ways[w].got += (size_t)n - skip;
        }
        uv_run(&t.f.loop, UV_RUN_NOWAIT);
    }
    for (size_t k = 0; k < TOTAL; k++)
        want += (uint64_t)out_piece[k % PIECE] * (k % 65521 + 1);
    assert_int_equal(up_got, TOTAL);
    assert_int_equal(down_got, TOTAL);
    assert_true(up_sum == want && down_sum == want);
    fixture_spin(&t.f);
    assert_int_equal(t.reused, 1);
    end(&t, fd);
}

/* Sends until nothing more goes through. */
static void push(struct fixture *f, int fd)
{
    static const char piece[1 << 16];

    for (int stuck = 0; stuck < 20;) {
        ssize_t n = send(fd, piece, sizeof(piece), MSG_DONTWAIT | MSG_NOSIGNAL);

        stuck = n > 0 ? 0 : stuck + 1;
        fixture_spin(f);
    }
}

/* A request's head with a body of n bytes, the body, and whatever follows, in one buffer. */
static void make_body(struct buf *out, const char *head, size_t n, const char *behind)
{
    buf_clear(out);
    assert_int_equal(buf_printf(out, "%sContent-Length: %zu\r\n\r\n", head, n), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_append(out, &(char){(char)(i * 7 + i / 256)}, 1), 0);
    assert_int_equal(buf_append_str(out, behind), 0);
}

static void send_buf(struct fixture *f, int fd, const struct buf *b)
{
    for (size_t at = 0; at < b->len;) {
        ssize_t n = send(fd, b->data + at, b->len - at, MSG_DONTWAIT | MSG_NOSIGNAL);

        assert_true(n > 0 || errno == EAGAIN);
        at += n > 0 ? (size_t)n : 0;
        fixture_spin(f);
    }
}

static void check_same(const struct buf *a, const struct buf *b, size_t b_from, size_t n)
{
    assert_true(a->len >= n && b->len >= b_from + n);
    assert_memory_equal(a->data + a->len - n, b->data + b_from, n);
}

/* Bodies that go through the pipe end where they end: a second request right behind the first is one of its
 * own, and bytes behind an answer are of no request. Lengths around what is worth the pipe. */
static void test_passes(void **state)
{
    static const size_t lengths[] = {PASS_MIN_BYTES - 1, PASS_MIN_BYTES, PASS_MIN_BYTES + 1, 300000,
                                     1 << 20};
    static const char next[] = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    struct buf body CLEANUP_BUF;

    buf_init(&body, 4u << 20);
    for (size_t i = 0; i < 2 * ARRAY_SIZE(lengths); i++) {
        size_t n = lengths[i / 2];
        bool overrun = i % 2;
        struct relay_test t;
        int fd = start(&t), up;

        make_body(&body, "POST / HTTP/1.1\r\nHost: a\r\n", n, next);
        send_buf(&t.f, fd, &body);
        fixture_recv(&t.f, t.up, &seen);
        check_same(&seen, &body, body.len - strlen(next) - n, n);
        make_body(&body, "HTTP/1.1 200 OK\r\n", n, overrun ? "HTTP/1.1 200 OK\r\n" : "");
        up = t.up;
        new_upstream(&t);
        send_buf(&t.f, up, &body);
        close(up);
        fixture_recv(&t.f, fd, &got);
        check_same(&got, &body, body.len - n - (overrun ? strlen("HTTP/1.1 200 OK\r\n") : 0), n);
        assert_int_equal(t.f.calls, 2);
        assert_int_equal(t.reused, overrun ? 0 : 1);
        assert_int_equal(t.f.server->pass.passed > 0, n > 2 * PASS_MIN_BYTES);
        assert_int_equal(t.f.server->pass.held, 0);
        end(&t, fd);
    }
}

/* The same bytes where there is no pipe to be had. */
static void test_passes_without_a_pipe(void **state)
{
    struct buf body CLEANUP_BUF;
    struct relay_test t;
    int fd = start(&t);

    buf_init(&body, 4u << 20);
    t.f.server->pass.off = true;
    make_body(&body, "POST / HTTP/1.1\r\nHost: a\r\n", 1 << 20, "");
    send_buf(&t.f, fd, &body);
    fixture_recv(&t.f, t.up, &seen);
    check_same(&seen, &body, body.len - (1 << 20), 1 << 20);
    make_body(&body, "HTTP/1.1 200 OK\r\n", 1 << 20, "");
    send_buf(&t.f, t.up, &body);
    fixture_recv(&t.f, fd, &got);
    assert_memory_equal(got.data, body.data, 17);
    check_same(&got, &body, body.len - (1 << 20), 1 << 20);
    assert_int_equal(t.f.server->pass.passed, 0);
    end(&t, fd);
}

/* A side breaks off with bytes under way: nothing of them is there for the next. */
static void test_passing_breaks(void **state)
{
    static const struct linger reset = {1, 0};
    struct buf body CLEANUP_BUF;
    struct relay_test t;
    int fd = start(&t);

    buf_init(&body, 4u << 20);
    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    push(&t.f, fd); /* the upstream takes nothing */
    setsockopt(t.up, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(t.up);
    push(&t.f, fd);
    fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "HTTP/1.1 502 "));
    close(fd);
    fixture_spin(&t.f);
    for (int i = 0; i < 2; i++) { /* the client, in the middle of its body and of its answer */
        new_upstream(&t);
        fd = fixture_client(&t.f);
        fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
        fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n");
        push(&t.f, i == 0 ? fd : t.up);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
        push(&t.f, t.up);
        assert_int_not_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_OPEN);
        close(t.up);
    }
    new_upstream(&t);
    fd = fixture_client(&t.f);
    make_body(&body, "POST / HTTP/1.1\r\nHost: a\r\n", 300000, "");
    send_buf(&t.f, fd, &body);
    fixture_recv(&t.f, t.up, &seen);
    check_same(&seen, &body, body.len - 300000, 300000);
    assert_int_equal(t.f.server->pass.held, 0);
    end(&t, fd);
}

/* An upstream that takes nothing: bytes that wait for it are bounded, and so are those for a
 * client. */
static void test_window(void **state)
{
    static char piece[1 << 16];
    struct relay_test t;
    size_t sent = 0;
    int fd = start(&t), stuck = 0;

    setsockopt(t.up, SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int));
    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
    while (stuck < 50) {
        ssize_t n = send(fd, piece, sizeof(piece), MSG_DONTWAIT | MSG_NOSIGNAL);

        sent += n > 0 ? (size_t)n : 0;
        stuck = n > 0 ? 0 : stuck + 1;
        fixture_spin(&t.f);
    }
    assert_true(sent < 32u << 20); /* the rest of it is in the kernel's own buffers */
    end(&t, fd);
}

/* An upstream that takes nothing any more: that ends too, and not while it still takes something. */
static void test_stuck(void **state)
{
    static char piece[1 << 16];
    struct http_server_config c;
    struct relay_test t;
    int fd;

    for (int tunnel = 0; tunnel < 2; tunnel++) {
        http_server_config_default(&c);
        c.write_timeout_ms = 300;
        fd = start_with(&t, &c);
        fixture_send(&t.f, fd,
                     tunnel ? upgrade
                            : "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n");
        if (tunnel)
            fixture_send(&t.f, t.up, "HTTP/1.1 101 Switching Protocols\r\n\r\n");
        push(&t.f, fd);
        for (int i = 0; i < 8; i++) { /* longer than the timeout, all in all */
            for (int k = 0; k < 16; k++)
                assert_true(recv(t.up, piece, sizeof(piece), 0) > 0);
            push(&t.f, fd);
            fixture_wait(&t.f, 60);
            assert_int_equal(t.f.closes, 0);
            assert_int_equal(t.fails, 0);
        }
        for (int i = 0; i < 50 && t.fails == 0 && t.f.closes == 0; i++)
            fixture_wait(&t.f, 100);
        if (!tunnel)
            assert_int_equal(t.why.code, ERR_TIMEOUT);
        close(fd);
        fixture_spin(&t.f);
        end(&t, -1);
    }
}

/* -- the client ---------------------------------------------------------------------------------- */

struct call {
    int calls, status, kept_fd;
    bool keep;
    enum err_code why;
    char body[256];
};

static void on_done(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why, int *fd)
{
    struct call *c = arg;

    c->calls++;
    c->why = why ? why->code : ERR_OK;
    c->status = head ? head->status : 0;
    snprintf(c->body, sizeof(c->body), "%s", head ? body : "");
    c->kept_fd = c->keep ? *fd : -1;
    if (c->keep)
        *fd = -1;
}

static int call(struct fixture *f, struct call *c, size_t max, uint64_t timeout_ms)
{
    static const struct http_header h = {"X-A", "b"};
    struct http_client_request r = {.method = "POST",
                                    .target = "/t",
                                    .host = "h",
                                    .headers = &h,
                                    .header_count = 1,
                                    .body = "body",
                                    .body_len = 4,
                                    .max_response_bytes = max,
                                    .timeout_ms = timeout_ms,
                                    .done = on_done,
                                    .arg = c};
    int pair[2];

    fixture_tcp_pair(pair);
    r.fd = pair[1];
    assert_int_equal(http_client_send(&f->loop, &r), 0);
    fixture_spin(f);
    return pair[0];
}

static void test_client(void **state)
{
    static const struct {
        const char *answer;
        bool end;
        int status;
        const char *body;
        enum err_code why;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", false, 200, "ok", ERR_OK},
        {"HTTP/1.1 204 No Content\r\n\r\n", false, 204, "", ERR_OK},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
         "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
         false, 200, "abc", ERR_OK},
        {"HTTP/1.0 200 OK\r\n\r\nuntil close", true, 200, "until close", ERR_OK},
        {"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok", true, 0, "", ERR_UNAVAILABLE},
        {"", true, 0, "", ERR_UNAVAILABLE},
        {"junk\r\n\r\n", false, 0, "", ERR_INTERNAL},
        {"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n"
         "012345678901234567890123456789012345678901234567890123456789",
         false, 0, "", ERR_TOO_LARGE},
        {NULL, false, 0, "", ERR_TIMEOUT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct call c = {.keep = i == 0};
        struct fixture f;
        int up;

        fixture_start(&f, NULL, handler);
        up = call(&f, &c, 50, cases[i].answer ? 5000 : 20);
        fixture_recv(&f, up, &seen);
        assert_string_equal(
            seen.data, "POST /t HTTP/1.1\r\nHost: h\r\nX-A: b\r\nContent-Length: 4\r\n\r\nbody");
        if (cases[i].answer)
            fixture_send(&f, up, cases[i].answer);
        else
            fixture_wait(&f, 50);
        if (cases[i].end)
            shutdown(up, SHUT_WR);
        fixture_recv(&f, up, &seen);
        assert_int_equal(c.calls, 1);
        assert_int_equal(c.why, cases[i].why);
        assert_int_equal(c.status, cases[i].status);
        assert_string_equal(c.body, cases[i].body);
        if (c.keep)
            assert_true(c.kept_fd >= 0 && close(c.kept_fd) == 0);
        close(up);
        fixture_stop(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_without_a_body_it_may_be_begun_anew),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_http10_client),
        cmocka_unit_test(test_until_close),
        cmocka_unit_test(test_bodyless),
        cmocka_unit_test(test_interim),
        cmocka_unit_test(test_interim_flood),
        cmocka_unit_test(test_early_response),
        cmocka_unit_test(test_upstream_breaks),
        cmocka_unit_test(test_cut_body),
        cmocka_unit_test(test_cut_body_is_taken),
        cmocka_unit_test(test_cut_body_is_not_taken),
        cmocka_unit_test(test_client_leaves),
        cmocka_unit_test(test_client_ends_its_side),
        cmocka_unit_test(test_connect_fails),
        cmocka_unit_test(test_head_timeout),
        cmocka_unit_test(test_tunnel),
        cmocka_unit_test(test_tunnel_ends),
        cmocka_unit_test(test_big_both_ways),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_passes_without_a_pipe),
        cmocka_unit_test(test_passing_breaks),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_stuck),
        cmocka_unit_test(test_client),
    };
    int r;

    buf_init(&got, 64u << 20);
    buf_init(&seen, 64u << 20);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    buf_free(&got);
    buf_free(&seen);
    return r;
}
