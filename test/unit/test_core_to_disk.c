/* The memory of frozen sandboxes on its way to the disk: by age and where the host's is short, what comes first, and what becomes
 * of a sandbox whose memory cannot be kept, or whose cayd or cay-privd ends in between. */
#include "base/clock.h"
#include "core/core_internal.h"
#include "core/events.h"
#include "core/sandbox.h"
#include "core_world.h"

#include <errno.h>
#include <string.h>

static struct sandbox_obj *object(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id);
}

/* For the whole server, from the next start of cayd on. */
static void set_after(struct world *w, uint64_t after_ms, unsigned below_pct)
{
    world_stop_core(w);
    w->config.to_disk_after_ms = after_ms;
    w->config.to_disk_below_pct = below_pct;
    world_start_core(w);
}

/* Ended at the end of its time, which has passed by the time that it is looked at. */
static void make_frozen(struct world *w, int64_t to_disk_ms, enum sandbox_tier tier,
                        char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();
    struct answer a = {0};

    r.to_disk_ms = to_disk_ms;
    r.timeout_tier = tier;
    r.on_timeout = tier == SANDBOX_TIER_FROZEN ? SANDBOX_ON_TIMEOUT_KILL : SANDBOX_ON_TIMEOUT_PAUSE;
    world_create(w, &r, id);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

static void await_tier(struct world *w, const char *id, const char *tier)
{
    for (int i = 0; i < 2000; i++) {
        const struct sandbox_obj *o = object(w, id);

        if (o && life_of(o->s.state)->change == LIFE_CHANGE_NONE &&
            strcmp(core_pause_tier_name(&o->s), tier) == 0 && !o->s.moving)
            return;
        world_run_for(w, 5);
    }
    fail_msg("it is not %s", tier);
}

static unsigned events(struct world *w, const char *id, unsigned type, const char *text)
{
    char lines[EVENTS_LINE_MAX];
    unsigned n = 0;

    world_events(w, id, 1u << type, lines);
    for (const char *at = lines; (at = strstr(at, text)); at++)
        n++;
    return n;
}

static void assert_goes_on(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
    assert_false(object(w, id)->s.moving || object(w, id)->to_disk_tried);
    assert_true(object(w, id)->s.end_real_ms > clock_real_ms());
}

static void those_that_are_frozen_for_so_long_go_to_the_disk(void **state)
{
    struct world *w = *state;
    char all[3][IDS_SANDBOX_SIZE];

    set_after(w, 1, 0);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        make_frozen(w, 0, SANDBOX_TIER_FROZEN, all[i]);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        await_tier(w, all[i], "memory");
        assert_int_equal(object(w, all[i])->s.pause_reason, SANDBOX_PAUSE_API);
        assert_int_equal(events(w, all[i], EVENT_SANDBOX_PAUSED, "\"tier\":\"memory\""), 1);
        assert_int_equal(events(w, all[i], EVENT_SANDBOX_RESUMED, "resumed"), 0);
    }
    assert_int_equal(fake_counts(w->fake).dumps, 3);
    assert_goes_on(w, all[0]);
    assert_int_equal(fake_counts(w->fake).restores, 1);
}

/* Its own time is before the settings', and so is that it has none. */
static void each_has_a_time_of_its_own(void **state)
{
    struct world *w = *state;
    char soon[IDS_SANDBOX_SIZE], never[IDS_SANDBOX_SIZE], as_set[IDS_SANDBOX_SIZE];

    make_frozen(w, -1, SANDBOX_TIER_FROZEN, never);
    make_frozen(w, 0, SANDBOX_TIER_FROZEN, as_set);
    make_frozen(w, 1, SANDBOX_TIER_FROZEN, soon);
    await_tier(w, soon, "memory");
    world_run_for(w, 50);
    await_tier(w, as_set, "frozen"); /* where nothing is set */
    set_after(w, 1, 0);              /* the times of all are stored */
    await_tier(w, as_set, "memory");
    world_run_for(w, 50);
    await_tier(w, never, "frozen");
    assert_int_equal(fake_counts(w->fake).dumps, 2);
}

/* Nothing else is due. */
static void where_memory_is_short_the_longest_goes(void **state)
{
    struct world *w = *state;
    char first[IDS_SANDBOX_SIZE], second[IDS_SANDBOX_SIZE];

    make_frozen(w, 0, SANDBOX_TIER_FROZEN, first);
    make_frozen(w, 0, SANDBOX_TIER_FROZEN, second);
    object(w, first)->s.end_real_ms -= 1000;
    w->core->config.to_disk_below_pct = 100; /* always */
    w->core->to_disk_due.fire(&w->core->to_disk_due);
    assert_true(object(w, first)->s.moving && !object(w, second)->s.moving);
    await_tier(w, first, "memory");
}

static void what_cannot_be_kept_is_frozen_again_and_told(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    fake_set(w->fake, FAKE_MEMORY_ERRNO, EOPNOTSUPP);
    fake_set(w->fake, FAKE_FAIL_DUMPS, 1);
    make_frozen(w, 1, SANDBOX_TIER_FROZEN, id);
    WORLD_RUN_UNTIL_COUNTED(w, dumps, 1);
    await_tier(w, id, "frozen");
    assert_true(fake_is_frozen(w->fake, id));
    assert_non_null(strstr(core_sandbox_fell(&object(w, id)->s), "its memory cannot be kept"));
    assert_int_equal(events(w, id, EVENT_SANDBOX_PAUSED, "\"memoryError\""), 1);
    world_run_for(w, 50); /* not again */
    assert_int_equal(fake_counts(w->fake).dumps, 1);
    assert_goes_on(w, id);
    assert_string_equal(core_sandbox_fell(&object(w, id)->s), "");
}

static void where_files_will_do_they_are_kept(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    fake_set(w->fake, FAKE_MEMORY_ERRNO, EOPNOTSUPP);
    fake_set(w->fake, FAKE_FAIL_DUMPS, 1);
    make_frozen(w, 1, SANDBOX_TIER_MEMORY_OR_FILES, id);
    await_tier(w, id, "files");
    assert_int_equal(events(w, id, EVENT_SANDBOX_PAUSED, "\"memoryError\""), 1);
}

/* Neither its end, which has passed, nor a freeze that fails ends it or has it run on. */
static void one_that_cannot_be_frozen_again_is_tried_again(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    fake_set(w->fake, FAKE_MEMORY_ERRNO, EOPNOTSUPP);
    fake_set(w->fake, FAKE_FAIL_DUMPS, 1);
    make_frozen(w, 1, SANDBOX_TIER_FROZEN, id);
    fake_set(w->fake, FAKE_FAIL_FREEZES, 1);
    WORLD_RUN_UNTIL_COUNTED(w, freezes, 3);
    await_tier(w, id, "frozen");
    assert_non_null(strstr(core_sandbox_fell(&object(w, id)->s), "its memory cannot be kept"));
    assert_goes_on(w, id);
}

static void a_resume_comes_first(void **state)
{
    static const enum fake_knob holds[] = {FAKE_HOLD_THAWS, FAKE_HOLD_DUMPS};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(holds); i++) {
        struct answer a = {0};
        char id[IDS_SANDBOX_SIZE];

        fake_set(w->fake, holds[i], 1);
        make_frozen(w, 1, SANDBOX_TIER_FROZEN, id);
        for (int k = 0; k < 2000 && !object(w, id)->s.moving; k++)
            world_run_for(w, 2);
        world_run_for(w, 50);
        core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
        fake_set(w->fake, holds[i], 0);
        world_run_until(w, &a.calls, 1);
        assert_true(a.good);
        assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
        assert_true(object(w, id)->s.end_real_ms > clock_real_ms());
    }
}

/* It is paused afterwards, whatever ends in between. */
static void an_end_of_a_program_leaves_it_paused(void **state)
{
    static const enum fake_knob holds[] = {FAKE_HOLD_THAWS, FAKE_HOLD_DUMPS};
    struct world *w = *state;

    for (size_t i = 0; i < 2 * ARRAY_SIZE(holds); i++) {
        char id[IDS_SANDBOX_SIZE];

        fake_set(w->fake, holds[i / 2], 1);
        make_frozen(w, 1, SANDBOX_TIER_FROZEN, id);
        for (int k = 0; k < 2000 && !object(w, id)->s.moving; k++)
            world_run_for(w, 2);
        world_run_for(w, 50);
        if (i % 2)
            world_stop_core(w);
        else /* before an answer, which the channel's end could cut from what follows it */
            world_restart_privd(w, false);
        fake_set(w->fake, holds[i / 2], 0);
        if (i % 2)
            world_start_core(w);
        await_tier(w, id, "memory");
        assert_int_equal(object(w, id)->s.pause_reason, SANDBOX_PAUSE_API);
        assert_goes_on(w, id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(those_that_are_frozen_for_so_long_go_to_the_disk),
        WORLD(each_has_a_time_of_its_own),
        WORLD(where_memory_is_short_the_longest_goes),
        WORLD(what_cannot_be_kept_is_frozen_again_and_told),
        WORLD(where_files_will_do_they_are_kept),
        WORLD(one_that_cannot_be_frozen_again_is_tried_again),
        WORLD(a_resume_comes_first),
        WORLD(an_end_of_a_program_leaves_it_paused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
