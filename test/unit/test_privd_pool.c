/* The pool's rule: which creates may have a member, how many members each kind is to have, and when
 * they give way. Pure functions of src/privd/pool.c, and src/base/meminfo.c. */
#include "base/meminfo.h"
#include "privd/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct slot_kind kind(uint32_t template_number)
{
    return (struct slot_kind){.template_number = template_number,
                              .limits = {.memory_bytes = 64u << 20, .pids = 64}};
}

static void note(struct pool *p, uint32_t template_number, unsigned times, uint64_t now_ms)
{
    struct slot_kind k = kind(template_number);

    for (unsigned i = 0; i < times; i++)
        pool_note(p, &k, now_ms);
}

static const struct pool_row *row_of(struct pool *p, uint32_t template_number)
{
    struct slot_kind k = kind(template_number);

    return pool_find(p, &k);
}

static uint32_t target(struct pool *p, uint32_t template_number)
{
    const struct pool_row *row = row_of(p, template_number);

    return row ? row->target : 0;
}

/* -- which creates ----------------------------------------------------------------------------- */

/* The fields that a create may set and have a member: each byte of the request is tried. */
static const struct {
    size_t at, size;
} allowed[] = {
#define MAY(f)                                                                                  \
    {                                                                                           \
        offsetof(struct privsep_msg, u.create.f), sizeof(((struct privsep_msg *)0)->u.create.f) \
    }
    MAY(template_number),
    MAY(level),
    MAY(id),
    MAY(key),
    MAY(limits.memory_bytes),
    MAY(limits.disk_bytes),
    MAY(limits.cpu_milli),
    MAY(limits.pids),
    MAY(limits.open_files),
    MAY(kept), /* alone: files */
};

static bool is_allowed(size_t at)
{
    for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
        if (at >= allowed[i].at && at < allowed[i].at + allowed[i].size)
            return true;
    return false;
}

static void a_create_that_asks_for_more_is_made_the_usual_way(void **state)
{
    struct privsep_msg m = {.op = PRIVSEP_CREATE};
    size_t first = offsetof(struct privsep_msg, u.raw);

    assert_true(pool_may_claim(&m));
    for (size_t at = first; at < first + sizeof(m.u.raw); at++) {
        ((uint8_t *)&m)[at] = 1;
        if (pool_may_claim(&m) != is_allowed(at))
            fail_msg("byte %zu of a create is %s", at - first,
                     is_allowed(at) ? "refused" : "not in the table, and a member would not know");
        ((uint8_t *)&m)[at] = 0;
    }
}

static void volumes_filters_and_flags_without_files_are_among_them(void **state)
{
    struct privsep_msg m = {.u.create.volumes[3].number = 1};

    assert_false(pool_may_claim(&m));
    m = (struct privsep_msg){.u.create.limits.filters = PRIVSEP_FILTERS};
    assert_false(pool_may_claim(&m));
    m = (struct privsep_msg){.u.create.flags = PRIVSEP_CREATE_COPY};
    assert_false(pool_may_claim(&m));
}

/* A member of the template is given them, taken or copied; its kind is that of a create without
 * any. With memory, or with what else a create may have, it is started for them. */
static void kept_files_alone_are_given_to_a_member(void **state)
{
    static const struct {
        uint32_t flags;
        bool may;
    } cases[] = {
        {0, true},
        {PRIVSEP_CREATE_COPY, true},
        {PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_LAST, true},
        {PRIVSEP_CREATE_MEMORY, false},
        {PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_MEMORY, false},
        {PRIVSEP_CREATE_POOL, false},
        {PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_POOL, false},
        {1u << 31, false},
    };
    struct privsep_msg m = {
        .op = PRIVSEP_CREATE,
        .u.create = {.template_number = 1, .kept = 7, .account = 3, .limits.pids = 64}};
    struct privsep_msg plain = m;

    memset(m.u.create.owner, 'o', sizeof(m.u.create.owner));
    plain.u.create.kept = plain.u.create.account = 0;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct slot_kind of_files, of_none = pool_kind(&plain);

        m.u.create.flags = cases[i].flags;
        of_files = pool_kind(&m);
        assert_int_equal(pool_may_claim(&m), cases[i].may);
        assert_memory_equal(&of_files, &of_none, sizeof(of_files));
    }
    m.u.create.flags = PRIVSEP_CREATE_COPY;
    m.u.create.volumes[0].number = 1;
    assert_false(pool_may_claim(&m));
}

static struct privsep_msg with_memory(void)
{
    struct privsep_msg m = {.op = PRIVSEP_CREATE,
                            .u.create = {.template_number = 1,
                                         .flags = PRIVSEP_CREATE_OF_POOL,
                                         .kept = 7,
                                         .account = 3,
                                         .limits.memory_bytes = 64u << 20}};

    memset(m.u.create.owner, 'o', sizeof(m.u.create.owner));
    return m;
}

/* Memory that others begin with too, and with nothing more; who names one flag less has none. */
static void memory_is_claimed_where_all_flags_say_so(void **state)
{
    struct privsep_msg m = with_memory();

    assert_true(pool_may_claim(&m));
    m.u.create.volumes[0].number = 1;
    assert_false(pool_may_claim(&m));
    for (uint32_t flag = 1; flag <= PRIVSEP_CREATE_POOL; flag <<= 1) {
        m = with_memory();
        m.u.create.flags &= ~flag;
        assert_false(pool_may_claim(&m));
        assert_int_equal(pool_kind(&m).kept, 0);
    }
    m = with_memory();
    m.u.create.kept = 0;
    assert_false(pool_may_claim(&m));
}

/* A number is used again, by another owner: its members are not found by that. */
static void memory_of_another_owner_is_another_kind(void **state)
{
    struct pool p = {0};
    struct privsep_msg m = with_memory();
    struct slot_kind mine = pool_kind(&m), plain = mine;

    pool_aim(&p, 8);
    pool_note(&p, &mine, 0);
    assert_non_null(pool_find(&p, &mine));
    m.u.create.account = 4; /* a published template's: the asking tenant is of no matter */
    mine = pool_kind(&m);
    assert_non_null(pool_find(&p, &mine));
    m.u.create.owner[15] ^= 1;
    mine = pool_kind(&m);
    assert_null(pool_find(&p, &mine));
    plain.kept = plain.flags = 0;
    memset(plain.owner, 0, sizeof(plain.owner));
    assert_null(pool_find(&p, &plain));
}

static void two_of_a_kind_are_restored_ahead_and_none_once_it_goes(void **state)
{
    struct pool p = {0};
    struct privsep_msg m = with_memory();
    struct slot_kind k = pool_kind(&m);

    pool_aim(&p, 8);
    for (int i = 0; i < 100; i++)
        pool_note(&p, &k, 0);
    note(&p, 1, 1, 0);
    assert_int_equal(pool_find(&p, &k)->target, POOL_WITH_MEMORY);
    pool_forget_kept(&p, 8, k.owner);
    pool_forget_kept(&p, 7, (uint8_t[PRIVSEP_OWNER_SIZE]){1});
    assert_non_null(pool_find(&p, &k)); /* the control */
    pool_forget_kept(&p, 7, k.owner);
    assert_null(pool_find(&p, &k));
    assert_int_equal(target(&p, 1), 8);
}

/* A member of other limits is never found, whichever of them differs. */
static void each_limit_makes_a_kind_of_its_own(void **state)
{
    struct pool p = {0};
    struct slot_kind k = kind(1), other;
    size_t at = offsetof(struct slot_kind, limits);

    pool_aim(&p, 8);
    pool_note(&p, &k, 0);
    assert_non_null(pool_find(&p, &k));
    for (size_t i = 0; i < sizeof(k); i++) {
        other = k;
        ((uint8_t *)&other)[i] ^= 1;
        assert_null(pool_find(&p, &other));
    }
    assert_int_equal(at + sizeof(k.limits), sizeof(k)); /* all of it was tried: it has no padding */
}

/* -- how many ---------------------------------------------------------------------------------- */

static void one_kind_has_all(void **state)
{
    struct pool p = {0};

    pool_aim(&p, 8);
    assert_int_equal(pool_targets(&p), 0); /* nothing was asked for */
    note(&p, 1, 1, 0);
    assert_int_equal(target(&p, 1), 8);
    note(&p, 1, 1000, 1);
    assert_int_equal(target(&p, 1), 8);
}

static void targets_follow_what_was_asked_for(void **state)
{
    static const struct {
        unsigned a, b, c; /* creates of three templates */
        uint32_t most;    /* members */
        uint32_t to_a, to_b, to_c;
    } rows[] = {
        {10, 10, 0, 8, 4, 4, 0},  {30, 10, 0, 8, 6, 2, 0}, {100, 1, 0, 8, 8, 0, 0},
        {100, 3, 0, 8, 8, 0, 0},  {100, 4, 0, 8, 7, 1, 0}, {100, 4, 4, 8, 6, 1, 1},
        {10, 10, 10, 8, 4, 2, 2}, {50, 4, 4, 2, 1, 1, 0},  {50, 4, 4, 1, 1, 0, 0},
        {5, 6, 7, 0, 0, 0, 0},    {1, 1, 0, 8, 4, 4, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pool p = {0};

        pool_aim(&p, rows[i].most);
        note(&p, 1, rows[i].a, 0);
        note(&p, 2, rows[i].b, 0);
        note(&p, 3, rows[i].c, 0);
        if (target(&p, 1) != rows[i].to_a || target(&p, 2) != rows[i].to_b ||
            target(&p, 3) != rows[i].to_c)
            fail_msg("row %zu: %u %u %u", i, target(&p, 1), target(&p, 2), target(&p, 3));
        assert_true(pool_targets(&p) <= rows[i].most);
    }
}

static void what_was_long_ago_counts_less(void **state)
{
    struct pool p = {0};

    pool_aim(&p, 8);
    note(&p, 1, 16, 0);
    note(&p, 2, 16, 2 * POOL_HALF_MS); /* the first have become 4 */
    assert_int_equal(target(&p, 1), 1);
    assert_int_equal(target(&p, 2), 7);
    note(&p, 3, 1, 1000 * POOL_HALF_MS);
    assert_int_equal(target(&p, 3), 8);
    assert_int_equal(target(&p, 1) + target(&p, 2), 0);
}

/* A kind that is asked for once in a while does not push out one that is in use. */
static void a_ninth_kind_waits_for_a_row(void **state)
{
    struct pool p = {0};

    pool_aim(&p, 8);
    for (uint32_t n = 1; n <= POOL_ROWS; n++)
        note(&p, n, 4, 0);
    note(&p, POOL_ROWS + 1, 1, 1);
    assert_null(row_of(&p, POOL_ROWS + 1));
    assert_int_equal(pool_targets(&p), 8);
    note(&p, POOL_ROWS + 1, 1, 3 * POOL_HALF_MS); /* 4 have become a half */
    assert_non_null(row_of(&p, POOL_ROWS + 1));
}

/* A create in 15 s for each of eight kinds costs their tenant little; another's kind, of which ten
 * are created meanwhile, has members all the same, and keeps them. */
static void eight_kinds_do_not_keep_the_rows_from_one_that_is_asked_for_more(void **state)
{
    struct pool p = {0};
    const uint32_t wanted = POOL_ROWS + 1;
    uint64_t now_ms = 0;

    pool_aim(&p, 8);
    for (unsigned turn = 0; turn < 40; turn++, now_ms += POOL_HALF_MS / 2) {
        for (uint32_t n = 1; n <= POOL_ROWS; n++)
            note(&p, n, 1, now_ms);
        if (turn >= 20)
            note(&p, wanted, 10, now_ms);
        if (turn == 19)
            assert_null(row_of(&p, wanted));
        if (turn >= 22)
            assert_true(target(&p, wanted) > 0);
    }
}

/* Creates of which each is of another kind take no row from one with more than all of them. */
static void creates_of_many_kinds_leave_the_busy_their_rows(void **state)
{
    struct pool p = {0};
    uint32_t ids[POOL_ROWS];

    pool_aim(&p, 8);
    for (uint32_t n = 1; n <= POOL_ROWS; n++)
        note(&p, n, n < POOL_ROWS ? 40 : 2, 0);
    for (uint32_t n = 1; n < POOL_ROWS; n++)
        ids[n] = row_of(&p, n)->id;
    for (uint32_t n = 100; n < 130; n++)
        note(&p, n, 1, 0);
    for (uint32_t n = 1; n < POOL_ROWS; n++)
        assert_int_equal(row_of(&p, n)->id, ids[n]);
}

/* A row that is another's now does not know members of the one before. */
static void members_of_an_evicted_row_are_of_none(void **state)
{
    struct pool p = {0};
    uint32_t ids[POOL_ROWS];

    pool_aim(&p, 8);
    for (uint32_t n = 1; n <= POOL_ROWS; n++) {
        note(&p, n, 1, 0);
        ids[n - 1] = row_of(&p, n)->id;
    }
    note(&p, 100, 1, 2 * POOL_HALF_MS);
    assert_null(pool_row(&p, ids[0]));
    assert_non_null(pool_row(&p, ids[1]));
    assert_null(pool_row(&p, 0));
}

static void a_template_that_is_built_anew_has_no_member(void **state)
{
    struct pool p = {0};
    struct slot_kind k = kind(7);
    uint32_t id, other;

    pool_aim(&p, 8);
    note(&p, 7, 8, 0);
    note(&p, 8, 8, 0);
    id = row_of(&p, 7)->id;
    other = row_of(&p, 8)->id;
    pool_find(&p, &k)->ready = 3;
    pool_renew(&p, 7);
    assert_null(pool_row(&p, id));
    assert_non_null(pool_row(&p, other));
    assert_int_equal(row_of(&p, 7)->ready, 0);
    assert_int_equal(target(&p, 7), 4); /* it is filled again */
    pool_forget(&p, 7);
    assert_null(row_of(&p, 7));
    assert_int_equal(target(&p, 8), 8);
}

static void a_row_that_fails_rests_until_it_is_asked_for(void **state)
{
    struct pool p = {0};
    struct slot_kind k = kind(1);

    pool_aim(&p, 8);
    note(&p, 1, 5, 0);
    pool_rest(&p, pool_find(&p, &k));
    assert_int_equal(pool_targets(&p), 0);
    note(&p, 1, 1, 0);
    assert_int_equal(target(&p, 1), 8);
}

/* -- giving way -------------------------------------------------------------------------------- */

static void a_member_too_many_goes_only_where_room_is_needed(void **state)
{
    struct pool p = {0};
    struct slot_kind k = kind(1);

    pool_aim(&p, 8);
    note(&p, 1, 8, 0);
    pool_find(&p, &k)->ready = 8;
    assert_null(pool_surplus(&p));
    note(&p, 2, 8, 0);
    assert_ptr_equal(pool_surplus(&p), pool_find(&p, &k));
    pool_find(&p, &k)->ready = 7; /* there is room for one of the other */
    assert_null(pool_surplus(&p));
}

/* Members of a kind that is asked for less now stand, and hold back no slot for another kind. */
static void those_beyond_a_target_are_not_within(void **state)
{
    struct pool p = {0};
    struct privsep_msg m = with_memory();
    struct slot_kind one = kind(1), k = pool_kind(&m);

    pool_aim(&p, 8);
    note(&p, 1, 4, 0);
    pool_find(&p, &one)->ready = 7;
    assert_int_equal(pool_within(&p), 7);
    for (int i = 0; i < 100; i++)
        pool_note(&p, &k, 0);
    pool_find(&p, &k)->ready = 1;
    assert_int_equal(pool_targets(&p), POOL_WITH_MEMORY + target(&p, 1));
    assert_int_equal(pool_within(&p), 1 + target(&p, 1));
    assert_true(target(&p, 1) < 7);
    pool_aim(&p, 0);
    assert_int_equal(pool_within(&p), 0);
}

static void all_go_where_memory_is_short(void **state)
{
    struct pool p = {0};
    struct slot_kind k = kind(1);

    pool_aim(&p, 8);
    note(&p, 1, 8, 0);
    pool_find(&p, &k)->ready = 1;
    pool_aim(&p, 0);
    assert_int_equal(pool_targets(&p), 0);
    assert_non_null(pool_surplus(&p));
    pool_aim(&p, 8);
    assert_int_equal(target(&p, 1), 8);
    assert_null(pool_surplus(&p));
}

static void less_than_a_quarter_is_low(void **state)
{
    struct pool p = {0};
    struct slot_kind k = kind(1);

    pool_aim(&p, 8);
    assert_false(pool_is_low(&p));
    note(&p, 1, 8, 0);
    pool_find(&p, &k)->ready = 1;
    assert_true(pool_is_low(&p));
    pool_find(&p, &k)->ready = 2;
    assert_false(pool_is_low(&p));
}

static void memory_is_short_below_a_sixteenth_or_a_gib(void **state)
{
    static const struct {
        const char *text;
        bool is_short;
    } rows[] = {
        {"MemTotal:  1600 kB\nMemFree: 1 kB\nMemAvailable:  99 kB\n", true},
        {"MemTotal:  1600 kB\nMemFree: 1 kB\nMemAvailable:  100 kB\n", false},
        {"MemTotal:  100000000 kB\nMemAvailable:  1048575 kB\n", true},
        {"MemTotal:  100000000 kB\nMemAvailable:  1048576 kB\n", false},
        {"MemTotal:  1600 kB\nMemAvailable:  0 kB\n", true},
        {"MemTotal:  1600 kB\n", false},
        {"", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(meminfo_text_is_short(rows[i].text), rows[i].is_short);
}

static void memory_is_below_a_share(void **state)
{
    assert_true(meminfo_text_is_below("MemTotal: 1000 kB\nMemAvailable: 99 kB\n", 10));
    assert_false(meminfo_text_is_below("MemTotal: 1000 kB\nMemAvailable: 100 kB\n", 10));
    assert_false(meminfo_text_is_below("MemTotal: 1000 kB\n", 10));
    assert_false(meminfo_text_is_below("", 90));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_that_asks_for_more_is_made_the_usual_way),
        cmocka_unit_test(volumes_filters_and_flags_without_files_are_among_them),
        cmocka_unit_test(kept_files_alone_are_given_to_a_member),
        cmocka_unit_test(memory_is_claimed_where_all_flags_say_so),
        cmocka_unit_test(memory_of_another_owner_is_another_kind),
        cmocka_unit_test(two_of_a_kind_are_restored_ahead_and_none_once_it_goes),
        cmocka_unit_test(each_limit_makes_a_kind_of_its_own),
        cmocka_unit_test(one_kind_has_all),
        cmocka_unit_test(targets_follow_what_was_asked_for),
        cmocka_unit_test(what_was_long_ago_counts_less),
        cmocka_unit_test(a_ninth_kind_waits_for_a_row),
        cmocka_unit_test(eight_kinds_do_not_keep_the_rows_from_one_that_is_asked_for_more),
        cmocka_unit_test(creates_of_many_kinds_leave_the_busy_their_rows),
        cmocka_unit_test(members_of_an_evicted_row_are_of_none),
        cmocka_unit_test(a_template_that_is_built_anew_has_no_member),
        cmocka_unit_test(a_row_that_fails_rests_until_it_is_asked_for),
        cmocka_unit_test(a_member_too_many_goes_only_where_room_is_needed),
        cmocka_unit_test(those_beyond_a_target_are_not_within),
        cmocka_unit_test(all_go_where_memory_is_short),
        cmocka_unit_test(less_than_a_quarter_is_low),
        cmocka_unit_test(memory_is_short_below_a_sixteenth_or_a_gib),
        cmocka_unit_test(memory_is_below_a_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
