/* Sandboxes that are ended at a time that their owner has set, in each state, over restarts and when the clock is set; and
 * of which sandbox one is a fork. Time passes by moving the stored time back. */
#include "base/clock.h"
#include "core/archive.h"
#include "core/auto_destroy.h"
#include "core/core_internal.h"
#include "core/fork.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core_world.h"

#include <stdlib.h>
#include <string.h>

#define MINUTE_MS INT64_C(60000)

/* -- helpers ------------------------------------------------------------------------------------ */

static struct sandbox_obj *object(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id);
}

/* A sandbox that is stopped by itself long after this time. */
static void make(struct world *w, int64_t after_ms, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();

    r.ttl_ms = 0;
    r.idle_ms = 10 * MINUTE_MS;
    r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    r.timeout_tier = SANDBOX_TIER_FILES;
    r.destroy_ms = after_ms;
    world_create(w, &r, id);
}

static void pause_it(struct world *w, const char *id, enum sandbox_tier tier)
{
    struct answer a = {0};

    core_sandbox_pause(w->core, "default", id, tier, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

static enum err_code set(struct world *w, const char *id, int64_t after_ms)
{
    const struct sandbox *s = NULL;
    struct err e;

    return core_sandbox_set_auto_destroy(w->core, "default", id, after_ms, &s, &e);
}

/* It is due after that. */
static void let_pass(struct world *w, const char *id, int64_t ms)
{
    object(w, id)->s.destroy_real_ms -= ms;
    auto_destroy_arm(object(w, id));
}

static int64_t waits_ms(struct world *w, const char *id)
{
    assert_true(timer_armed(&object(w, id)->destroy));
    return (int64_t)object(w, id)->destroy.node.at - (int64_t)clock_mono_ms();
}

static void run_until_destroyed(struct world *w, const char *id, const char *reason)
{
    char lines[EVENTS_LINE_MAX];

    world_run_until_ended(w, id);
    world_run_until_rows(w, 0);
    world_events(w, id, 1u << EVENT_SANDBOX_ENDED, lines);
    assert_non_null(strstr(lines, reason));
}

/* -- in each state ------------------------------------------------------------------------------ */

static void one_that_runs_is_ended(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make(w, 2 * MINUTE_MS, id);
    assert_true(waits_ms(w, id) > MINUTE_MS && waits_ms(w, id) <= 2 * MINUTE_MS);
    let_pass(w, id, MINUTE_MS);
    core_sandbox_used(w->core, id); /* no use moves it */
    assert_true(waits_ms(w, id) <= MINUTE_MS);
    world_run_for(w, 20);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
    let_pass(w, id, MINUTE_MS);
    run_until_destroyed(w, id, "\"timeout\"");
}

static void one_that_is_paused_stopped_or_archived_is_ended(void **state)
{
    static const enum sandbox_tier tiers[] = {SANDBOX_TIER_FROZEN, SANDBOX_TIER_FILES,
                                              SANDBOX_TIER_FILES};
    struct world *w = *state;
    const struct sandbox *s = NULL;
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(tiers); i++) {
        make(w, 2 * MINUTE_MS, id);
        pause_it(w, id, tiers[i]);
        if (i == 2)
            assert_int_equal(core_sandbox_archive(w->core, "default", id, &s, &e), ERR_OK);
        let_pass(w, id, MINUTE_MS);
        world_run_for(w, 20);
        assert_non_null(object(w, id));
        let_pass(w, id, MINUTE_MS);
        run_until_destroyed(w, id, "\"timeout\"");
    }
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], 0);
    assert_int_equal(w->core->tenants.charged[TENANT_KEPT], 0);
}

static void one_that_is_just_being_resumed_is_ended(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    make(w, MINUTE_MS, id);
    pause_it(w, id, SANDBOX_TIER_FILES);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_for(w, 20);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RESTARTING);
    let_pass(w, id, MINUTE_MS);
    world_run_for(w, 20);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    run_until_destroyed(w, id, "\"timeout\"");
}

static void one_that_ends_already_is_left(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    make(w, MINUTE_MS, id);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &a);
    object(w, id)->destroy.fire(&object(w, id)->destroy);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    run_until_destroyed(w, id, "\"killed\"");
}

/* -- other times -------------------------------------------------------------------------------- */

static void the_time_counts_from_when_it_is_set(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make(w, 0, id);
    assert_false(timer_armed(&object(w, id)->destroy));
    assert_int_equal(set(w, id, 3 * MINUTE_MS), ERR_OK);
    let_pass(w, id, 2 * MINUTE_MS);
    assert_int_equal(set(w, id, 3 * MINUTE_MS), ERR_OK);
    assert_true(waits_ms(w, id) > 2 * MINUTE_MS);
    assert_int_equal(set(w, id, 0), ERR_OK);
    assert_false(timer_armed(&object(w, id)->destroy));
    assert_int_equal(object(w, id)->s.destroy_real_ms, 0);
    assert_int_equal(set(w, id, CORE_AUTO_DELETE_MAX_MS), ERR_OK);
    assert_true(waits_ms(w, id) > CORE_AUTO_DELETE_MAX_MS - MINUTE_MS);
}

static void what_cannot_be_is_refused(void **state)
{
    struct world *w = *state;
    const struct sandbox *s = NULL;
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    make(w, MINUTE_MS, id);
    assert_int_equal(set(w, id, -1), ERR_INVALID);
    assert_int_equal(set(w, id, CORE_AUTO_DELETE_MAX_MS + 1), ERR_INVALID);
    assert_int_equal(set(w, "i00000000000000000000", MINUTE_MS), ERR_NOT_FOUND);
    assert_int_equal(core_sandbox_set_auto_destroy(w->core, "another", id, 0, &s, &e),
                     ERR_NOT_FOUND);
    assert_true(waits_ms(w, id) <= MINUTE_MS);
}

/* -- restarts, and the clock -------------------------------------------------------------------- */

static void time_goes_on_while_no_cayd_runs(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make(w, 0, id);
    assert_int_equal(set(w, id, 2 * MINUTE_MS), ERR_OK);
    pause_it(w, id, SANDBOX_TIER_FROZEN);
    world_stop_core(w);
    world_query(w, "UPDATE sandboxes SET destroy_ms=destroy_ms-60000 RETURNING 1");
    world_start_core(w);
    assert_true(waits_ms(w, id) <= MINUTE_MS);
    assert_int_equal(object(w, id)->s.state, SANDBOX_PAUSED);
    world_stop_core(w);
    world_query(w, "UPDATE sandboxes SET destroy_ms=destroy_ms-60000 RETURNING 1");
    world_start_core(w);
    run_until_destroyed(w, id, "\"timeout\"");
}

static void it_waits_for_a_privd_that_is_away(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make(w, MINUTE_MS, id);
    pause_it(w, id, SANDBOX_TIER_FILES);
    fake_down(w->fake);
    world_run_until_true(w, world_is_not_ready);
    let_pass(w, id, MINUTE_MS);
    world_run_for(w, 20);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    fake_restart(w->fake, false);
    run_until_destroyed(w, id, "\"timeout\"");
}

static void a_clock_that_is_set_ends_none(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    int64_t at_ms;

    make(w, 5 * MINUTE_MS, id);
    pause_it(w, id, SANDBOX_TIER_FROZEN); /* in which nothing else has a time */
    at_ms = object(w, id)->s.destroy_real_ms;
    object(w, id)->s.destroy_real_ms -= 60 * MINUTE_MS; /* by a clock that was an hour behind */
    w->core->clock_offset_ms -= 60 * MINUTE_MS;
    lifecycle_check_clock(w->core);
    assert_true(llabs(object(w, id)->s.destroy_real_ms - at_ms) < MINUTE_MS);
    assert_int_equal(world_query(w, "SELECT destroy_ms FROM sandboxes"),
                     object(w, id)->s.destroy_real_ms);
    world_stop_core(w);
    world_start_core(w);
    assert_int_equal(object(w, id)->s.state, SANDBOX_PAUSED);
    assert_true(waits_ms(w, id) > MINUTE_MS);
}

/* -- forks -------------------------------------------------------------------------------------- */

static void on_forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct answer *a = arg;

    if (n > 0)
        memcpy(a->id, forks[0].id, sizeof(a->id));
    a->calls++;
}

static void fork_it(struct world *w, const char *id, int64_t destroy_ms,
                    char out[static IDS_SANDBOX_SIZE])
{
    const struct core_fork_request r = {.count = 1, .ttl_ms = MINUTE_MS, .destroy_ms = destroy_ms};
    struct answer a = {0};

    core_sandbox_fork(w->core, "default", id, &r, on_forked, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.id[0]);
    memcpy(out, a.id, IDS_SANDBOX_SIZE);
}

static void a_fork_knows_its_source_and_is_found_by_it(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE], first[IDS_SANDBOX_SIZE], second[IDS_SANDBOX_SIZE];
    const struct sandbox *found[2];

    make(w, 0, id);
    assert_int_equal(core_sandbox_forks(w->core, "default", id, found, 2), 0);
    fork_it(w, id, 3 * MINUTE_MS, first);
    fork_it(w, id, 0, second);
    assert_string_equal(object(w, first)->s.parent, id);
    assert_true(waits_ms(w, first) <= 3 * MINUTE_MS);
    assert_false(timer_armed(&object(w, second)->destroy));
    assert_int_equal(core_sandbox_forks(w->core, "another", id, found, 2), 0);
    assert_int_equal(core_sandbox_forks(w->core, "default", id, found, 1), 1);
    world_stop_core(w);
    world_start_core(w);
    assert_int_equal(core_sandbox_forks(w->core, "default", id, found, 2), 2);
    assert_string_equal(object(w, second)->s.parent, id);
    assert_string_equal(object(w, id)->s.parent, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(one_that_runs_is_ended),
        WORLD(one_that_is_paused_stopped_or_archived_is_ended),
        WORLD(one_that_is_just_being_resumed_is_ended),
        WORLD(one_that_ends_already_is_left),
        WORLD(the_time_counts_from_when_it_is_set),
        WORLD(what_cannot_be_is_refused),
        WORLD(time_goes_on_while_no_cayd_runs),
        WORLD(it_waits_for_a_privd_that_is_away),
        WORLD(a_clock_that_is_set_ends_none),
        WORLD(a_fork_knows_its_source_and_is_found_by_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
