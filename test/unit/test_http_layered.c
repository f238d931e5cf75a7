/* Connections that have a layer from the start, towards a client and towards an upstream, and
 * a relay with a filter. The layer is one that the test can read: each byte with a bit turned
 * over, and a byte that announces the end. */
#include "http_fixture.h"

#include <stdlib.h>

#include "base/util.h"
#include "http/client.h"
#include "http/relay.h"

#define TURNED 0x80
#define END    4 /* turned: the end is announced */

static struct buf got, seen;

/* -- the layer --------------------------------------------------------------------------------- */

struct fake {
    int fd, closed;
    bool shut;
};

static void turn_over(char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)(bytes[i] ^ TURNED);
}

static ssize_t fake_read(void *layer, void *out, size_t n, bool *end)
{
    struct fake *l = layer;
    ssize_t len = recv(l->fd, out, n, MSG_DONTWAIT);

    assert_true(n >= HTTP_LAYER_READ_BYTES);
    if (len <= 0)
        return len == 0 ? -ENODATA : errno == EAGAIN ? -EAGAIN : -ECONNRESET;
    turn_over(out, (size_t)len);
    *end |= ((char *)out)[len - 1] == END;
    return *end ? len - 1 : len;
}

static ssize_t fake_write(void *layer, const struct iovec *iov, int n)
{
    struct fake *l = layer;
    char bytes[4096];
    size_t len = MIN(iov->iov_len, sizeof(bytes));
    ssize_t sent;

    memcpy(bytes, iov->iov_base, len);
    turn_over(bytes, len);
    sent = send(l->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN)
        return -EINPROGRESS; /* layer.h: -EAGAIN would wait for something to read */
    return sent < 0 ? -errno : sent;
}

static int fake_shut(void *layer)
{
    struct fake *l = layer;
    char end = (char)(END ^ TURNED);

    if (!l->shut)
        (void)!send(l->fd, &end, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    l->shut = true;
    return 0;
}

static void fake_close(void *layer)
{
    ((struct fake *)layer)->closed++;
}

static const struct http_layer_ops fake_ops = {
    .read = fake_read, .write = fake_write, .shut = fake_shut, .close = fake_close};

static void send_turned(struct fixture *f, int fd, const char *text)
{
    CLEANUP_FREE char *bytes = strdup(text);

    turn_over(bytes, strlen(text));
    assert_int_equal(send(fd, bytes, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    fixture_spin(f);
}

static int recv_turned(struct fixture *f, int fd, struct buf *out)
{
    int how = fixture_recv(f, fd, out);

    turn_over(out->data, out->len);
    return how;
}

/* -- towards a client -------------------------------------------------------------------------- */

static void answer(struct http_exchange *x, void *ctx)
{
    struct fixture *f = ctx;

    f->calls++;
    http_exchange_set(x, f, fixture_on_close);
    http_respond(x, 200, NULL, 0, "ok", 2);
}

static void wait_with_it(struct http_exchange *x, void *ctx)
{
    struct fixture *f = ctx;

    f->calls++;
    f->x = x;
    http_exchange_set(x, f, fixture_on_close);
}

static int start_server(struct fixture *f, http_handler handler, struct fake *l)
{
    struct http_server_config c;
    int pair[2];

    http_server_config_default(&c);
    c.adopts_layers = true;
    fixture_start(f, &c, handler);
    fixture_tcp_pair(pair);
    *l = (struct fake){.fd = pair[1]};
    assert_int_equal(http_server_adopt_layer(f->server, pair[1], 7, &fake_ops, l), 0);
    return pair[0];
}

/* The end is announced, and the socket stays until the client has closed its own. */
static void test_client_closes_last(void **state)
{
    struct fixture f;
    struct fake l;
    int fd = start_server(&f, answer, &l);

    send_turned(&f, fd, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    recv_turned(&f, fd, &got);
    assert_non_null(strstr(got.data, "\r\n\r\nok"));
    send_turned(&f, fd, "GET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_int_equal(recv_turned(&f, fd, &got), FIXTURE_EOF);
    assert_int_equal(got.data[got.len - 1], END);
    assert_int_equal(http_server_connections(f.server), 1);
    send_turned(&f, fd, "what it sends still");
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_EOF); /* and no reset */
    close(fd);
    fixture_spin(&f);
    assert_int_equal(http_server_connections(f.server), 0);
    assert_int_equal(l.closed, 1);
    assert_int_equal(f.calls, 2);
    fixture_stop(&f);
}

/* While its request is served. */
static void client_ends(bool announced)
{
    struct fixture f;
    struct fake l;
    int fd = start_server(&f, wait_with_it, &l);

    send_turned(&f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(f.calls, 1);
    if (announced)
        send_turned(&f, fd, "\4");
    shutdown(fd, SHUT_WR);
    fixture_spin(&f);
    assert_int_equal(f.closes, !announced);
    if (announced) {
        http_respond(f.x, 200, NULL, 0, "ok", 2);
        recv_turned(&f, fd, &got);
        assert_non_null(strstr(got.data, "\r\n\r\nok"));
    }
    close(fd);
    fixture_spin(&f);
    assert_int_equal(l.closed, 1);
    fixture_stop(&f);
}

static void test_client_ends(void **state)
{
    client_ends(true);
    client_ends(false);
}

/* -- towards an upstream ----------------------------------------------------------------------- */

struct relayed {
    struct fixture f;
    struct http_relay_options o;
    struct fake l, client;
    int up, fails, breaks, reused;
};

static void on_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    ((struct relayed *)arg)->fails++;
    http_respond_error(x, 502, "%s", why->text);
}

static void on_break(struct http_exchange *x, const struct err *why, void *arg)
{
    ((struct relayed *)arg)->breaks++;
}

static void on_reusable(int fd, void *arg)
{
    struct relayed *t = arg;

    assert_int_equal(fd, t->o.fd);
    t->reused++;
}

static void relay(struct http_exchange *x, void *ctx)
{
    struct relayed *t = CONTAINER_OF(ctx, struct relayed, f);

    t->f.calls++;
    http_exchange_set(x, &t->f, fixture_on_close);
    http_relay_start(x, &t->o);
}

static int start_relay(struct relayed *t, bool layer)
{
    struct http_server_config c;
    int pair[2];

    http_server_config_default(&c);
    c.relays = c.adopts_layers = true;
    memset(t, 0, sizeof(*t));
    fixture_start(&t->f, &c, relay);
    fixture_tcp_pair(pair);
    t->up = pair[0];
    t->l.fd = pair[1];
    t->o = (struct http_relay_options){.fd = pair[1],
                                       .on_fail = on_fail,
                                       .on_break = on_break,
                                       .on_reusable = on_reusable,
                                       .arg = t};
    if (layer) {
        t->o.layer = &t->l;
        t->o.layer_ops = &fake_ops;
    }
    return fixture_client(&t->f);
}

static void end_relay(struct relayed *t, int fd)
{
    close(fd);
    close(t->up);
    if (t->reused > 0)
        close(t->o.fd);
    fixture_spin(&t->f);
    fixture_stop(&t->f);
}

/* Many bytes each way, more than any buffer: nothing goes around the layer. The layer is given back
 * with the socket. */
static void test_upstream_layer(void **state)
{
    enum { LEN = 400000 };
    char *body = malloc(LEN + 1);
    struct relayed t;
    int fd = start_relay(&t, true);

    memset(body, 'b', LEN);
    body[LEN] = '\0';
    fixture_send(&t.f, fd, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n");
    for (int i = 0; i < LEN; i += LEN / 10) {
        assert_int_equal(send(fd, body + i, LEN / 10, MSG_NOSIGNAL), LEN / 10);
        recv_turned(&t.f, t.up, &seen);
        assert_ptr_equal(memchr(seen.data, 'b' ^ TURNED, seen.len), NULL);
    }
    send_turned(&t.f, t.up, "HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n");
    fixture_recv(&t.f, fd, &got);
    for (int i = 0; i < LEN; i += LEN / 10) {
        CLEANUP_FREE char *part = strndup(body, LEN / 10);

        send_turned(&t.f, t.up, part);
        fixture_recv(&t.f, fd, &got);
        assert_int_equal(got.len, LEN / 10);
        assert_int_equal(strspn(got.data, "b"), LEN / 10);
    }
    assert_int_equal(t.reused, 1);
    assert_int_equal(t.l.closed, 0);
    end_relay(&t, fd);
    free(body);
}

/* Beside the last bytes, on a socket that stays open: the answer is whole, and it is not used
 * again. */
static void test_upstream_announces_its_end(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\n\r\nto the end\4",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nto the end\4"};

    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct relayed t;
        int fd = start_relay(&t, true);

        fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        send_turned(&t.f, t.up, answers[i]);
        assert_int_equal(fixture_recv(&t.f, fd, &got), i == 0 ? FIXTURE_EOF : FIXTURE_OPEN);
        assert_non_null(strstr(got.data, "\r\n\r\nto the end"));
        assert_null(strchr(got.data, END));
        assert_int_equal(t.l.closed, 1);
        assert_int_equal(t.reused, 0);
        end_relay(&t, fd);
    }
}

/* An answer without a length is whole where its end was announced. Where it was not, a client with a
 * layer is not told an end either, and a plain one is reset: it would take a part for the whole. */
static void upstream_ends(bool announced, bool reset, bool client_layer)
{
    const struct linger linger = {.l_onoff = 1, .l_linger = 0};
    bool quiet = !announced && !reset && client_layer;
    struct relayed t;
    int fd = start_relay(&t, true), pair[2], how;

    if (client_layer) {
        close(fd);
        fixture_tcp_pair(pair);
        t.client.fd = pair[1];
        assert_int_equal(http_server_adopt_layer(t.f.server, pair[1], 7, &fake_ops, &t.client), 0);
        fd = pair[0];
        send_turned(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    } else {
        fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    send_turned(&t.f, t.up,
                announced ? "HTTP/1.1 200 OK\r\n\r\npart\4" : "HTTP/1.1 200 OK\r\n\r\npart");
    recv_turned(&t.f, t.up, &seen); /* a socket with something unread would be reset */
    if (reset)
        assert_int_equal(setsockopt(t.up, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    close(t.up);
    t.up = -1;
    fixture_spin(&t.f);
    how = client_layer ? recv_turned(&t.f, fd, &got) : fixture_recv(&t.f, fd, &got);
    assert_non_null(strstr(got.data, "\r\n\r\npart"));
    assert_int_equal(how, announced || quiet ? FIXTURE_EOF : FIXTURE_RST);
    assert_int_equal(strchr(got.data, END) != NULL, announced && client_layer);
    assert_int_equal(t.client.shut, announced && client_layer);
    assert_int_equal(t.breaks, !announced);
    end_relay(&t, fd);
}

static void test_upstream_ends_unannounced(void **state)
{
    for (int layer = 0; layer < 2; layer++) {
        upstream_ends(true, false, layer);
        upstream_ends(false, false, layer);
        upstream_ends(false, true, layer);
    }
}

/* -- a call of this program's own -------------------------------------------------------------- */

struct called {
    int calls, code, fd;
    char body[32];
};

static void on_done(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why, int *fd)
{
    struct called *c = arg;

    c->calls++;
    c->code = why ? (int)why->code : head->status;
    c->fd = *fd;
    snprintf(c->body, sizeof(c->body), "%.*s", (int)len, body ? body : "");
}

/* More than a socket takes at once, all of it through the layer. The connection is not
 * offered again. */
static void call(const char *answer, int code)
{
    enum { LEN = 4000000 };
    char *body = malloc(LEN);
    struct http_server_config config;
    struct called done = {0};
    struct fixture f;
    struct fake l;
    int pair[2];

    http_server_config_default(&config);
    fixture_start(&f, &config, NULL);
    fixture_tcp_pair(pair);
    l = (struct fake){.fd = pair[1]};
    memset(body, 'b', LEN);
    assert_int_equal(
        http_client_send(&f.loop, &(struct http_client_request){.fd = pair[1],
                                                                .layer = &l,
                                                                .layer_ops = &fake_ops,
                                                                .method = "POST",
                                                                .target = "/",
                                                                .host = "a",
                                                                .body = body,
                                                                .body_len = LEN,
                                                                .max_response_bytes = 100,
                                                                .done = on_done,
                                                                .arg = &done}),
        0);
    for (size_t total = 0; total < LEN; total += seen.len) {
        recv_turned(&f, pair[0], &seen);
        assert_true(seen.len > 0);
        assert_null(memchr(seen.data, 'b' ^ TURNED, seen.len));
    }
    send_turned(&f, pair[0], answer);
    assert_int_equal(done.calls, 1);
    assert_int_equal(done.code, code);
    assert_int_equal(done.fd, -1);
    assert_int_equal(l.closed, 1);
    close(pair[0]);
    fixture_spin(&f);
    fixture_stop(&f);
    free(body);
}

static void test_client_call(void **state)
{
    call("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200);
    call("HTTP/1.1 200 OK\r\n\r\nto the end\4", 200);
    call("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nto the end\4", ERR_UNAVAILABLE);
}

/* -- a filter ---------------------------------------------------------------------------------- */

#define GROWN 65536

/* Adds a header to the request, and makes GROWN bytes of each byte of the answer's body, of which a
 * call gives one; in `turns` there are so many calls before it has to be waited for. */
struct grower {
    void (*wake)(void *);
    void *relay;
    size_t left, turns, waits, freed;
    int fail; /* what outward says */
    bool has_head, behind, ended;
};

static void grow_start(void *arg, void (*wake)(void *), void *relay)
{
    struct grower *g = arg;

    g->wake = wake;
    g->relay = relay;
}

static int grow_outward(void *arg, const char *data, size_t n, struct buf *out)
{
    struct grower *g = arg;
    const char *end = memmem(data, n, "\r\n\r\n", 4);

    if (g->fail || g->has_head)
        return g->fail ? g->fail : buf_append(out, data, n);
    g->has_head = true;
    assert_non_null(end); /* it comes whole */
    return buf_printf(out, "%.*s\r\nKey: secret\r\n\r\n", (int)(end - data), data);
}

static size_t grow_most(void *arg)
{
    struct grower *g = arg;

    g->waits += g->turns == 0;
    return g->turns > 0 ? HTTP_LAYER_READ_BYTES : 0;
}

static int grow_more(void *arg, struct buf *out)
{
    struct grower *g = arg;
    int rc = g->left > 0 ? buf_reserve(out, GROWN) : 0;

    if (g->left == 0 || rc < 0)
        return rc;
    memset(out->data + out->len, 'g', GROWN);
    buf_commit(out, GROWN);
    g->left--;
    g->turns--;
    return 0;
}

static int grow_inward(void *arg, const char *data, size_t n, struct buf *out)
{
    struct grower *g = arg;
    const char *end = memmem(data, n, "\r\n\r\n", 4);

    g->left = n - (size_t)(end + 4 - data);
    return buf_append(out, data, n - g->left);
}

static int grow_end(void *arg, struct buf *out)
{
    ((struct grower *)arg)->ended = true;
    return 0;
}

static void grow_wait(void *arg, bool on)
{
    ((struct grower *)arg)->behind = on;
}

static void grow_free(void *arg)
{
    ((struct grower *)arg)->freed++;
}

static const struct http_relay_filter grower = {.start = grow_start,
                                                .outward = grow_outward,
                                                .most = grow_most,
                                                .inward = grow_inward,
                                                .inward_more = grow_more,
                                                .inward_end = grow_end,
                                                .wait = grow_wait,
                                                .free = grow_free};

static int start_filter(struct relayed *t, struct grower *g)
{
    int fd = start_relay(t, false);

    t->o.filter = &grower;
    t->o.filter_arg = g;
    return fd;
}

/* 400 bytes become 25 MiB: a reader that takes nothing makes the relay hold a window and a
 * piece. The output that it takes later is whole, and the end of the upstream, which has long
 * been there, comes last. */
static void test_filter_grows(void **state)
{
    struct grower g = {.turns = SIZE_MAX};
    char text[401];
    struct relayed t;
    int fd = start_filter(&t, &g), how = FIXTURE_OPEN;
    size_t total = 0;

    fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_recv(&t.f, t.up, &seen);
    assert_string_equal(seen.data, "GET / HTTP/1.1\r\nHost: a\r\nKey: secret\r\n\r\n");
    memset(text, 'x', 400);
    text[400] = '\0';
    assert_true(dprintf(t.up, "HTTP/1.1 200 OK\r\n\r\n%s", text) > 0);
    shutdown(t.up, SHUT_WR);
    fixture_spin(&t.f);
    fixture_spin(&t.f);
    assert_true(g.behind);
    assert_true(g.left > 100); /* the rest is in the sockets, the server's queue and one piece */
    assert_false(g.ended);
    for (int i = 0; i < 5000 && how == FIXTURE_OPEN; i++, total += got.len)
        how = fixture_recv(&t.f, fd, &got);
    assert_int_equal(how, FIXTURE_EOF);
    assert_true(total > (size_t)400 * GROWN && total < (size_t)400 * GROWN + 200);
    assert_int_equal(g.freed, 1);
    end_relay(&t, fd);
}

/* Nothing is read or asked for while the filter has no time; wake goes on. */
static void test_filter_waits(void **state)
{
    struct grower g = {.turns = 1};
    struct relayed t;
    int fd = start_filter(&t, &g);

    fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_send(&t.f, t.up, "HTTP/1.1 200 OK\r\nContent-Length: 196608\r\n\r\nxxx");
    fixture_recv(&t.f, fd, &got);
    assert_int_equal(g.left, 2);
    assert_int_equal(g.waits, 1); /* it is told once, and then wakes */
    for (size_t left = 2; left > 0; left--) {
        g.turns = 1;
        g.wake(g.relay);
        fixture_recv(&t.f, fd, &got);
        assert_int_equal(got.len, GROWN);
        assert_int_equal(g.left, left - 1);
    }
    assert_int_equal(t.reused, 1);
    assert_int_equal(g.freed, 1);
    end_relay(&t, fd);
}

/* A request that the filter does not take is answered, and nothing of it leaves. */
static void test_filter_refuses(void **state)
{
    struct grower g = {.turns = SIZE_MAX, .fail = -EMSGSIZE};
    struct relayed t;
    int fd = start_filter(&t, &g);

    fixture_send(&t.f, fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    fixture_recv(&t.f, fd, &got);
    assert_memory_equal(got.data, "HTTP/1.1 502 ", 13);
    assert_int_equal(fixture_recv(&t.f, t.up, &seen), FIXTURE_EOF);
    assert_int_equal(seen.len, 0);
    assert_int_equal(t.fails, 1);
    assert_int_equal(g.freed, 1);
    end_relay(&t, fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_closes_last),
        cmocka_unit_test(test_client_ends),
        cmocka_unit_test(test_upstream_layer),
        cmocka_unit_test(test_upstream_announces_its_end),
        cmocka_unit_test(test_upstream_ends_unannounced),
        cmocka_unit_test(test_client_call),
        cmocka_unit_test(test_filter_grows),
        cmocka_unit_test(test_filter_waits),
        cmocka_unit_test(test_filter_refuses),
    };
    int r;

    buf_init(&got, 128u << 20);
    buf_init(&seen, 64u << 20);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    buf_free(&got);
    buf_free(&seen);
    return r;
}
