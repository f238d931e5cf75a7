/* An upstream's answer, through the relay and through the client, in pieces. The first byte seeds
 * the pieces and picks the request; checked: each call ends exactly once, nothing is left open. */
#include <signal.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "http/client.h"
#include "http/relay.h"

static int opened, closed_count, client_calls;
static bool stopped;
static int upstream; /* the end that the relay gets */

static void on_close(struct http_exchange *x, void *data)
{
    closed_count++;
}

static void on_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    FUZZ_CHECK(why->code != ERR_OK && why->text[0]);
    http_respond_error(x, 502, "%s", why->text);
}

static void on_reusable(int fd, void *arg)
{
    close(fd);
}

static void handler(struct http_exchange *x, void *ctx)
{
    static const struct http_header add = {"X-Add", "1"};
    struct http_relay_options o = {.fd = upstream,
                                   .add = &add,
                                   .add_count = 1,
                                   .add_cors = true,
                                   .on_fail = on_fail,
                                   .on_reusable = on_reusable};

    opened++;
    http_exchange_set(x, NULL, on_close);
    if (upstream < 0) {
        http_respond_error(x, 503, "no upstream");
        return;
    }
    upstream = -1;
    http_relay_start(x, &o);
}

static void on_done(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why, int *fd)
{
    client_calls++;
    FUZZ_CHECK(!head == !!why);
    FUZZ_CHECK(!head || body[len] == '\0');
}

static void on_stopped(void *ctx)
{
    stopped = true;
}

static void turn(uv_loop_t *loop, int a, int b)
{
    char bytes[4096];

    uv_run(loop, UV_RUN_NOWAIT);
    while (recv(a, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
    while (recv(b, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

static void send_all(uv_loop_t *loop, const uint8_t *data, size_t size, int up, int client)
{
    uint32_t seed = data[0];

    for (size_t at = 1; at < size;) {
        size_t n = fuzz_piece(&seed, size - at);
        ssize_t sent = send(up, data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent <= 0)
            break;
        at += (size_t)sent;
        turn(loop, up, client);
    }
    if (data[0] & 1)
        shutdown(up, SHUT_WR);
    turn(loop, up, client);
}

static void through_relay(uv_loop_t *loop, const uint8_t *data, size_t size)
{
    static const char *const requests[] = {
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nmore",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
    };
    const char *request = requests[data[0] / 2 % 6];
    struct http_server_config config;
    struct http_server *server;
    int client[2], up[2];

    http_server_config_default(&config);
    config.write_high_bytes = 64;
    config.relays = true;
    FUZZ_CHECK(http_server_new(loop, &config, handler, NULL, &server) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, up) == 0);
    upstream = up[1];
    FUZZ_CHECK(http_server_adopt(server, client[1]) == 0);
    FUZZ_CHECK(send(client[0], request, strlen(request), 0) > 0);
    turn(loop, up[0], client[0]);
    send_all(loop, data, size, up[0], client[0]);
    http_server_stop(server, 0, on_stopped, NULL);
    for (int i = 0; i < 50 && !stopped; i++)
        turn(loop, up[0], client[0]);
    FUZZ_CHECK(stopped && opened == closed_count);
    close(client[0]);
    close(up[0]);
    if (upstream >= 0)
        close(upstream);
}

static void through_client(uv_loop_t *loop, const uint8_t *data, size_t size)
{
    struct http_client_request r = {.method = data[0] & 2 ? "GET" : "HEAD",
                                    .target = "/",
                                    .host = "a",
                                    .max_response_bytes = 100,
                                    .timeout_ms = 1,
                                    .done = on_done};
    int up[2];

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, up) == 0);
    r.fd = up[1];
    if (http_client_send(loop, &r) < 0)
        abort();
    turn(loop, up[0], up[0]);
    send_all(loop, data, size, up[0], up[0]);
    uv_run(loop, UV_RUN_DEFAULT); /* ends by its time at the latest */
    FUZZ_CHECK(client_calls == 1);
    close(up[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uv_loop_t loop;

    signal(SIGPIPE, SIG_IGN);
    if (size == 0 || size > 20000)
        return 0;
    opened = closed_count = client_calls = 0;
    stopped = false;
    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    through_relay(&loop, data, size);
    through_client(&loop, data, size);
    uv_run(&loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(uv_loop_close(&loop) == 0);
    return 0;
}
