/* Requests that were sent together, where the loop's time is shared out (http_server_config.enter): each piece of work is entered,
 * ends when it is over, and waits where it may not begin. The test says what is over. */
#include "http_fixture.h"

#define REQUEST  "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
#define REQUESTS 60
#define LONG     64 /* requests in one go, more than a connection may have in any case */

struct turns_test {
    struct fixture f;
    bool inside;
    int entered, put_off; /* how often it is still to be put off */
    int most;             /* requests that may be served before a turn is over */
    int served, longest;  /* in this turn, and in any */
};

static struct buf got;

static size_t enter(void *ctx, uint64_t tag, bool again, uint32_t *round)
{
    struct turns_test *t = CONTAINER_OF(ctx, struct turns_test, f);

    assert_int_equal(tag, 7);
    assert_false(t->inside);
    if (t->put_off > 0) {
        t->put_off--;
        return 0;
    }
    t->inside = true;
    t->entered++;
    t->served = 0;
    return SIZE_MAX;
}

static bool is_over(void *ctx)
{
    const struct turns_test *t = CONTAINER_OF(ctx, struct turns_test, f);

    return t->served >= t->most;
}

static void leave(void *ctx)
{
    struct turns_test *t = CONTAINER_OF(ctx, struct turns_test, f);

    assert_true(t->inside);
    t->inside = false;
}

static void handler(struct http_exchange *x, void *ctx)
{
    struct turns_test *t = CONTAINER_OF(ctx, struct turns_test, f);

    assert_true(t->inside);
    t->f.calls++;
    t->served++;
    t->longest = MAX(t->longest, t->served);
    http_respond(x, 403, NULL, 0, "", 0);
}

static void serve_pipelined(struct turns_test *t, int most, int put_off)
{
    struct http_server_config c;
    int pair[2], answers = 0;

    http_server_config_default(&c);
    c.enter = enter;
    c.is_over = is_over;
    c.leave = leave;
    fixture_start(&t->f, &c, handler);
    t->most = most;
    t->put_off = put_off;
    t->entered = t->longest = 0;
    fixture_tcp_pair(pair);
    assert_int_equal(http_server_adopt_tagged(t->f.server, pair[1], 7), 0);
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(send(pair[0], REQUEST, strlen(REQUEST), 0), (ssize_t)strlen(REQUEST));
    assert_int_equal(fixture_recv(&t->f, pair[0], &got), FIXTURE_OPEN);
    for (const char *at = got.data; (at = strstr(at, "HTTP/1.1 403")); at++)
        answers++;
    assert_int_equal(answers, REQUESTS);
    assert_int_equal(t->f.calls, REQUESTS);
    close(pair[0]);
    fixture_spin(&t->f);
    fixture_stop(&t->f);
}

/* A request that is refused takes longer than what a sandbox has of a turn of cay-egress's loop. */
static void test_one_request_where_that_is_over(void **state)
{
    struct turns_test t = {.inside = false};

    serve_pipelined(&t, LONG, 0);
    assert_true(t.longest > 1); /* the control: as many as a connection may have */
    serve_pipelined(&t, 1, 0);
    assert_int_equal(t.longest, 1);
    assert_true(t.entered >= REQUESTS);
}

static void test_put_off(void **state)
{
    struct turns_test t = {.inside = false};

    serve_pipelined(&t, 3, 5);
    assert_int_equal(t.put_off, 0);
    assert_int_equal(t.longest, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_request_where_that_is_over),
        cmocka_unit_test(test_put_off),
    };
    int r;

    buf_init(&got, 1u << 20);
    r = cmocka_run_group_tests(tests, NULL, NULL);
    buf_free(&got);
    return r;
}
