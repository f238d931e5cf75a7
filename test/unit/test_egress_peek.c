/* Looks at what a socket of TCP has (peek.h): a mark of urgent data, and more than fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "egress/flow/peek.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct pair {
    int client, server;
};

static int make_pair(void **state)
{
    static struct pair p;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    CLEANUP_CLOSE int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    p.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    assert_int_equal(connect(p.client, (struct sockaddr *)&a, n), 0);
    p.server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(p.server >= 0);
    peek_prepare(p.server);
    *state = &p;
    return 0;
}

static int close_pair(void **state)
{
    struct pair *p = *state;

    util_close(&p->client);
    util_close(&p->server);
    return 0;
}

static void say(const struct pair *p, const char *text, int flags)
{
    assert_int_equal(send(p->client, text, strlen(text), flags), strlen(text));
}

static void await_bytes(const struct pair *p, int bytes)
{
    int there = 0;

    for (int i = 0; i < 1000 && there < bytes; i++) {
        assert_int_equal(ioctl(p->server, FIONREAD, &there), 0);
        if (there < bytes)
            (void)poll(NULL, 0, 10);
    }
    assert_int_equal(there, bytes);
}

static void all_that_is_there(void **state)
{
    struct pair *p = *state;
    char data[8];
    bool all = false;

    assert_int_equal(peek_bytes(p->server, data, sizeof(data), &all), -EAGAIN);
    say(p, "hello", 0);
    await_bytes(p, 5);
    for (int i = 0; i < 2; i++) { /* nothing is taken */
        assert_int_equal(peek_bytes(p->server, data, sizeof(data), &all), 5);
        assert_memory_equal(data, "hello", 5);
        assert_true(all);
    }
    assert_int_equal(peek_bytes(p->server, data, 3, &all), 3);
    assert_false(all);
    assert_int_equal(peek_bytes(p->server, data, 5, &all), 5);
    assert_false(all); /* there may be more */
    assert_int_equal(recv(p->server, data, sizeof(data), 0), 5);
    assert_int_equal(shutdown(p->client, SHUT_WR), 0);
    (void)poll(&(struct pollfd){.fd = p->server, .events = POLLRDHUP}, 1, 10000);
    assert_int_equal(peek_bytes(p->server, data, sizeof(data), NULL), 0);
}

/* recv(2) ends at the mark, as if no more had come, however much stands behind it. */
static void nothing_is_hidden_by_a_mark(void **state)
{
    struct pair *p = *state;
    char data[16];
    bool all = false;

    say(p, "a", 0);
    say(p, "b", MSG_OOB);
    say(p, "cd", 0);
    await_bytes(p, 4);
    assert_int_equal(recv(p->server, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT), 1);
    assert_int_equal(peek_bytes(p->server, data, sizeof(data), &all), -EPROTO);
    assert_int_equal(peek_bytes(p->server, data, 1, &all), 1);
    assert_int_equal(shutdown(p->client, SHUT_WR), 0);
    (void)poll(&(struct pollfd){.fd = p->server, .events = POLLRDHUP}, 1, 10000);
    assert_int_equal(peek_bytes(p->server, data, sizeof(data), &all), -EPROTO);
    assert_int_equal(recv(p->server, data, 1, 0), 1); /* at the mark: nothing is left out */
    assert_int_equal(peek_bytes(p->server, data, sizeof(data), &all), 3);
    assert_memory_equal(data, "bcd", 3);
    assert_true(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_that_is_there, make_pair, close_pair),
        cmocka_unit_test_setup_teardown(nothing_is_hidden_by_a_mark, make_pair, close_pair),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
