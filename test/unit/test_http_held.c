/* Answers whose clients take nothing of them: what all connections may hold together (held.c). Over unix sockets, which
 * have no timers of their own. */
#include "http_fixture.h"

#define ANSWER (1024u * 1024u) /* of which nearly all is queued: the sockets have small buffers */
#define HIGH   (64u * 1024u)

#define REQUEST "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

static char answer[ANSWER];
static struct buf got;

static void handler(struct http_exchange *x, void *ctx)
{
    struct fixture *f = ctx;

    http_exchange_set(x, f, fixture_on_close);
    http_respond(x, 200, NULL, 0, answer, sizeof(answer));
}

static void start(struct fixture *f, size_t held_total_bytes)
{
    struct http_server_config c;

    http_server_config_default(&c);
    c.write_high_bytes = HIGH;
    c.held_total_bytes = held_total_bytes;
    fixture_start(f, &c, handler);
}

/* Asks, and takes nothing. */
static int client(struct fixture *f)
{
    int pair[2], small = 32 * 1024;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    assert_int_equal(http_server_adopt(f->server, pair[1]), 0);
    fixture_send(f, pair[0], REQUEST);
    return pair[0];
}

/* Takes so much that the server can send more. How much. */
static size_t take_some(struct fixture *f, int fd)
{
    char bytes[HIGH];
    size_t taken = 0;

    while (taken < ANSWER / 4) {
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

        assert_true(n > 0);
        taken += (size_t)n;
        fixture_spin(f);
    }
    return taken;
}

static bool gets_all(struct fixture *f, int fd, size_t taken)
{
    int end = fixture_recv(f, fd, &got);

    close(fd);
    return end == FIXTURE_OPEN && got.len + taken >= ANSWER;
}

/* The first client that takes nothing gives way; one that takes does not, however old its answer. */
static void test_who_takes_nothing(void **state)
{
    struct fixture f;
    int slow, stuck, last;
    size_t taken;

    start(&f, 2 * ANSWER + ANSWER / 2);
    slow = client(&f);
    stuck = client(&f);
    assert_int_equal(f.closes, 0);
    taken = take_some(&f, slow);
    last = client(&f);
    assert_int_equal(f.closes, 1);
    assert_int_not_equal(fixture_recv(&f, stuck, &got), FIXTURE_OPEN);
    assert_true(got.len < ANSWER);
    close(stuck);
    assert_true(gets_all(&f, slow, taken));
    assert_true(gets_all(&f, last, 0));
    fixture_stop(&f);
}

/* Answers that gave way count no more, and those that were taken neither. */
static void test_counted(void **state)
{
    struct fixture f;
    int fd[8];

    start(&f, 2 * ANSWER + ANSWER / 2);
    for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
        fd[i] = client(&f);
    assert_int_equal(f.closes, ARRAY_SIZE(fd) - 2);
    for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
        assert_true(gets_all(&f, fd[i], 0) == (i + 2 >= ARRAY_SIZE(fd)));
    for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
        assert_true(gets_all(&f, client(&f), 0));
    fixture_stop(&f);
}

/* An answer that is longer than all may be is not held either. */
static void test_too_long(void **state)
{
    struct fixture f;
    int fd;

    start(&f, ANSWER / 2);
    fd = client(&f);
    assert_int_equal(f.closes, 1);
    assert_false(gets_all(&f, fd, 0));
    fixture_stop(&f);
}

/* Without the limit: all of it is held. */
static void test_control(void **state)
{
    struct fixture f;
    int fd[8];

    start(&f, SIZE_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
        fd[i] = client(&f);
    assert_int_equal(f.closes, 0);
    for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
        assert_true(gets_all(&f, fd[i], 0));
    fixture_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_takes_nothing),
        cmocka_unit_test(test_counted),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_control),
    };
    int r;

    memset(answer, 'a', sizeof(answer));
    buf_init(&got, 2 * ANSWER);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    buf_free(&got);
    return r;
}
