#pragma once
/* A server on a loop of its own and a client's end of a socket, in one thread: the test says when the
 * loop turns, so that nothing depends on timing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "http/server.h"

struct fixture {
    uv_loop_t loop;
    struct http_server *server;
    struct http_server_config config;
    bool stopped;
    /* what the handler under test needs */
    struct http_exchange *x;
    int calls, closes, drains, ends;
    size_t bytes;
    uint32_t sum;
};

static UNUSED void fixture_start(struct fixture *f, const struct http_server_config *config,
                                 http_handler handler)
{
    memset(f, 0, sizeof(*f));
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    http_server_config_default(&f->config);
    if (config)
        f->config = *config;
    assert_int_equal(http_server_new(&f->loop, &f->config, handler, f, &f->server), 0);
}

/* For exchanges whose data is the fixture. */
static UNUSED void fixture_on_close(struct http_exchange *x, void *data)
{
    struct fixture *f = data;

    f->closes++;
    if (f->x == x)
        f->x = NULL;
}

static UNUSED void fixture_spin(struct fixture *f)
{
    for (int i = 0; i < 6; i++)
        uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void fixture_on_stopped(void *ctx)
{
    ((struct fixture *)ctx)->stopped = true;
}

static UNUSED void fixture_stop(struct fixture *f)
{
    http_server_stop(f->server, 0, fixture_on_stopped, f);
    for (int i = 0; i < 1000 && !f->stopped; i++)
        uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_true(f->stopped);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_close(&f->loop), 0); /* nothing is left open on the loop */
}

/* Two connected TCP sockets on loopback. */
static UNUSED void fixture_tcp_pair(int out[2])
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof(a);
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(l, 1), 0);
    assert_int_equal(getsockname(l, (struct sockaddr *)&a, &size), 0);
    out[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(out[0], (struct sockaddr *)&a, sizeof(a)), 0);
    out[1] = accept(l, NULL, NULL);
    assert_true(out[1] >= 0);
    assert_int_equal(setsockopt(out[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), 0);
    close(l);
}

/* A client's end, connected to the server. */
static UNUSED int fixture_client(struct fixture *f)
{
    int pair[2];

    fixture_tcp_pair(pair);
    assert_int_equal(http_server_adopt(f->server, pair[1]), 0);
    return pair[0];
}

static UNUSED void fixture_send(struct fixture *f, int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    fixture_spin(f);
}

#define FIXTURE_OPEN 0
#define FIXTURE_EOF  1
#define FIXTURE_RST  2

/* All that comes while nothing new is asked for. How the connection stands then. */
static UNUSED int fixture_recv(struct fixture *f, int fd, struct buf *out)
{
    char bytes[65536];

    buf_clear(out);
    for (int quiet = 0; quiet < 3;) {
        ssize_t n;

        fixture_spin(f);
        n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n == 0)
            return FIXTURE_EOF;
        if (n < 0 && errno != EAGAIN)
            return FIXTURE_RST;
        if (n < 0) {
            struct pollfd p = {.fd = fd, .events = POLLIN};

            quiet++;
            poll(&p, 1, 2);
            continue;
        }
        quiet = 0;
        assert_int_equal(buf_append(out, bytes, (size_t)n), 0);
    }
    if (!out->data)
        assert_int_equal(buf_append(out, "", 0), 0);
    return FIXTURE_OPEN;
}

/* Turns the loop for that long. */
static UNUSED void fixture_wait(struct fixture *f, uint64_t ms)
{
    uint64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end) {
        struct timespec nap = {.tv_nsec = 1000000};

        uv_run(&f->loop, UV_RUN_NOWAIT);
        nanosleep(&nap, NULL);
    }
}
