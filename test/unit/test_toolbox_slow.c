/* A client that asks for many files and takes nothing of the answer holds up what it asked for: the
 * sandbox's agent is asked for no further file until it reads. The agent is played here, and has
 * none of the files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/share.h"
#include "gateway/idle_connections.h"
#include "gateway/resolve.h"
#include "http/server.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SANDBOX "iaaaaaaaaaaaaaaaaaaaa"
#define GEN     7u
#define FILES   4000u
#define NAME    400u /* bytes of a path: of an answer's part some 2,000 */
#define QUIET   200  /* turns without a question: no more of them comes */
#define HOUR_MS 3600000u

struct world {
    uv_loop_t loop;
    struct http_server *server;
    struct toolbox *toolbox;
    uint64_t ticket;
    bool asked, stopped;
    int client, agent;
    size_t files; /* that the agent was asked for */
};

static int query(void *ctx, uint64_t ticket, struct gateway_query *q)
{
    struct world *w = ctx;

    access_free(&q->access);
    assert_false(w->asked);
    w->asked = true;
    w->ticket = ticket;
    return 0;
}

static void handle(struct http_exchange *x, void *ctx)
{
    struct world *w = ctx;

    assert_true(toolbox_handle(w->toolbox, x));
}

static void begin(struct world *w)
{
    struct http_server_config server;
    struct toolbox_config config = {.max_waiting = 4,
                                    .lookup_timeout_ms = HOUR_MS,
                                    .connect_timeout_ms = HOUR_MS,
                                    .agent_timeout_ms = HOUR_MS,
                                    .conn_shares = conn_share_pool_new(4),
                                    .query = query,
                                    .ctx = w};
    int pair[2];

    *w = (struct world){.agent = -1};
    http_server_config_default(&server);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(toolbox_new(&w->loop, &config, &w->toolbox), 0);
    assert_int_equal(http_server_new(&w->loop, &server, handle, w, &w->server), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    w->client = pair[0];
    assert_int_equal(http_server_adopt(w->server, pair[1]), 0);
}

/* The control loop's answer, and a connection to the agent where none is kept. */
static void answer_lookup(struct world *w)
{
    struct gateway_answer a = {.gen = GEN, .fd = -1, .id = SANDBOX, .tenant = "one"};
    int fds[2];

    if (!w->asked)
        return;
    w->asked = false;
    if (w->agent < 0) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
                         0);
        w->agent = fds[1];
        idle_connections_put(&w->toolbox->idle, SANDBOX, GEN, fds[0], clock_mono_ms());
    }
    toolbox_answered(w->toolbox, w->ticket, &a);
}

/* A question is one request without a body, and is read whole. */
static void answer_file(struct world *w)
{
    static const char none[] = "HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{}";
    char bytes[8192];

    if (w->agent < 0 || recv(w->agent, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
        return;
    w->files++;
    assert_int_equal(send(w->agent, none, strlen(none), MSG_NOSIGNAL), strlen(none));
}

static void turn(struct world *w)
{
    uv_run(&w->loop, UV_RUN_NOWAIT);
    answer_lookup(w);
    answer_file(w);
}

/* Until the agent is asked for nothing more. */
static void turn_until_quiet(struct world *w)
{
    for (int quiet = 0; quiet < QUIET; quiet++) {
        size_t before = w->files;

        turn(w);
        if (w->files != before)
            quiet = -1;
    }
}

static void send_all(struct world *w, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(w->client, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        turn(w);
    }
}

static void ask(struct world *w)
{
    CLEANUP_BUF struct buf body = {0};
    char head[256];
    int n;

    buf_init(&body, (size_t)FILES * (NAME + 16));
    assert_int_equal(buf_append_str(&body, "{\"paths\":["), 0);
    for (unsigned i = 0; i < FILES; i++)
        assert_int_equal(buf_printf(&body, "%s\"%0*u\"", i ? "," : "", (int)NAME, i), 0);
    assert_int_equal(buf_append_str(&body, "]}"), 0);
    n = snprintf(head, sizeof(head),
                 "POST /api/toolbox/" SANDBOX "/files/bulk-download HTTP/1.1\r\nHost: a\r\n"
                 "Authorization: Bearer key\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 body.len);
    send_all(w, head, (size_t)n);
    send_all(w, body.data, body.len);
}

/* The whole answer: how many parts it has. It ends with its last chunk. */
static unsigned read_parts(struct world *w)
{
    static const char part[] = "name=\"error\"", last[] = "--\r\n\r\n0\r\n\r\n";
    CLEANUP_BUF struct buf all = {0};
    unsigned parts = 0;

    buf_init(&all, 64u << 20);
    for (int quiet = 0; quiet < QUIET; quiet++) {
        ssize_t n;

        assert_int_equal(buf_reserve(&all, 65536), 0);
        n = recv(w->client, all.data + all.len, 65536, MSG_DONTWAIT);
        if (n > 0) {
            buf_commit(&all, (size_t)n);
            quiet = -1;
        }
        turn(w);
    }
    for (const char *at = all.data;
         (at = memmem(at, all.len - (size_t)(at - all.data), part, strlen(part))); at++)
        parts++;
    assert_true(all.len > strlen(last));
    assert_memory_equal(all.data + all.len - strlen(last), last, strlen(last));
    return parts;
}

static void on_stopped(void *ctx)
{
    struct world *w = ctx;

    w->stopped = true;
}

/* No call is left. */
static void end(struct world *w)
{
    close(w->client);
    for (int i = 0; i < QUIET && w->toolbox->calls; i++)
        turn(w);
    assert_null(w->toolbox->calls);
    assert_int_equal(share_used(w->toolbox->bodies), 0);
    toolbox_stop(w->toolbox);
    http_server_stop(w->server, 0, on_stopped, w);
    while (!w->stopped)
        uv_run(&w->loop, UV_RUN_ONCE);
    share_pool_free(w->toolbox->config.conn_shares);
    toolbox_free(w->toolbox);
    util_close(&w->agent);
    while (uv_loop_close(&w->loop) == -EBUSY)
        uv_run(&w->loop, UV_RUN_NOWAIT);
}

static void test_the_agent_is_asked_as_the_client_reads(void **state UNUSED)
{
    struct world w;

    begin(&w);
    ask(&w);
    turn_until_quiet(&w);
    assert_in_range(w.files, 1, FILES / 4);
    assert_int_equal(read_parts(&w), FILES);
    assert_int_equal(w.files, FILES);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_agent_is_asked_as_the_client_reads)};

    return cmocka_run_group_tests_name("toolbox_slow", tests, NULL, NULL);
}
