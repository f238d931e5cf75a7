/* The table of the tiers of a pause (core/tier.h) by itself. */
#include "base/util.h"
#include "core/life.h"
#include "core/tier.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void each_row_is_whole(void **state)
{
    for (int i = 0; i < SANDBOX_TIER_COUNT; i++) {
        const struct tier *t = tier_of((enum sandbox_tier)i);
        const struct tier_functions *f = &tier_functions_table[i];

        if (!t->name || !*t->name)
            fail_msg("core/tier.h has no row for tier %d", i);
        assert_true(f->check && f->begin && f->go_on && f->resume && f->on_timer);
        assert_true(!t->or_files || t->memory);
    }
}

static void a_tier_is_found_by_its_name(void **state)
{
    enum sandbox_tier found = SANDBOX_TIER_COUNT;

    for (int i = 0; i < SANDBOX_TIER_COUNT; i++) {
        const struct tier *t = tier_of((enum sandbox_tier)i);

        assert_true(core_tier_find(t->name, t->or_files, &found));
        assert_int_equal(found, i);
    }
    assert_true(core_tier_find("frozen", true, &found)); /* no such row: the one of the name */
    assert_int_equal(found, SANDBOX_TIER_FROZEN);
    found = SANDBOX_TIER_COUNT;
    assert_false(core_tier_find("", false, &found));
    assert_false(core_tier_find("frozen ", false, &found));
    assert_int_equal(found, SANDBOX_TIER_COUNT);
}

/* The tier that a sandbox with such a row of the store is in. */
static enum sandbox_tier expected(const struct sandbox *s)
{
    if (!life_of(s->state)->files)
        return SANDBOX_TIER_FROZEN;
    if (!s->kept_memory)
        return SANDBOX_TIER_FILES;
    return s->or_files ? SANDBOX_TIER_MEMORY_OR_FILES : SANDBOX_TIER_MEMORY;
}

static void each_state_has_one_tier(void **state)
{
    for (int i = 0; i < SANDBOX_STATE_COUNT * 4; i++) {
        struct sandbox s = {
            .state = (enum sandbox_state)(i / 4), .kept_memory = i & 1, .or_files = i & 2};
        const struct tier *t = tier_of_sandbox(&s);
        bool told = life_of(s.state)->group == LIFE_GROUP_PAUSED;

        assert_ptr_equal(t, tier_of(expected(&s)));
        assert_string_equal(core_pause_tier_name(&s), told ? t->name : "");
        assert_int_equal(core_sandbox_has_memory(&s), t->memory);
        assert_int_equal(core_sandbox_is_stopped(&s), life_is_at_rest(s.state) && !t->memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_is_whole),
        cmocka_unit_test(a_tier_is_found_by_its_name),
        cmocka_unit_test(each_state_has_one_tier),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
