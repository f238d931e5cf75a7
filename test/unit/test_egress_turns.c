/* How the loop's time is shared out: flows that may go on in a turn, and those whose events are
 * left. The clock is the test's. */
#include "base/util.h"
#include "egress/http/rewrite.h"
#include "egress/tls/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FLOWS 12
#define LOUD  10                 /* flows of one owner; the others have one each */
#define WORK  (TURNS_NS * 2 / 5) /* ns of an event */
#define TURNS 120

static uint64_t now_ns, away_ns; /* for which another program has had the processor */
static uint64_t event_ns = WORK;

static uint64_t test_clock(void)
{
    return now_ns;
}

static uint64_t processor_clock(void)
{
    return now_ns - away_ns;
}

struct world {
    uv_loop_t loop;
    uv_idle_t alive;
    struct turns *turns;
    uint64_t owner[FLOWS];
    uint32_t round[FLOWS];
    unsigned worked[FLOWS];
};

static void on_idle(uv_idle_t *h)
{
}

static void open_world(struct world *w)
{
    *w = (struct world){.worked = {0}};
    uv_loop_init(&w->loop);
    uv_idle_init(&w->loop, &w->alive);
    uv_idle_start(&w->alive, on_idle);
    assert_int_equal(turns_new(&w->loop, &w->turns), 0);
    turns_set_clock(w->turns, test_clock, processor_clock);
    for (uint64_t i = 0; i < FLOWS; i++)
        w->owner[i] = i < LOUD ? 1 : i;
}

static void close_world(struct world *w)
{
    turns_free(w->turns);
    uv_close((uv_handle_t *)&w->alive, NULL);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}

static void next_turn(struct world *w)
{
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

/* An event of that flow. Was it worked on? */
static bool event(struct world *w, size_t flow)
{
    if (!turns_enter(w->turns, w->owner[flow], &w->round[flow]))
        return false;
    now_ns += event_ns;
    turns_exit(w->turns);
    w->worked[flow]++;
    return true;
}

/* Work that an event has left goes on in its turn while its owner has time, and no flow of that owner is passed by: a flow
 * that has always more to do, and is asked about first, has as many turns as one that has no events. */
static void test_what_is_left_of_an_event(void **state)
{
    struct world w;
    unsigned again[2] = {0, 0};

    open_world(&w);
    next_turn(&w);
    assert_true(event(&w, 0));
    assert_false(event(&w, 0)); /* the control: another event of it is of another round */
    assert_true(turns_enter_again(w.turns, w.owner[0], &w.round[0]));
    now_ns += TURNS_NS;
    assert_true(turns_is_over(w.turns));
    turns_exit(w.turns);
    assert_false(turns_enter_again(w.turns, w.owner[0], &w.round[0]));
    for (int turn = 0; turn < TURNS; turn++) {
        next_turn(&w);
        for (size_t flow = 0; flow < 2; flow++) {
            if (!turns_enter_again(w.turns, w.owner[flow], &w.round[flow]))
                continue;
            now_ns += TURNS_NS;
            turns_exit(w.turns);
            again[flow]++;
        }
    }
    assert_true(again[0] > TURNS / 8 && again[1] > TURNS / 8);
    assert_true(again[0] <= again[1] + 2 && again[1] <= again[0] + 2);
    close_world(&w);
}

/* All flows have something to do in every turn, and their events come in the same order. Returns the longest that any owner
 * worked in one turn. */
static uint64_t run(struct world *w)
{
    uint64_t longest = 0;

    for (int i = 0; i < TURNS; i++) {
        uint64_t began = now_ns;

        next_turn(w);
        for (size_t k = 0; k < LOUD; k++)
            event(w, k);
        longest = MAX(longest, now_ns - began);
        for (size_t k = LOUD; k < FLOWS; k++)
            event(w, k);
    }
    return longest;
}

/* Ten flows of one owner take no more of a turn than its share, each gets as much of it as the others though the first ones
 * always come first, and an owner of one flow goes on in each turn. */
static void test_an_owner_has_its_share(void **state)
{
    const unsigned each = TURNS * ((TURNS_NS + WORK - 1) / WORK) / LOUD;
    struct world w;

    open_world(&w);
    assert_in_range(run(&w), WORK, TURNS_NS + WORK);
    for (size_t i = 0; i < LOUD; i++)
        assert_in_range(w.worked[i], each / 2, each + 1);
    for (size_t i = LOUD; i < FLOWS; i++)
        assert_int_equal(w.worked[i], TURNS);
    close_world(&w);
}

/* -- tenants ----------------------------------------------------------------------------------- */

#define OF(tenant, owner) ((uint64_t)(tenant) << 32 | (owner))

/* Ten sandboxes of one tenant take no more of a turn together than four, while another tenant has work; each has as much of it
 * as the others though the first ones always come first, and the other tenant's goes on in each turn. The control: alone they
 * all work in each turn. */
static void test_a_tenant_has_its_share(void **state)
{
    const unsigned each = TURNS * TURNS_TENANT_NS / TURNS_NS / LOUD;
    struct world w;

    open_world(&w);
    event_ns = TURNS_NS - 1;
    for (uint64_t i = 0; i < FLOWS; i++)
        w.owner[i] = i < LOUD ? OF(1, i) : OF(2, i);
    now_ns = 1;
    event(&w, LOUD); /* another is beside from the start */
    event(&w, 0);
    memset(w.worked, 0, sizeof(w.worked));
    assert_in_range(run(&w), TURNS_TENANT_NS / 2, TURNS_TENANT_NS + TURNS_NS);
    for (size_t i = 0; i < LOUD; i++)
        assert_in_range(w.worked[i], each / 2, each + each / 2);
    for (size_t i = LOUD; i < FLOWS; i++)
        assert_in_range(w.worked[i], TURNS - 1, TURNS);
    close_world(&w);
    open_world(&w);
    for (int i = 0; i < TURNS; i++) {
        next_turn(&w);
        for (size_t k = 0; k < LOUD; k++) {
            w.owner[k] = OF(1, k);
            event(&w, k);
        }
    }
    for (size_t i = 0; i < LOUD; i++)
        assert_int_equal(w.worked[i], TURNS);
    close_world(&w);
    event_ns = WORK;
}

struct waiting {
    struct world *w;
    struct turn turn;
    unsigned went;
};

static void go_again(void *arg)
{
    struct waiting *one = arg;

    one->went++;
    now_ns += WORK;
    turns_wait(one->w->turns, &one->turn);
}

/* In line, too, tenants take turns, however many of their sandboxes wait; and those of a tenant. */
static void test_lines_are_by_tenant(void **state)
{
    struct waiting all[LOUD + 2];
    struct world w;
    unsigned loud = 0, least = UINT32_MAX, most = 0;

    open_world(&w);
    for (uint32_t i = 0; i < LOUD + 2; i++) {
        uint64_t owner = i < LOUD ? OF(1, i) : OF(i, i);

        all[i] = (struct waiting){&w, {.go = go_again, .arg = &all[i], .owner = owner}, 0};
        turns_wait(w.turns, &all[i].turn);
    }
    for (int i = 0; i < 10 * TURNS; i++)
        next_turn(&w);
    for (unsigned i = 0; i < LOUD; i++) {
        loud += all[i].went;
        least = MIN(least, all[i].went);
        most = MAX(most, all[i].went);
    }
    assert_in_range(all[LOUD].went, loud - 1, loud + 1);
    assert_in_range(all[LOUD + 1].went, loud - 1, loud + 1);
    assert_in_range(least, 1, most);
    assert_in_range(most, least, 4 * least);
    for (unsigned i = 0; i < LOUD + 2; i++)
        turns_leave(w.turns, &all[i].turn);
    close_world(&w);
}

/* How much of a searched answer one read takes. */
static size_t read_of(struct world *w, void *layer)
{
    const struct rewrite_share share = {.turns = w->turns, .owner = 1};
    struct http_relay_options o = {.layer = layer};
    struct redact *secrets = redact_new();
    size_t most;

    assert_int_equal(redact_add(secrets, "a-secret-value", 14), 0);
    assert_int_equal(rewrite_relay(&share, &w->loop, NULL, secrets, &o), 0);
    most = o.filter->most(o.filter_arg);
    o.filter->free(o.filter_arg);
    return most;
}

/* Where another owner is beside, a searched flow reads what a turn has; behind TLS, whose records are whole, one of those. */
static void test_searched_reads(void **state)
{
    struct world w;

    open_world(&w);
    event(&w, 0);
    event(&w, LOUD);
    next_turn(&w);
    assert_int_equal(read_of(&w, NULL), TURNS_BESIDE_BYTES);
    assert_int_equal(read_of(&w, &w), HTTP_LAYER_READ_BYTES);
    now_ns += TURNS_ALONE_NS + 1;
    next_turn(&w);
    assert_int_equal(read_of(&w, NULL), TURNS_BYTES);
    assert_int_equal(read_of(&w, &w), TURNS_BYTES);
    close_world(&w);
}

/* The control: without turns, all of them work in each turn. */
static void test_without_turns(void **state)
{
    struct world w;
    struct turns *turns;

    open_world(&w);
    turns = w.turns;
    w.turns = NULL;
    for (int i = 0; i < TURNS; i++)
        for (size_t k = 0; k < FLOWS; k++)
            assert_true(event(&w, k));
    w.turns = turns;
    close_world(&w);
}

/* A flow that has the loop for itself may work for longer, and in larger pieces; not once
 * another has come. */
static void test_alone(void **state)
{
    struct world w;

    open_world(&w);
    event(&w, 0);
    now_ns += TURNS_ALONE_NS + 1;
    next_turn(&w);
    assert_true(turns_enter(w.turns, w.owner[0], &w.round[0]));
    assert_true(turns_piece(w.turns) == SIZE_MAX);
    assert_int_equal(turns_bytes(w.turns), TURNS_BYTES);
    now_ns += TURNS_LONG_NS - 1;
    assert_false(turns_is_over(w.turns));
    now_ns++;
    assert_true(turns_is_over(w.turns));
    turns_exit(w.turns);
    next_turn(&w);
    event(&w, LOUD);
    for (unsigned i = 0; i < TURNS_LONG_NS / TURNS_NS; i++) /* what it did alone is owed now */
        next_turn(&w);
    assert_true(turns_enter(w.turns, w.owner[0], &w.round[0]));
    assert_int_equal(turns_piece(w.turns), TURNS_PIECE);
    assert_int_equal(turns_bytes(w.turns), TURNS_BESIDE_BYTES);
    now_ns += TURNS_NS;
    assert_true(turns_is_over(w.turns));
    turns_exit(w.turns);
    close_world(&w);
}

/* Turns in which an owner's flow is left after an event of so many ns, while another's goes on in each. */
static unsigned turns_left_after(struct world *w, uint64_t ns)
{
    unsigned left = 0;

    next_turn(w);
    assert_true(event(w, LOUD));
    assert_true(turns_enter(w->turns, w->owner[0], &w->round[0]));
    now_ns += ns;
    turns_exit(w->turns);
    for (;; left++) {
        next_turn(w);
        assert_true(event(w, LOUD));
        if (event(w, 0))
            return left;
    }
}

/* Turns until a flow's next event is worked on, beside another owner, after one in the middle of which another program had the
 * processor for so long. */
static unsigned turns_after(struct world *w, uint64_t work_ns, uint64_t gone_ns)
{
    const size_t flow = LOUD, other = LOUD + 1;
    unsigned n = 0;

    next_turn(w);
    assert_true(event(w, other));
    assert_true(turns_enter(w->turns, w->owner[flow], &w->round[flow]));
    now_ns += work_ns + gone_ns;
    away_ns += gone_ns;
    turns_exit(w->turns);
    do {
        next_turn(w);
        event(w, other);
        n++;
    } while (!event(w, flow) && n < TURNS);
    for (unsigned i = 0; i < TURNS; i++) /* turns still owed */
        next_turn(w);
    return n;
}

static void test_time_of_other_programs_is_not_owed(void **state)
{
    struct world w;

    open_world(&w);
    assert_int_equal(turns_after(&w, WORK, 0), 1);
    assert_int_equal(turns_after(&w, WORK, 20 * (uint64_t)TURNS_NS), 1);
    assert_int_equal(turns_after(&w, 20 * (uint64_t)TURNS_NS, 0), 20); /* the control: its own */
    assert_in_range(turns_after(&w, 5 * (uint64_t)TURNS_NS, 20 * (uint64_t)TURNS_NS), 5, 6);
    close_world(&w);
}

/* Work that cannot be divided, as a signature of a handshake, is paid for in the turns after it; not
 * for ever. */
static void test_what_takes_longer_is_owed(void **state)
{
    struct world w;

    open_world(&w);
    assert_int_equal(turns_left_after(&w, TURNS_NS - 1), 0);
    for (int i = 0; i < 3; i++)
        next_turn(&w);
    assert_int_equal(turns_left_after(&w, 10 * TURNS_NS), 9);
    for (int i = 0; i < 3; i++)
        next_turn(&w);
    assert_int_equal(turns_left_after(&w, UINT64_C(1000) * TURNS_OWED_NS),
                     TURNS_OWED_NS / TURNS_NS);
    close_world(&w);
}

/* -- lines ------------------------------------------------------------------------------------- */

struct waiter {
    struct turn turn;
    struct world *world;
    unsigned went, *order;
};

static void go(void *arg)
{
    struct waiter *w = arg;

    now_ns += WORK;
    w->went = ++*w->order;
}

/* Work that does not come again waits in line, in order, and a turn works on no more than a
 * share of it. */
static void test_lines_are_worked_on_for_a_share(void **state)
{
    struct waiter list[8];
    unsigned order = 0;
    struct world w;

    open_world(&w);
    next_turn(&w);
    for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
        list[i] = (struct waiter){.world = &w, .order = &order};
        list[i].turn = (struct turn){.go = go, .arg = &list[i], .owner = 1};
        turns_wait(w.turns, &list[i].turn);
    }
    assert_false(turns_enter_once(w.turns, 1)); /* others wait already */
    assert_true(turns_enter_once(w.turns, 2));
    turns_exit(w.turns);
    for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
        uint64_t began = now_ns;

        next_turn(&w);
        assert_in_range(now_ns - began, 0, TURNS_NS + WORK);
        assert_true(order > i || order == ARRAY_SIZE(list));
    }
    for (size_t i = 0; i < ARRAY_SIZE(list); i++)
        assert_int_equal(list[i].went, i + 1);
    assert_true(turns_enter_once(w.turns, 1));
    turns_exit(w.turns);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_owner_has_its_share),
        cmocka_unit_test(test_a_tenant_has_its_share),
        cmocka_unit_test(test_lines_are_by_tenant),
        cmocka_unit_test(test_searched_reads),
        cmocka_unit_test(test_without_turns),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_what_takes_longer_is_owed),
        cmocka_unit_test(test_time_of_other_programs_is_not_owed),
        cmocka_unit_test(test_what_is_left_of_an_event),
        cmocka_unit_test(test_lines_are_worked_on_for_a_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
