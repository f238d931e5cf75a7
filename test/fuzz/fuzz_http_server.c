/* A whole server on a socket pair: the input is what a client sends, in pieces; the handlers do what
 * the paths say. Checked: each exchange is closed exactly once, nothing is left open, no memory error.
 * The first byte seeds the pieces. */
#include <signal.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "http/connect_rpc.h"
#include "http/json.h"
#include "http/server.h"

static int opened, closed_count;
static struct http_exchange *waiting;
static bool stopped;

static void on_close(struct http_exchange *x, void *data)
{
    closed_count++;
    if (waiting == x)
        waiting = NULL;
}

static void echo(struct http_exchange *x, char *body, size_t len)
{
    FUZZ_CHECK(body[len] == '\0');
    http_respond(x, 200, NULL, 0, body, len);
}

static void on_data(struct http_exchange *x, const char *data, size_t len)
{
    if (len % 3 == 0) {
        http_body_pause(x);
        waiting = x;
    }
    if (!http_response_begun(x))
        http_response_begin(x, 200, NULL, 0, -1);
    http_response_write(x, data, len);
}

static void on_end(struct http_exchange *x)
{
    if (!http_response_begun(x))
        http_response_begin(x, 204, NULL, 0, 0);
    http_response_end(x);
}

static void on_rpc(struct http_exchange *x, json_t *request, bool stream)
{
    FUZZ_CHECK(json_is_object(request));
    if (stream) {
        connect_stream_begin(x);
        connect_stream_send(x, request);
        connect_stream_end(x, CONNECT_ABORTED, "%s", "\xff\"");
    } else {
        connect_reply(x, request);
    }
    json_decref(request);
}

static void handler(struct http_exchange *x, void *ctx)
{
    const struct http_head *h = http_exchange_head(x);

    opened++;
    http_exchange_set(x, NULL, on_close);
    switch (h->path[0] ? h->path[1] : 0) {
    case 'e': http_body_collect(x, 50, echo); break;
    case 's': http_body_stream(x, on_data, on_end); break;
    case 'r': connect_read(x, 100, on_rpc); break;
    case 'a': http_exchange_abort(x); break;
    case 'w': waiting = x; break;
    default: http_respond_error(x, 404, "no %s", h->path);
    }
}

static void on_stopped(void *ctx)
{
    stopped = true;
}

static void turn(uv_loop_t *loop, int client)
{
    char bytes[4096];

    uv_run(loop, UV_RUN_NOWAIT);
    while (recv(client, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
        ;
}

static void wake(void)
{
    struct http_exchange *x = waiting;

    waiting = NULL;
    if (!x)
        return;
    if (strcmp(http_exchange_head(x)->path, "/w") == 0)
        http_respond(x, 200, NULL, 0, "late", 4);
    else if (http_exchange_head(x)->path[1] == 'w')
        http_body_collect(x, 10, echo);
    else
        http_body_resume(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_server_config config;
    struct http_server *server;
    uint32_t seed = size > 0 ? data[0] : 0;
    uv_loop_t loop;
    int pair[2];

    signal(SIGPIPE, SIG_IGN);
    if (size == 0 || size > 20000)
        return 0;
    opened = closed_count = 0;
    stopped = false;
    waiting = NULL;
    http_server_config_default(&config);
    config.write_high_bytes = 64;
    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    FUZZ_CHECK(http_server_new(&loop, &config, handler, NULL, &server) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(http_server_adopt(server, pair[1]) == 0);
    for (size_t at = 1; at < size;) {
        size_t n = fuzz_piece(&seed, size - at) * (1 + data[0] % 4);
        ssize_t sent = send(pair[0], data + at, n < size - at ? n : size - at,
                            MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent <= 0)
            break;
        at += (size_t)sent;
        turn(&loop, pair[0]);
        if (seed >> 31)
            wake();
    }
    for (int i = 0; i < 4; i++) {
        turn(&loop, pair[0]);
        wake();
    }
    if (data[0] & 1)
        shutdown(pair[0], SHUT_WR);
    turn(&loop, pair[0]);
    http_server_stop(server, 0, on_stopped, NULL);
    for (int i = 0; i < 50 && !stopped; i++)
        turn(&loop, pair[0]);
    FUZZ_CHECK(stopped && opened == closed_count);
    close(pair[0]);
    uv_run(&loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(uv_loop_close(&loop) == 0);
    return 0;
}
