/* Calls of the toolbox whole: what a client asks, and what a sandbox's agent, and what it runs there, answer, which may be
 * anything. The input is parts that a byte of PART ends: the first says which route, the next are its query and its body (or the
 * frames of its WebSocket), the others what the agent answers to one call after the other, where the first byte says in which
 * form. Checked: the client gets HTTP; each call ends with its client; no place is left taken. */
#include "base/base64.h"
#include "base/clock.h"
#include "base/share.h"
#include "fuzz.h"
#include "gateway/idle_connections.h"
#include "gateway/resolve.h"
#include "http/server.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <signal.h>
#include <sys/socket.h>

#define PART       0xc1 /* in no UTF-8 */
#define SANDBOX    "iaaaaaaaaaaaaaaaaaaaa"
#define GEN        7u
#define HOUR_MS    3600000u
#define TURNS      60
#define TURNS_LAST 2000
#define PIECE_MAX  20000u
#define AGENTS_MAX 32

enum form {
    RAW,     /* bytes on the connection */
    GOOD,    /* a body, with the status 200 */
    MISSING, /* with 404 */
    PRINTED, /* a program's output, and its end with the status 0 */
    MESSAGE, /* a message of a stream of the agent's */
    FORMS
};

enum { JSON_BODY, SOCKET, FORM };

static const struct {
    const char *method, *path;
    int kind;
} calls[] = {{"POST", "/process/execute", JSON_BODY},
             {"POST", "/process/code-run", JSON_BODY},
             {"POST", "/process/session", JSON_BODY},
             {"GET", "/process/session", JSON_BODY},
             {"GET", "/process/session/s", JSON_BODY},
             {"DELETE", "/process/session/s", JSON_BODY},
             {"POST", "/process/session/s/exec", JSON_BODY},
             {"GET", "/process/session/s/command/c", JSON_BODY},
             {"GET", "/process/session/s/command/c/logs", JSON_BODY},
             {"GET", "/process/session/s/command/c/logs", SOCKET},
             {"POST", "/process/session/s/command/c/input", JSON_BODY},
             {"POST", "/process/pty", JSON_BODY},
             {"GET", "/process/pty", JSON_BODY},
             {"GET", "/process/pty/create-connect", SOCKET},
             {"GET", "/process/pty/p/connect", SOCKET},
             {"POST", "/process/pty/p/resize", JSON_BODY},
             {"POST", "/process/interpreter/context", JSON_BODY},
             {"GET", "/process/interpreter/context", JSON_BODY},
             {"GET", "/process/interpreter/execute", SOCKET},
             {"GET", "/files", JSON_BODY},
             {"DELETE", "/files", JSON_BODY},
             {"GET", "/files/info", JSON_BODY},
             {"POST", "/files/move", JSON_BODY},
             {"GET", "/files/download", JSON_BODY},
             {"POST", "/files/bulk-download", JSON_BODY},
             {"POST", "/files/upload", FORM},
             {"POST", "/files/upload", JSON_BODY},
             {"POST", "/files/bulk-upload", FORM},
             {"GET", "/files/find", JSON_BODY},
             {"GET", "/files/search", JSON_BODY},
             {"POST", "/files/replace", JSON_BODY},
             {"GET", "/git/status", JSON_BODY},
             {"GET", "/git/history", JSON_BODY},
             {"POST", "/git/clone", JSON_BODY},
             {"POST", "/git/commit", JSON_BODY},
             {"POST", "/git/pull", JSON_BODY},
             {"GET", "/port", JSON_BODY},
             {"GET", "/work-dir", JSON_BODY}};

struct part {
    const uint8_t *at;
    size_t len;
};

static struct {
    uv_loop_t loop;
    struct http_server *server;
    struct toolbox *toolbox;
    bool begun;
    uint64_t tickets[AGENTS_MAX];
    size_t ticket_count;
    int agents[AGENTS_MAX]; /* -1: free */
    struct part rest;       /* of the input: bytes yet to be answered */
} world;

static int query(void *ctx UNUSED, uint64_t ticket, struct gateway_query *q)
{
    if (world.ticket_count == AGENTS_MAX)
        return -EAGAIN;
    access_free(&q->access);
    world.tickets[world.ticket_count++] = ticket;
    return 0;
}

static int follow(void *ctx UNUSED, uint64_t ticket UNUSED, const char *host UNUSED,
                  const char *key UNUSED)
{
    return -EAGAIN;
}

static void handle(struct http_exchange *x, void *ctx UNUSED)
{
    FUZZ_CHECK(toolbox_handle(world.toolbox, x));
}

static void begin(void)
{
    struct http_server_config server;
    struct toolbox_config config = {.max_waiting = AGENTS_MAX,
                                    .lookup_timeout_ms = HOUR_MS,
                                    .connect_timeout_ms = HOUR_MS,
                                    .agent_timeout_ms = HOUR_MS,
                                    .query = query,
                                    .follow = follow};

    if (world.begun)
        return;
    world.begun = true;
    signal(SIGPIPE, SIG_IGN);
    config.conn_shares = conn_share_pool_new(AGENTS_MAX);
    FUZZ_CHECK(config.conn_shares);
    http_server_config_default(&server);
    FUZZ_CHECK(uv_loop_init(&world.loop) == 0);
    FUZZ_CHECK(toolbox_new(&world.loop, &config, &world.toolbox) == 0);
    FUZZ_CHECK(http_server_new(&world.loop, &server, handle, NULL, &world.server) == 0);
    memset(world.agents, 0xff, sizeof(world.agents));
}

static struct part next_part(void)
{
    struct part out = world.rest;
    const uint8_t *end = out.len ? memchr(out.at, PART, out.len) : NULL;

    if (!end) {
        world.rest = (struct part){out.at + out.len, 0};
        return out;
    }
    out.len = (size_t)(end - out.at);
    world.rest.at = end + 1;
    world.rest.len -= out.len + 1;
    return out;
}

/* -- the agent --------------------------------------------------------------------------------- */

static void put(int fd, const void *bytes, size_t len)
{
    (void)!send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void put_envelope(int fd, uint8_t flags, const char *text, size_t len)
{
    const uint8_t head[] = {flags, (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8),
                            (uint8_t)len};

    put(fd, head, sizeof(head));
    put(fd, text, len);
}

static void put_stream_head(int fd)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n";
    static const char started[] = "{\"event\":{\"start\":{\"pid\":5}}}";

    put(fd, head, strlen(head));
    put_envelope(fd, 0, started, strlen(started));
}

static void put_printed(int fd, struct part p)
{
    static const char end[] =
        "{\"event\":{\"end\":{\"exited\":true,\"status\":\"exit status 0\"}}}";
    char *coded = malloc(base64_encoded_len(p.len) + 1), *text = NULL;
    int n;

    FUZZ_CHECK(coded);
    base64_encode(p.at, p.len, coded);
    n = asprintf(&text, "{\"event\":{\"data\":{\"stdout\":\"%s\"}}}", coded);
    FUZZ_CHECK(n > 0);
    put_stream_head(fd);
    put_envelope(fd, 0, text, (size_t)n);
    put_envelope(fd, 0, end, strlen(end));
    put_envelope(fd, 2, "{}", 2);
    free(text);
    free(coded);
}

static void answer(int fd, struct part p)
{
    enum form form = p.len ? (enum form)(p.at[0] % FORMS) : RAW;
    char head[96];
    int n;

    p.at += p.len > 0;
    p.len = p.len > 0 ? MIN(p.len - 1, (size_t)PIECE_MAX) : 0;
    switch (form) {
    case GOOD:
    case MISSING:
        n = snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n",
                     form == GOOD ? 200 : 404, p.len);
        put(fd, head, (size_t)n);
        put(fd, p.at, p.len);
        return;
    case PRINTED: put_printed(fd, p); return;
    case MESSAGE:
        put_stream_head(fd);
        put_envelope(fd, 0, (const char *)p.at, p.len);
        return;
    default: put(fd, p.at, p.len);
    }
}

/* A request that has come is answered by the next part; without one its connection ends. */
static void agents_turn(void)
{
    char bytes[65536];

    for (size_t i = 0; i < AGENTS_MAX; i++) {
        ssize_t n = world.agents[i] < 0 ? -1
                                        : recv(world.agents[i], bytes, sizeof(bytes), MSG_DONTWAIT);

        if (n > 0 && world.rest.len > 0) {
            answer(world.agents[i], next_part());
        } else if (n >= 0) {
            close(world.agents[i]);
            world.agents[i] = -1;
        }
    }
}

static void lookups_turn(void)
{
    while (world.ticket_count > 0) {
        struct gateway_answer a = {.gen = GEN, .fd = -1, .id = SANDBOX, .tenant = "one"};
        size_t i = 0;
        int fds[2];

        while (i < AGENTS_MAX && world.agents[i] >= 0)
            i++;
        if (i < AGENTS_MAX &&
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0) {
            world.agents[i] = fds[1];
            idle_connections_put(&world.toolbox->idle, SANDBOX, GEN, fds[0], clock_mono_ms());
        } else {
            a.status = 503;
        }
        toolbox_answered(world.toolbox, world.tickets[--world.ticket_count], &a);
    }
}

/* -- the client -------------------------------------------------------------------------------- */

static void send_request(int fd, const struct part *route, const struct part *asked,
                         const struct part *body)
{
    static const char *const more[] = {
        [JSON_BODY] = "",
        [SOCKET] = ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
        [FORM] = "Content-Type: multipart/form-data; boundary=b\r\n",
    };
    size_t i = (route->len ? route->at[0] : 0) % ARRAY_SIZE(calls);
    char head[4096], length[64] = "";
    int n;

    if (calls[i].kind != SOCKET)
        (void)snprintf(length, sizeof(length), "Content-Length: %zu\r\n", body->len);
    n = snprintf(head, sizeof(head),
                 "%s /api/toolbox/" SANDBOX
                 "%s?%.*s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer key\r\n%s%s\r\n",
                 calls[i].method, calls[i].path, (int)MIN(asked->len, 1024u), asked->at,
                 more[calls[i].kind], length);
    put(fd, head, (size_t)n);
    put(fd, body->at, body->len);
}

static void client_turn(int fd, bool *first)
{
    char bytes[65536];
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
        FUZZ_CHECK(!*first || (n >= 9 && memcmp(bytes, "HTTP/1.1 ", 9) == 0));
        *first = false;
    }
}

static void close_agents(void)
{
    for (size_t i = 0; i < AGENTS_MAX; i++)
        util_close(&world.agents[i]);
}

static size_t places(void)
{
    return share_used(world.toolbox->config.conn_shares);
}

/* The client has gone, which looks as if it had only ended its side: its answer shows it. */
static void finish(void)
{
    for (int i = 0; i < TURNS_LAST && (world.toolbox->calls || places()); i++) {
        uv_run(&world.loop, UV_RUN_NOWAIT);
        lookups_turn();
        close_agents();
    }
    FUZZ_CHECK(!world.toolbox->calls && places() == 0);
    FUZZ_CHECK(share_used(world.toolbox->bodies) == 0);
    FUZZ_CHECK(share_used(world.toolbox->outputs) == 0);
    lookups_turn();
    idle_connections_close_all(&world.toolbox->idle);
    close_agents();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct part route, asked, body;
    bool first = true;
    int pair[2];

    if (size > 60000)
        return 0;
    begin();
    world.rest = (struct part){data, size};
    route = next_part();
    asked = next_part();
    body = next_part();
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(http_server_adopt(world.server, pair[1]) == 0);
    send_request(pair[0], &route, &asked, &body);
    for (int i = 0; i < TURNS; i++) {
        uv_run(&world.loop, UV_RUN_NOWAIT);
        lookups_turn();
        agents_turn();
        client_turn(pair[0], &first);
    }
    close(pair[0]);
    finish();
    return 0;
}
