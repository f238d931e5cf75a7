/* Long answers of a sandbox's agent take places of the loop's pool while they are collected and
 * read. The agent is the other end of a connection that the loop keeps idle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/share.h"
#include "gateway/idle_connections.h"
#include "gateway/resolve.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/collect.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SANDBOX "iaaaaaaaaaaaaaaaaaaaa"
#define GEN     7u
#define MIB     ((size_t)TOOLBOX_OUTPUT_BLOCK)
#define HOUR_MS 3600000u

struct answer {
    int calls;
    int status;
    enum err_code code;
    size_t len, places; /* held while done runs */
    bool whole;         /* only what was sent, and a NUL after it */
};

struct world {
    uv_loop_t loop;
    struct toolbox *toolbox;
    struct toolbox_call call;
    char key[8];
    uint64_t ticket;
    int agent; /* the other end */
    struct answer got;
};

static int query(void *ctx, uint64_t ticket, struct gateway_query *q)
{
    struct world *w = ctx;

    w->ticket = ticket;
    access_free(&q->access);
    return 0;
}

static void done(void *arg, const struct http_head *head, const char *body, size_t len,
                 const struct err *why)
{
    struct world *w = arg;

    w->got.calls++;
    w->got.status = head ? head->status : 0;
    w->got.code = why ? why->code : ERR_OK;
    w->got.len = len;
    w->got.places = share_held(w->toolbox->outputs, "one", SANDBOX);
    w->got.whole = body && body[len] == '\0' && strspn(body, "x") == len;
}

static void begin(struct world *w)
{
    struct toolbox_config config = {.max_waiting = 4,
                                    .lookup_timeout_ms = HOUR_MS,
                                    .connect_timeout_ms = HOUR_MS,
                                    .agent_timeout_ms = HOUR_MS,
                                    .conn_shares = NULL, /* calls begin here, behind it */
                                    .query = query,
                                    .ctx = w};

    *w = (struct world){.agent = -1, .key = "key"};
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(toolbox_new(&w->loop, &config, &w->toolbox), 0);
    w->call = (struct toolbox_call){.toolbox = w->toolbox,
                                    .key = w->key,
                                    .id = SANDBOX,
                                    .tenant = "one",
                                    .gen = GEN,
                                    .unused_fd = -1,
                                    .refs = 1};
}

static void end(struct world *w)
{
    assert_int_equal(share_used(w->toolbox->outputs), 0);
    assert_null(w->call.ops);
    assert_int_equal(w->call.refs, 1);
    util_close(&w->agent);
    toolbox_stop(w->toolbox);
    toolbox_free(w->toolbox);
    while (uv_loop_close(&w->loop) == -EBUSY)
        uv_run(&w->loop, UV_RUN_NOWAIT);
}

/* A request, as far as it can come without its answer. */
static void ask(struct world *w, size_t max)
{
    struct toolbox_agent_request r = {.method = "GET",
                                      .target = strdup("/files"),
                                      .max_response_bytes = max,
                                      .done = done,
                                      .arg = w};
    struct gateway_answer a = {.gen = GEN, .fd = -1};
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    w->agent = fds[1];
    w->got = (struct answer){0};
    idle_connections_put(&w->toolbox->idle, SANDBOX, GEN, fds[0], clock_mono_ms());
    toolbox_agent(&w->call, &r);
    toolbox_answered(w->toolbox, w->ticket, &a);
    assert_int_equal(w->got.calls, 0);
}

/* The agent says so many bytes, as far as they are read. */
static void say(struct world *w, int status, size_t len)
{
    static char x[65536];
    char head[96];
    int n = snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", status,
                     len);

    memset(x, 'x', sizeof(x));
    assert_int_equal(send(w->agent, head, (size_t)n, MSG_NOSIGNAL), n);
    while (!w->got.calls) {
        ssize_t sent = len ? send(w->agent, x, MIN(len, sizeof(x)), MSG_NOSIGNAL) : 0;

        len -= sent > 0 ? (size_t)sent : 0;
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(w->got.calls, 1);
    util_close(&w->agent);
}

static void test_places_are_held_while_it_is_collected_and_read(void **state UNUSED)
{
    static const struct {
        size_t len, places;
    } cases[] = {{0, 0},
                 {TOOLBOX_OUTPUT_BYTES, 0},
                 {TOOLBOX_OUTPUT_BYTES + 1, 1},
                 {TOOLBOX_OUTPUT_BYTES + MIB, 1},
                 {TOOLBOX_OUTPUT_BYTES + MIB + 1, 2},
                 {TOOLBOX_COLLECTED_MAX, TOOLBOX_COLLECTED_MAX / MIB}};
    struct world w;

    begin(&w);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ask(&w, TOOLBOX_COLLECTED_MAX);
        say(&w, 200, cases[i].len);
        assert_int_equal(w.got.code, ERR_OK);
        assert_int_equal(w.got.status, 200);
        assert_int_equal(w.got.len, cases[i].len);
        assert_true(w.got.whole);
        assert_int_equal(w.got.places, cases[i].places);
        assert_int_equal(share_used(w.toolbox->outputs), 0);
    }
    end(&w);
}

static void test_a_longer_one_is_not_read_on(void **state UNUSED)
{
    struct world w;

    begin(&w);
    ask(&w, 2 * MIB);
    say(&w, 200, 2 * MIB + 1);
    assert_int_equal(w.got.code, ERR_TOO_LARGE);
    ask(&w, 2 * MIB); /* a refusal is no list */
    say(&w, 500, TOOLBOX_OUTPUT_BYTES + 1);
    assert_int_equal(w.got.code, ERR_TOO_LARGE);
    ask(&w, 2 * MIB);
    say(&w, 404, 3);
    assert_int_equal(w.got.code, ERR_OK);
    assert_int_equal(w.got.status, 404);
    assert_true(w.got.whole);
    end(&w);
}

/* The tenant's other sandbox holds what the tenant may; another tenant still has its own share. */
static void test_who_has_its_share_is_refused(void **state UNUSED)
{
    struct share *held[TOOLBOX_OUTPUTS_MAX];
    size_t n = 0;
    struct world w;

    begin(&w);
    while ((held[n] = share_take(w.toolbox->outputs, "one", "other")))
        n++;
    while ((held[n] = share_take(w.toolbox->outputs, "one", SANDBOX)))
        n++;
    ask(&w, TOOLBOX_COLLECTED_MAX);
    say(&w, 200, MIB);
    assert_int_equal(w.got.code, ERR_EXHAUSTED);
    ask(&w, TOOLBOX_COLLECTED_MAX);
    say(&w, 200, TOOLBOX_OUTPUT_BYTES); /* for nothing */
    assert_int_equal(w.got.code, ERR_OK);
    snprintf(w.call.tenant, sizeof(w.call.tenant), "two");
    ask(&w, TOOLBOX_COLLECTED_MAX);
    say(&w, 200, MIB);
    assert_int_equal(w.got.code, ERR_OK);
    assert_int_equal(share_used(w.toolbox->outputs), n);
    while (n > 0)
        share_return(held[--n]);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places_are_held_while_it_is_collected_and_read),
        cmocka_unit_test(test_a_longer_one_is_not_read_on),
        cmocka_unit_test(test_who_has_its_share_is_refused),
    };

    return cmocka_run_group_tests_name("toolbox_agent", tests, NULL, NULL);
}
