/* Whose archive is fetched next: accounts in turn, each with its share of the places. */
#include "base/util.h"
#include "privd/fetch_turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { NOBODY, MANY, OTHER, THIRD }; /* accounts */

static struct fetch_turns t;

static int clear(void **state)
{
    t = (struct fetch_turns){.count = 0};
    return 0;
}

static void add_all(uint32_t account, uint32_t first, uint32_t last)
{
    for (uint32_t n = first; n <= last; n++)
        fetch_turns_add(&t, n, account);
}

static uint32_t begin_next(void)
{
    uint32_t n = fetch_turns_next(&t);

    if (n)
        fetch_turns_begin(&t, n);
    return n;
}

static void an_account_leaves_a_place(void **state)
{
    add_all(MANY, 1, 100);
    assert_int_equal(begin_next(), 1);
    assert_int_equal(begin_next(), 2);
    assert_int_equal(begin_next(), 0); /* the last place is not for it */
    fetch_turns_add(&t, 500, OTHER);
    assert_int_equal(begin_next(), 500);
    assert_int_equal(begin_next(), 0);
    fetch_turns_end(&t, 500);
    assert_int_equal(begin_next(), 0);
    fetch_turns_end(&t, 1);
    assert_int_equal(begin_next(), 3);
}

/* All places are taken when the third asks: the next that is free is its, though the others have
 * asked for a hundred each before. */
static void a_newcomer_waits_for_one_place(void **state)
{
    add_all(MANY, 1, 100);
    add_all(OTHER, 101, 200);
    assert_int_equal(begin_next(), 1);
    assert_int_equal(begin_next(), 101);
    assert_int_equal(begin_next(), 0); /* of the last place neither has a share */
    fetch_turns_add(&t, 300, THIRD);
    assert_int_equal(begin_next(), 300);
    fetch_turns_add(&t, 301, THIRD);
    fetch_turns_end(&t, 1);
    assert_int_equal(begin_next(), 2); /* it waits for longer than the third's second */
    fetch_turns_end(&t, 101);
    assert_int_equal(begin_next(), 102);
    fetch_turns_end(&t, 300);
    assert_int_equal(begin_next(), 301);
}

/* With one place free at a time, each has every third one, whatever the numbers are. */
static void turns_go_round(void **state)
{
    uint32_t counts[4] = {0};

    add_all(THIRD, 1, 30);
    add_all(OTHER, 31, 60);
    add_all(MANY, 61, 300);
    while (begin_next())
        continue;
    for (size_t i = 0; i < 60; i++) {
        uint32_t n = t.running[i % FETCHES_MAX];

        assert_true(n != 0);
        counts[t.all[n].account]++;
        fetch_turns_end(&t, n);
        assert_int_equal(begin_next() != 0, true);
    }
    for (uint32_t a = MANY; a <= THIRD; a++)
        assert_in_range(counts[a], 19, 21);
}

/* Asking anew as soon as it is served brings an account nothing. */
static void asking_again_goes_behind(void **state)
{
    add_all(MANY, 1, 2);
    assert_int_equal(begin_next(), 1);
    assert_int_equal(begin_next(), 2);
    fetch_turns_add(&t, 10, OTHER);
    assert_int_equal(begin_next(), 10);
    fetch_turns_add(&t, 20, THIRD);
    fetch_turns_end(&t, 1);
    fetch_turns_add(&t, 1, MANY);
    assert_int_equal(begin_next(), 20);
}

static void of_one_account_the_first_comes_first(void **state)
{
    fetch_turns_add(&t, 9, MANY);
    fetch_turns_add(&t, 4, MANY);
    fetch_turns_add(&t, 7, MANY);
    fetch_turns_end(&t, 4); /* it was given up */
    assert_int_equal(begin_next(), 9);
    assert_int_equal(begin_next(), 7);
    assert_int_equal(begin_next(), 0);
}

static void the_last_number_is_one(void **state)
{
    add_all(MANY, PRIVSEP_KEPT_MAX, PRIVSEP_KEPT_MAX);
    assert_int_equal(begin_next(), PRIVSEP_KEPT_MAX);
    fetch_turns_end(&t, PRIVSEP_KEPT_MAX);
    assert_int_equal(begin_next(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_account_leaves_a_place, clear),
        cmocka_unit_test_setup(a_newcomer_waits_for_one_place, clear),
        cmocka_unit_test_setup(turns_go_round, clear),
        cmocka_unit_test_setup(asking_again_goes_behind, clear),
        cmocka_unit_test_setup(of_one_account_the_first_comes_first, clear),
        cmocka_unit_test_setup(the_last_number_is_one, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
