/* The events that cay-egress sends to cayd by itself: refusals within a rate, a count of the others, and a
 * watcher that does not read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "egress/flow/denial.h"
#include "egress/flow/egress.h"
#include "egress/flow/event_stream.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "http/server.h"
#include "policy/policy.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define WAIT_MS   10000u
#define SANDBOXES 300u

struct world {
    uv_loop_t loop;
    struct egress egress;
    struct http_server *server;
    int watcher; /* the other end of a watcher's connection; -1: none */
    struct buf in;
    unsigned stopped;
    int64_t told, dropped; /* that were read */
};

static void handle(struct http_exchange *x, void *ctx)
{
    event_stream_watch(((struct world *)ctx)->egress.event_stream, x);
}

static int setup(void **state)
{
    struct http_server_config config;
    struct world *w = calloc(1, sizeof(*w));

    assert_int_equal(uv_loop_init(&w->loop), 0);
    w->egress.loop = &w->loop;
    w->egress.config.shards = 1;
    w->watcher = -1;
    buf_init(&w->in, 64u << 20);
    http_server_config_default(&config);
    assert_int_equal(registry_new(&w->egress, &w->egress.registry), 0);
    assert_int_equal(event_stream_new(&w->egress, &w->egress.event_stream), 0);
    assert_int_equal(http_server_new(&w->loop, &config, handle, w, &w->server), 0);
    *state = w;
    return 0;
}

static void on_stopped(void *ctx)
{
    struct world *w = ctx;

    w->stopped = 1;
    event_stream_free(TAKE_PTR(w->egress.event_stream));
}

static int teardown(void **state)
{
    struct world *w = *state;

    registry_free(w->egress.registry);
    http_server_stop(w->server, 0, on_stopped, w);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(w->stopped, 1);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    util_close(&w->watcher);
    buf_free(&w->in);
    free(w);
    return 0;
}

/* The watcher's end, which reads only when it is told to. */
static void watch(struct world *w)
{
    static const char request[] = "GET /v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n";
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(write(ends[0], request, sizeof(request) - 1), sizeof(request) - 1);
    assert_int_equal(http_server_adopt(w->server, ends[1]), 0);
    w->watcher = ends[0];
    for (int i = 0; i < 10; i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
}

static struct sandbox *sandbox(struct world *w, uint32_t slot)
{
    struct sandbox_rules rules = {.tenant = "one"};
    json_t *policy = json_pack("{s:s}", "default", "deny");
    struct err e;

    snprintf(rules.id, sizeof(rules.id), "i%020u", slot);
    assert_int_equal(policy_new(policy, &rules.policy, &e), ERR_OK);
    json_decref(policy);
    assert_int_equal(registry_policy(&w->egress, slot, 1, &rules, &e), ERR_OK);
    return registry_find(&w->egress, slot, 1, 0);
}

static void refuse(struct world *w, struct sandbox *s)
{
    struct denial d = {.port = 443, .name = "a.example.com", .rule = "default"};

    memset(d.reason, '"', sizeof(d.reason) - 1);
    event_stream_denial(&w->egress, s, &d);
}

static void take_line(struct world *w, const char *line, size_t n)
{
    json_t *o = line[0] == '{' ? json_loadb(line, n, 0, NULL) : NULL;
    const char *event = json_string_value(json_object_get(o, "event"));

    if (event && strcmp(event, "denial") == 0)
        w->told++;
    else if (event && strcmp(event, "dropped") == 0)
        w->dropped += json_integer_value(json_object_get(o, "count"));
    json_decref(o);
}

/* Reads the bytes that are there, a turn of the loop long. */
static void read_some(struct world *w)
{
    char piece[65536], *end;
    ssize_t n;

    uv_run(&w->loop, UV_RUN_NOWAIT);
    n = read(w->watcher, piece, sizeof(piece));
    if (n > 0)
        assert_int_equal(buf_append(&w->in, piece, (size_t)n), 0);
    while (w->in.len > 0 && (end = memchr(w->in.data, '\n', w->in.len))) {
        take_line(w, w->in.data, (size_t)(end - w->in.data));
        buf_consume(&w->in, (size_t)(end - w->in.data) + 1);
    }
}

static void read_until(struct world *w, int64_t total)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (w->told + w->dropped < total && clock_mono_ms() < end) {
        read_some(w);
        usleep(1000);
    }
    assert_int_equal(w->told + w->dropped, total);
}

static void what_is_beyond_the_rate_is_counted(void **state)
{
    struct world *w = *state;
    struct sandbox *s = sandbox(w, 1), *quiet = sandbox(w, 2);

    watch(w);
    for (unsigned i = 0; i < 10000; i++)
        refuse(w, s);
    refuse(w, quiet);
    read_until(w, 10001);
    assert_true(w->told >= EVENT_STREAM_PER_SECOND + 1 && w->dropped > 0);
    assert_int_equal(s->unannounced, 0);
    assert_int_equal(quiet->unannounced, 0);
}

static void a_watcher_that_does_not_read_makes_nothing_grow(void **state)
{
    struct sandbox *all[SANDBOXES];
    struct world *w = *state;
    int64_t unannounced = 0;

    for (uint32_t i = 0; i < SANDBOXES; i++)
        all[i] = sandbox(w, i);
    watch(w);
    for (unsigned k = 0; k < 50; k++) {
        for (uint32_t i = 0; i < SANDBOXES; i++)
            refuse(w, all[i]);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    for (uint32_t i = 0; i < SANDBOXES; i++)
        unannounced += (int64_t)all[i]->unannounced;
    /* By the rate alone 20 each would have been told. */
    assert_true(unannounced > (int64_t)SANDBOXES * (50 - EVENT_STREAM_PER_SECOND));
    read_until(w, 50 * (int64_t)SANDBOXES);
    assert_true(w->told > 0);
}

static void an_end_tells_what_was_counted(void **state)
{
    struct world *w = *state;
    struct sandbox *s = sandbox(w, 3);

    watch(w);
    for (unsigned i = 0; i < 1000; i++)
        refuse(w, s);
    registry_close(&w->egress, 3, 1, 0);
    read_until(w, 1000);
}

static void without_a_watcher_nothing_is_kept(void **state)
{
    struct world *w = *state;
    struct sandbox *s = sandbox(w, 4);

    for (unsigned i = 0; i < 1000; i++)
        refuse(w, s);
    assert_int_equal(s->unannounced, 0);
    watch(w);
    refuse(w, s);
    read_until(w, 1);
    assert_int_equal(w->told, 1);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_beyond_the_rate_is_counted),
        TEST(a_watcher_that_does_not_read_makes_nothing_grow),
        TEST(an_end_tells_what_was_counted),
        TEST(without_a_watcher_nothing_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
