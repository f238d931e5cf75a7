#include "agent_driver.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>

#include "agent/common/logs.h"
#include "agent/process/proc.h"
#include "fuzz.h"

#define ANSWERS_SIZE 65536
#define CLIENTS_MAX  4
#define TURNS_MAX    100000 /* that many without an end are a hang */

static const struct agent_driver *driver;
static char answers[ANSWERS_SIZE];
static size_t answers_len;
static int clients[CLIENTS_MAX];
static size_t client_count; /* the last one sends */

static void dispatch(struct http_exchange *x, void *ctx)
{
    const struct http_head *h = http_exchange_head(x);

    if (driver->allowed(h->method, h->path))
        routes_dispatch(x, ctx);
    else
        http_respond_error(x, 404, "not here");
}

struct agent *agent_driver_new(const struct agent_driver *d)
{
    static struct agent a;
    struct http_server_config config;
    sigset_t set;

    driver = d;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    FUZZ_CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    http_server_config_default(&config);
    config.write_high_bytes = 4096; /* full soon */
    config.read_buffer_bytes = AGENT_READ_BYTES;
    config.arena_max_bytes = AGENT_ARENA_MAX_BYTES;
    config.idle_timeout_ms = 0;
    /* A client that has ended its side and then gone is noticed no sooner. */
    config.half_timeout_ms = config.half_stream_timeout_ms = 1;
    a.loop = uv_default_loop();
    a.env = json_object();
    FUZZ_CHECK(a.loop && a.env && logs_new(&a) == 0 && proc_table_new(&a) == 0);
    FUZZ_CHECK(http_server_new(a.loop, &config, dispatch, &a, &a.server) == 0);
    return &a;
}

static void receive(int client)
{
    char bytes[4096];
    ssize_t n;

    while ((n = recv(client, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
        size_t keep = MIN((size_t)n, ANSWERS_SIZE - 1 - answers_len);

        memcpy(answers + answers_len, bytes, keep);
        answers_len += keep;
        answers[answers_len] = '\0';
    }
}

/* The servers behind the agent get their turn, and then the agent. */
static void turn_inside(struct agent *a, uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    driver->turn(*seed >> 8);
    uv_run(a->loop, UV_RUN_NOWAIT);
}

static void turn(struct agent *a, uint32_t *seed)
{
    turn_inside(a, seed);
    if (*seed >> 30) /* sometimes a client does not read */
        receive(clients[*seed >> 16 & 1 && client_count > 1 ? 0 : client_count - 1]);
}

static void send_all(struct agent *a, const uint8_t *data, size_t size, size_t scale,
                     uint32_t *seed)
{
    for (size_t at = 0, stuck = 0; at < size && stuck < 100;) {
        size_t n = fuzz_piece(seed, size - at) * scale;
        ssize_t sent = send(clients[client_count - 1], data + at, MIN(n, size - at),
                            MSG_DONTWAIT | MSG_NOSIGNAL);

        if (sent < 0 && errno != EAGAIN)
            break;
        stuck = sent > 0 ? 0 : stuck + 1;
        at += sent > 0 ? (size_t)sent : 0;
        turn(a, seed);
    }
}

static void begin_client(struct agent *a)
{
    int pair[2];

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    FUZZ_CHECK(http_server_adopt(a->server, pair[1]) == 0);
    clients[client_count++] = pair[0];
}

/* A client for each part of the data, the earlier ones staying there. */
static void send_parts(struct agent *a, const uint8_t *data, size_t size, uint32_t *seed)
{
    size_t scale = data[0] & 1 ? 64 : 4;

    for (size_t at = 1; client_count < CLIENTS_MAX && at <= size;) {
        const uint8_t *end = memmem(data + at, size - at, AGENT_DRIVER_NEXT,
                                    strlen(AGENT_DRIVER_NEXT));
        size_t n = end && client_count + 1 < CLIENTS_MAX ? (size_t)(end - data) - at : size - at;

        begin_client(a);
        send_all(a, data + at, n, scale, seed);
        at += n + strlen(AGENT_DRIVER_NEXT);
    }
}

static void end_clients(struct agent *a, bool half, uint32_t *seed)
{
    for (size_t i = 0; half && i < client_count; i++)
        shutdown(clients[i], SHUT_WR);
    for (int i = 0; i < 4; i++)
        turn(a, seed);
    for (size_t i = 0; i < client_count; i++) {
        receive(clients[i]);
        close(clients[i]);
    }
    for (int i = 0; i < TURNS_MAX && http_server_connections(a->server) > 0; i++) {
        driver->turn(UINT32_MAX);
        uv_run(a->loop, UV_RUN_NOWAIT);
    }
    FUZZ_CHECK(http_server_connections(a->server) == 0);
    for (int i = 0; i < 8; i++) /* work begun for them goes on without them */
        turn_inside(a, seed);
}

void agent_driver_run(struct agent *a, const uint8_t *data, size_t size)
{
    uint32_t seed = data[0];

    answers_len = client_count = 0;
    answers[0] = '\0';
    send_parts(a, data, size, &seed);
    for (int i = 0; i < 16; i++)
        turn(a, &seed);
    end_clients(a, data[0] & 2, &seed);
}

const char *agent_driver_answers(void)
{
    return answers;
}
