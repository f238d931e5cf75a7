/* A WebSocket's client that sends and does not read: the bytes held for it stay bounded, and none
 * is lost. */
#include "http_fixture.h"

#include "http/websocket.h"

#define BUFFER_BYTES 16384         /* of each socket: the kernel doubles it */
#define FRAME        (2 + 4 + 125) /* head, mask and data of what the client sends */
#define ANSWER       (2 + 125)     /* of what it gets for each */
#define FRAMES       (size_t)(2u * 1024u * 1024u / FRAME)
#define PING         0x89
#define TEXT         0x81
#define MESSAGE_MAX  (64u * 1024u)
#define LONG         (3u * 1024u * 1024u)

static const char hello[] =
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
static struct websocket *ws;
static struct buf got;
static bool in_pieces, may_hold;
static int holds_asked, released;

static void on_message(void *arg, bool text, const char *data, size_t len)
{
    struct fixture *f = arg;

    f->calls++;
    for (size_t i = 0; i < len; i++)
        f->sum = f->sum * 31 + (uint8_t)data[i];
    f->bytes += len;
    if (!in_pieces)
        websocket_send(ws, text, data, len);
}

static bool hold(void *arg UNUSED)
{
    holds_asked++;
    return may_hold;
}

static void release(void *arg UNUSED)
{
    released++;
}

static void on_drain(void *arg)
{
    ((struct fixture *)arg)->drains++;
}

static void handler(struct http_exchange *x, void *ctx)
{
    const struct websocket_callbacks callbacks = {.on_message = on_message,
                                                  .on_drain = on_drain,
                                                  .in_pieces = in_pieces,
                                                  .hold = hold,
                                                  .release = release};
    struct fixture *f = ctx;

    http_exchange_set(x, f, fixture_on_close);
    f->x = x;
    ws = websocket_accept(x, NULL, MESSAGE_MAX, &callbacks, f);
}

/* Sends frames, of FRAMES in all, until none has been taken for some turns. How many bytes of them went, from sent. */
static size_t flood(struct fixture *f, int fd, const char *frames, size_t sent)
{
    for (int quiet = 0; quiet < 50 && sent < FRAMES * FRAME;) {
        ssize_t n = send(fd, frames + sent, MIN(FRAMES * FRAME - sent, 30000u),
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        quiet = n > 0 ? 0 : quiet + 1;
        sent += n > 0 ? (size_t)n : 0;
        fixture_spin(f);
        assert_non_null(f->x);
        assert_in_range(http_response_queued(f->x), 0, f->config.write_high_bytes + ANSWER);
    }
    return sent;
}

static char *make_frames(int kind)
{
    char *frames = calloc(FRAMES, FRAME); /* with a mask of zeros */

    assert_non_null(frames);
    for (size_t i = 0; i < FRAMES; i++) {
        frames[i * FRAME] = (char)kind;
        frames[i * FRAME + 1] = (char)(0x80 | 125);
        snprintf(frames + i * FRAME + 6, 125, "%zu", i);
    }
    return frames;
}

/* In the order of the questions, each once. */
static void check_answers(const char *answers, size_t len, int kind)
{
    assert_int_equal(len, FRAMES * ANSWER);
    for (size_t i = 0; i < FRAMES; i++, answers += ANSWER) {
        assert_int_equal((uint8_t)answers[0], kind);
        assert_int_equal(answers[1], 125);
        assert_int_equal(strtoul(answers + 2, NULL, 10), i);
    }
}

static void begin(struct fixture *f, int pair[2])
{
    int size = BUFFER_BYTES;

    fixture_start(f, NULL, handler);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    assert_int_equal(http_server_adopt(f->server, pair[1]), 0);
    fixture_send(f, pair[0], hello);
    fixture_recv(f, pair[0], &got);
    assert_non_null(strstr(got.data, "101 Switching"));
    assert_non_null(ws);
}

static void finish(struct fixture *f, int fd)
{
    close(fd);
    for (int i = 0; i < 100 && f->x; i++)
        fixture_spin(f);
    assert_null(f->x);
    fixture_stop(f);
}

static void unread(int asked, int answered)
{
    CLEANUP_BUF struct buf all = {0};
    char *frames = make_frames(asked);
    struct fixture f;
    size_t sent;
    int pair[2];

    begin(&f, pair);
    buf_init(&all, FRAMES * ANSWER + 1);
    sent = flood(&f, pair[0], frames, 0);
    assert_in_range(sent, 1, FRAMES * FRAME - 1); /* it was not read from any more */
    while (sent < FRAMES * FRAME || all.len < FRAMES * ANSWER) {
        assert_int_equal(fixture_recv(&f, pair[0], &got), FIXTURE_OPEN);
        assert_true(got.len > 0); /* else it is stuck for good */
        assert_int_equal(buf_append(&all, got.data, got.len), 0);
        sent = flood(&f, pair[0], frames, sent);
    }
    check_answers(all.data, all.len, answered);
    finish(&f, pair[0]);
    free(frames);
}

static void test_pings(void **state UNUSED)
{
    unread(PING, 0x8a);
}

static void test_messages_that_are_answered(void **state UNUSED)
{
    unread(TEXT, TEXT);
}

/* The frames that the owner sends of itself do not stop the client's frames: it waits for on_drain. */
static void test_the_owner_is_told(void **state UNUSED)
{
    static char piece[65536];
    struct fixture f;
    size_t n = 0;
    int pair[2];

    begin(&f, pair);
    while (n++ < 100 && websocket_send(ws, false, piece, sizeof(piece)) == 0)
        fixture_spin(&f);
    assert_in_range(n, 2, 99);
    assert_int_equal(f.drains, 0);
    assert_int_equal(send(pair[0], "\x81\x80\0\0\0\0", 6, MSG_NOSIGNAL), 6);
    fixture_spin(&f);
    assert_int_equal(f.calls, 1);
    fixture_recv(&f, pair[0], &got);
    assert_in_range(f.drains, 1, 2);
    finish(&f, pair[0]);
}

/* A client that closes, or leaves, while it is not read from. */
static void test_an_end_meanwhile(void **state UNUSED)
{
    char *frames = make_frames(PING);

    for (int close_first = 0; close_first < 2; close_first++) {
        struct fixture f;
        int pair[2];

        begin(&f, pair);
        flood(&f, pair[0], frames, 0);
        if (close_first)
            websocket_close(ws, WEBSOCKET_POLICY, "no key came");
        finish(&f, pair[0]);
        assert_int_equal(f.closes, 1);
    }
    free(frames);
}

/* A masked frame of len bytes, as much of it as take says; malloc'd. */
static char *make_frame(int first, size_t len, size_t take, size_t *n)
{
    static const char mask[] = {'a', 'b', 'c', 'd'};
    char *frame = malloc(14 + take);

    assert_non_null(frame);
    frame[0] = (char)first;
    frame[1] = (char)(0x80 | 127);
    for (int i = 0; i < 8; i++)
        frame[2 + i] = (char)((uint64_t)len >> 8 * (7 - i));
    memcpy(frame + 10, mask, sizeof(mask));
    for (size_t i = 0; i < take; i++)
        frame[14 + i] = (char)((i * 7 % 251) ^ mask[i % 4]);
    *n = 14 + take;
    return frame;
}

static void send_all(struct fixture *f, int fd, const char *bytes, size_t len)
{
    for (int i = 0; len > 0 && i < 100000; i++) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        fixture_spin(f);
    }
    assert_int_equal(len, 0);
}

static void send_frame(struct fixture *f, int fd, int first, size_t len, size_t take)
{
    size_t n;
    char *frame = make_frame(first, len, take, &n);

    send_all(f, fd, frame, n);
    free(frame);
}

static uint32_t sum_of(size_t len)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < len; i++)
        sum = sum * 31 + i * 7 % 251;
    return sum;
}

/* Of any length, with a ping between the parts of a message. */
static void test_pieces(void **state UNUSED)
{
    struct fixture f;
    int pair[2];

    in_pieces = true;
    begin(&f, pair);
    send_frame(&f, pair[0], 0x02, LONG, LONG);
    assert_int_equal(f.bytes, LONG);
    assert_int_equal(f.sum, sum_of(LONG));
    assert_in_range(f.calls, LONG / 131072, LONG);
    send_all(&f, pair[0], "\x89\x81\0\0\0\0p", 7);
    send_frame(&f, pair[0], 0x00, 0, 0);
    f.sum = 0;
    send_frame(&f, pair[0], 0x80, 5, 5);
    assert_int_equal(f.bytes, LONG + 5);
    assert_int_equal(f.sum, sum_of(5));
    assert_int_equal(fixture_recv(&f, pair[0], &got), FIXTURE_OPEN);
    assert_memory_equal(got.data, "\x8a\x01p", 3);
    send_frame(&f, pair[0], 0x80, 5, 5); /* of no message */
    fixture_recv(&f, pair[0], &got);
    assert_memory_equal(got.data + 2, "\x03\xea", 2); /* 1002 */
    finish(&f, pair[0]);
    assert_int_equal(holds_asked, 0);
    in_pieces = false;
}

/* The owner is asked once for each message that is not small, and told when nothing is held. */
static void test_what_is_held_is_allowed_first(void **state UNUSED)
{
    struct fixture f;
    int pair[2];

    may_hold = true;
    begin(&f, pair);
    send_frame(&f, pair[0], 0x82, WEBSOCKET_SMALL_BYTES, WEBSOCKET_SMALL_BYTES);
    assert_int_equal(holds_asked, 0);
    send_frame(&f, pair[0], 0x82, WEBSOCKET_SMALL_BYTES + 1, WEBSOCKET_SMALL_BYTES);
    assert_int_equal(holds_asked, 1);
    send_all(&f, pair[0], "x", 1);
    assert_int_equal(f.calls, 2);
    assert_int_equal(released, 1);
    send_frame(&f, pair[0], 0x02, WEBSOCKET_SMALL_BYTES, WEBSOCKET_SMALL_BYTES); /* a part */
    assert_int_equal(holds_asked, 1);
    send_frame(&f, pair[0], 0x00, 1, 1);
    assert_int_equal(holds_asked, 2);
    assert_int_equal(released, 1);
    send_frame(&f, pair[0], 0x80, 0, 0);
    assert_int_equal(f.calls, 3);
    assert_int_equal(released, 2);
    send_frame(&f, pair[0], 0x82, MESSAGE_MAX, MESSAGE_MAX - 1); /* it leaves meanwhile */
    assert_int_equal(released, 2);
    finish(&f, pair[0]);
    assert_int_equal(holds_asked, 3);
    assert_int_equal(released, 3);
}

static void test_what_may_not_be_held_is_refused(void **state UNUSED)
{
    struct fixture f;
    int pair[2];

    holds_asked = released = 0;
    may_hold = false;
    begin(&f, pair);
    send_frame(&f, pair[0], 0x82, WEBSOCKET_SMALL_BYTES + 1, 0);
    fixture_recv(&f, pair[0], &got);
    assert_memory_equal(got.data + 2, "\x03\xf5", 2); /* 1013 */
    finish(&f, pair[0]);
    assert_int_equal(holds_asked, 1);
    assert_int_equal(released, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pings),
        cmocka_unit_test(test_messages_that_are_answered),
        cmocka_unit_test(test_the_owner_is_told),
        cmocka_unit_test(test_an_end_meanwhile),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_what_is_held_is_allowed_first),
        cmocka_unit_test(test_what_may_not_be_held_is_refused),
    };

    buf_init(&got, 4u << 20);
    return cmocka_run_group_tests_name("http_websocket", tests, NULL, NULL);
}
