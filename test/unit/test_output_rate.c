/* The bound on how fast the output of a sandbox's processes is carried. */
#include "agent/process/output_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RATE (1u << 20)
#define READ (32u * 1024u)

/* Carries all it may at that time. */
static uint64_t carry(struct output_rate *r, uint64_t now_ms)
{
    uint64_t carried = 0;

    for (; output_rate_allows(r, now_ms); carried += READ)
        output_rate_charge(r, READ);
    return carried;
}

static void test_a_second_at_once_and_then_the_rate(void **state)
{
    struct output_rate r;
    uint64_t now_ms = 1000, carried, waits = 0;

    output_rate_set(&r, RATE, now_ms);
    carried = carry(&r, now_ms);
    assert_int_equal(carried, RATE);
    for (; now_ms < 11000; waits++) {
        now_ms += output_rate_wait_ms(&r);
        assert_true(
            output_rate_allows(&r, now_ms)); /* a writer that has waited is never sent back */
        carried += carry(&r, now_ms);
    }
    assert_in_range(carried, 11 * RATE - READ, 11 * RATE + 2 * READ);
    assert_in_range(waits, 100, 10 * 128); /* not one for each millisecond */
}

static void test_a_rest_gives_no_more_than_a_second(void **state)
{
    struct output_rate r;

    output_rate_set(&r, RATE, 1000);
    (void)carry(&r, 1000);
    assert_int_equal(carry(&r, 500), 0); /* a clock that stands, or goes back, gives nothing */
    assert_int_equal(carry(&r, 31000), RATE);
    assert_int_equal(carry(&r, UINT64_MAX), RATE);
}

static void test_what_is_beyond_is_owed(void **state)
{
    struct output_rate r;

    output_rate_set(&r, RATE, 1000);
    output_rate_charge(&r, 3 * (uint64_t)RATE); /* the pipe of a process that has ended */
    assert_false(output_rate_allows(&r, 2999));
    assert_in_range(output_rate_wait_ms(&r), 1, 100);
    assert_true(output_rate_allows(&r, 3100));
}

static void test_none(void **state)
{
    struct output_rate r = {0};

    output_rate_charge(&r, UINT32_MAX);
    assert_true(output_rate_allows(&r, 1));
    assert_int_equal(output_rate_wait_ms(&r), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_at_once_and_then_the_rate),
        cmocka_unit_test(test_a_rest_gives_no_more_than_a_second),
        cmocka_unit_test(test_what_is_beyond_is_owed),
        cmocka_unit_test(test_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
