/* The smallest server on src/http, for load generators:
 *   http_hello PORT            answers "hello"; /bytes?n=N answers N zero bytes, eats any body
 *   http_hello PORT UPSTREAM   relays everything to 127.0.0.1:UPSTREAM */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/relay.h"
#include "http/server.h"

static int upstream_port;

static void more(struct http_exchange *x, void *data)
{
    static const char zeros[256 * 1024];
    uint64_t *left = data;

    while (*left > 0) {
        size_t n = (size_t)MIN(*left, sizeof(zeros));

        *left -= n;
        if (http_response_write(x, zeros, n) == 1)
            return;
    }
    http_response_end(x);
}

static void send_bytes(struct http_exchange *x, const char *count)
{
    uint64_t *left = arena_alloc(http_exchange_arena(x), sizeof(*left));

    if (!left)
        abort();
    *left = strtoull(count, NULL, 10);
    http_exchange_set(x, left, NULL);
    http_response_begin(x, 200, NULL, 0, (int64_t)*left);
    http_response_on_drain(x, more);
    more(x, left);
}

static void eat(struct http_exchange *x, const char *data, size_t len)
{
}

static void answer(struct http_exchange *x)
{
    static const struct http_header type = {"Content-Type", "text/plain"};

    http_respond(x, 200, &type, 1, "hello\n", 6);
}

static void hello(struct http_exchange *x, void *ctx)
{
    char count[32];

    if (http_query_get(http_exchange_head(x)->query, "n", count, sizeof(count)) > 0)
        send_bytes(x, count);
    else if (http_exchange_head(x)->framing != HTTP_BODY_NONE)
        http_body_stream(x, eat, answer);
    else
        answer(x);
}

static void on_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    http_respond_error(x, 502, "%s", why->text);
}

static void pass_on(struct http_exchange *x, void *ctx)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)upstream_port)};
    struct http_relay_options o = {.on_fail = on_fail};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    o.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    o.connecting = connect(o.fd, (struct sockaddr *)&a, sizeof(a)) < 0 && errno == EINPROGRESS;
    http_relay_start(x, &o);
}

static int listen_on(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 4096) < 0)
        return -1;
    return fd;
}

int main(int argc, char **argv)
{
    struct http_server_config config;
    struct http_server *server;
    int fd = listen_on(argc > 1 ? atoi(argv[1]) : 8080);

    upstream_port = argc > 2 ? atoi(argv[2]) : 0;
    signal(SIGPIPE, SIG_IGN);
    http_server_config_default(&config);
    config.max_connections = 20000;
    config.read_buffer_bytes = 256 * 1024;
    if (fd < 0 ||
        http_server_new(uv_default_loop(), &config, upstream_port ? pass_on : hello, NULL,
                        &server) < 0 ||
        http_server_listen(server, fd) < 0) {
        perror("http_hello");
        return 1;
    }
    return uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
