/* A request of a sandbox on its way: credentials of all kinds, placeholders, signatures; and an answer that
 * begins with what the server has seen. The first byte picks credential, host and encryption. Checked: a
 * secret reaches only the host that it is bound to, encrypted; none comes back, also not in pieces. */
#include <signal.h>
#include <sys/socket.h>

#include "../unit/held_bodies.h"
#include "egress/credential/response_secrets.h"
#include "egress/http/inject.h"
#include "egress/http/rewrite.h"
#include "fuzz.h"
#include "http/server.h"

#define SECRET "Zq9-top-secret-0123456789"
#define SEEN   65536

static struct credentials *credentials;
static uint8_t choice;
static int upstream, opened, ended;
static bool stopped;
static const char *const names[] = {NULL,    "bearer", "basic", "header", "headers",
                                    "query", "aws",    "here",  "absent"};

static struct credential *add(const char *name, enum credential_kind kind)
{
    struct credential *c = &credentials->list[credentials->count++];
    json_t *policy = json_loads("{\"rules\":[{\"action\":\"allow\",\"domains\":[\"a.example\"],"
                                "\"paths\":[\"/v1*\"]}]}",
                                0, NULL);
    struct err e;

    snprintf(c->name, sizeof(c->name), "%s", name);
    c->kind = kind;
    FUZZ_CHECK(policy_new(policy, &c->bound, &e) == ERR_OK);
    json_decref(policy);
    c->value = strdup(kind == CREDENTIAL_BASIC ? "user:" SECRET : SECRET);
    return c;
}

static void make_credentials(void)
{
    struct credential *c;

    credentials = calloc(1, sizeof(*credentials) + 16 * sizeof(struct credential));
    credentials->refs = 1;
    credentials->searched = response_secrets_cache_new();
    add("bearer", CREDENTIAL_BEARER);
    add("basic", CREDENTIAL_BASIC);
    add("header", CREDENTIAL_HEADER)->header = strdup("X-Key");
    c = add("headers", CREDENTIAL_HEADERS);
    c->headers[0].name = strdup("X-Key");
    c->headers[0].value = strdup("${e2b.secrets.here} and " SECRET);
    c->header_count = 1;
    add("query", CREDENTIAL_QUERY)->parameter = strdup("key");
    c = add("aws", CREDENTIAL_SIGV4);
    c->access_key_id = strdup("AKIDEXAMPLE");
    c->secret_access_key = strdup(SECRET);
    c->session_token = strdup("session-" SECRET);
    c = add("here", CREDENTIAL_PLACEHOLDER);
    c->any_header = c->in_target = c->in_bodies = true;
}

static void on_close(struct http_exchange *x, void *data)
{
    ended++;
}

static void on_fail(struct http_exchange *x, const struct err *why, void *arg)
{
    http_respond_error(x, 502, "%s", why->text);
}

static void handler(struct http_exchange *x, void *ctx)
{
    struct http_relay_options o = {.fd = upstream, .on_fail = on_fail};
    const struct inject_request r = {.credentials = credentials,
                                     .credential = names[choice % 9],
                                     .named = UINT64_MAX,
                                     .host = choice & 0x40 ? "b.example" : "a.example",
                                     .port = 443,
                                     .transport = {.tls = !(choice & 0x80)},
                                     .bodies = held_bodies_of_one()};
    struct err e = {0};
    const char *put = NULL;

    opened++;
    http_exchange_set(x, NULL, on_close);
    if (upstream < 0) {
        http_respond_error(x, 503, "one is enough");
        return;
    }
    if (inject_prepare(NULL, 0, &r, x, &o, &put, &e) != ERR_OK) {
        FUZZ_CHECK(e.text[0] && !strstr(e.text, SECRET));
        http_respond_error(x, 403, "%s", e.text);
        return;
    }
    upstream = -1;
    http_relay_start(x, &o);
}

static void on_stopped(void *ctx)
{
    stopped = true;
}

/* The bytes that are there by now, appended to seen. */
static size_t drain(int fd, char *seen, size_t n)
{
    ssize_t got;

    while (n < SEEN && (got = recv(fd, seen + n, SEEN - n, MSG_DONTWAIT)) > 0)
        n += (size_t)got;
    return n;
}

static void turn(uv_loop_t *loop)
{
    for (int i = 0; i < 4; i++)
        uv_run(loop, UV_RUN_NOWAIT);
}

/* The server's answer: in what form, the input says. */
static void answer(uv_loop_t *loop, int up, const char *seen, size_t n, uint32_t seed)
{
    static char text[2 * SEEN + 256];
    size_t len = n < 2000 ? n : 2000, at = 0;

    if (seed & 1) {
        at = (size_t)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                              len);
        memcpy(text + at, seen, len);
        at += len;
    } else {
        at = (size_t)snprintf(text, sizeof(text),
                              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (size_t i = 0; i < len; i++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "1\r\n%c\r\n", seen[i]);
        at += (size_t)snprintf(text + at, sizeof(text) - at, "0\r\n\r\n");
    }
    for (size_t i = 0; i < at;) {
        size_t piece = seed & 2 ? at - i : fuzz_piece(&seed, at - i);

        if (send(up, text + i, piece, MSG_DONTWAIT | MSG_NOSIGNAL) <= 0)
            return;
        i += piece;
        turn(loop);
    }
}

/* Chunks of one byte have to be read as one text. */
static bool says_secret(const char *seen, size_t n)
{
    static char joined[SEEN];
    size_t len = 0;

    if (memmem(seen, n, SECRET, strlen(SECRET)))
        return true;
    for (size_t i = 0; i + 6 <= n; i++)
        if (memcmp(seen + i, "1\r\n", 3) == 0 && memcmp(seen + i + 4, "\r\n", 2) == 0)
            joined[len++] = seen[i + 3];
    return memmem(joined, len, SECRET, strlen(SECRET)) != NULL;
}

static void run(uv_loop_t *loop, const uint8_t *data, size_t size)
{
    static char at_server[SEEN], at_client[SEEN];
    size_t server_bytes = 0, client_bytes = 0;
    struct http_server_config config;
    struct http_server *server;
    int client[2], up[2];
    uint32_t seed = data[1];

    http_server_config_default(&config);
    config.relays = true;
    FUZZ_CHECK(http_server_new(loop, &config, handler, NULL, &server) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, up) == 0);
    upstream = up[1];
    FUZZ_CHECK(http_server_adopt(server, client[1]) == 0);
    for (size_t at = 2; at < size;) {
        size_t n = fuzz_piece(&seed, size - at);

        if (send(client[0], data + at, n, MSG_DONTWAIT | MSG_NOSIGNAL) <= 0)
            break;
        at += n;
        turn(loop);
        server_bytes = drain(up[0], at_server, server_bytes);
    }
    turn(loop);
    server_bytes = drain(up[0], at_server, server_bytes);
    if (choice & 0xc0)
        FUZZ_CHECK(!says_secret(at_server, server_bytes));
    if (server_bytes > 0)
        answer(loop, up[0], at_server, server_bytes, data[1]);
    turn(loop);
    client_bytes = drain(client[0], at_client, client_bytes);
    FUZZ_CHECK(!says_secret(at_client, client_bytes));
    http_server_stop(server, 0, on_stopped, NULL);
    for (int i = 0; i < 50 && !stopped; i++)
        turn(loop);
    FUZZ_CHECK(stopped && opened == ended);
    close(client[0]);
    close(up[0]);
    if (upstream >= 0)
        close(upstream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uv_loop_t loop;

    signal(SIGPIPE, SIG_IGN);
    if (size < 3 || size > 16000 || says_secret((const char *)data, size))
        return 0; /* who knows it may say it */
    if (!credentials)
        make_credentials();
    choice = data[0];
    opened = ended = 0;
    stopped = false;
    FUZZ_CHECK(uv_loop_init(&loop) == 0);
    run(&loop, data, size);
    for (int i = 0; i < 8; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(uv_loop_close(&loop) == 0);
    return 0;
}
