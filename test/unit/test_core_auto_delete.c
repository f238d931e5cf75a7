/* Sandboxes that are ended when they were stopped for as long as their owner has set: the time, who moves it, what comes
 * in between, and restarts at each step of the end. Time passes by moving the time of the stop back. */
#include "base/clock.h"
#include "core/archive.h"
#include "core/auto_delete.h"
#include "core/core_internal.h"
#include "core/fork.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core_world.h"

#include <string.h>

#define MINUTE_MS INT64_C(60000)
#define DAY_MS    (1440 * MINUTE_MS)

/* -- helpers ------------------------------------------------------------------------------------ */

static struct sandbox_obj *object(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id);
}

static void make(struct world *w, int64_t after_ms, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();

    r.ttl_ms = 0;
    r.idle_ms = MINUTE_MS;
    r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    r.timeout_tier = SANDBOX_TIER_FILES;
    r.auto_delete_ms = after_ms;
    world_create(w, &r, id);
}

static struct answer paused(struct world *w, const char *id, enum sandbox_tier tier)
{
    struct answer a = {0};

    core_sandbox_pause(w->core, "default", id, tier, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static struct answer resumed(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static void make_stopped(struct world *w, int64_t after_ms, char id[static IDS_SANDBOX_SIZE])
{
    make(w, after_ms, id);
    assert_true(paused(w, id, SANDBOX_TIER_FILES).good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

static void let_pass(struct world *w, const char *id, int64_t ms)
{
    object(w, id)->s.kept_real_ms -= ms;
    auto_delete_arm(object(w, id));
    world_run_for(w, 20);
}

/* The time that its timer waits for at most. */
static int64_t waits_ms(struct world *w, const char *id)
{
    assert_true(timer_armed(&object(w, id)->end));
    return (int64_t)object(w, id)->end.node.at - (int64_t)clock_mono_ms();
}

static enum err_code set(struct world *w, const char *id, int64_t after_ms)
{
    const struct sandbox *s = NULL;
    struct err e;

    return core_sandbox_set_auto_delete(w->core, "default", id, after_ms, &s, &e);
}

static bool has_row(struct world *w, const char *id)
{
    char sql[128];

    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM sandboxes WHERE id='%s'", id);
    return world_query(w, sql) != 0;
}

/* Nothing of it is left, and its owner is told why. */
static void assert_deleted(struct world *w, const char *id, const char *reason)
{
    char lines[EVENTS_LINE_MAX];

    world_events(w, id, 1u << EVENT_SANDBOX_ENDED, lines);
    assert_non_null(strstr(lines, reason));
    assert_false(has_row(w, id));
    assert_false(fake_is_kept(w->fake, 1));
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], 0);
    assert_int_equal(w->core->tenants.charged[TENANT_KEPT], 0);
}

/* Of one whose object is gone. */
static void run_until_deleted(struct world *w, const char *id, const char *reason)
{
    world_run_until_ended(w, id);
    world_run_until_rows(w, 0);
    assert_deleted(w, id, reason);
}

/* -- when it ends ------------------------------------------------------------------------------- */

static void it_ends_when_it_was_stopped_for_so_long(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make(w, 2 * MINUTE_MS, id);
    assert_true(waits_ms(w, id) <= MINUTE_MS); /* of its idle time */
    assert_true(paused(w, id, SANDBOX_TIER_FILES).good);
    assert_true(waits_ms(w, id) > MINUTE_MS);
    let_pass(w, id, MINUTE_MS);
    assert_true(waits_ms(w, id) <= MINUTE_MS);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    let_pass(w, id, MINUTE_MS);
    run_until_deleted(w, id, "\"auto_delete\"");
    assert_int_equal(fake_counts(w->fake).drops, 1);
    for (size_t i = 0; counters_reason(i); i++)
        assert_int_equal(core_counters(w->core)->ended[i],
                         strcmp(counters_reason(i), "auto_delete") == 0);
}

static void without_a_time_it_stays(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, 0, id);
    let_pass(w, id, 10000 * DAY_MS);
    assert_false(timer_armed(&object(w, id)->end));
    object(w, id)->end.fire(&object(w, id)->end);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

/* It is not stopped: its memory is there. */
static void one_that_is_frozen_stays(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make(w, 1, id);
    assert_true(paused(w, id, SANDBOX_TIER_FROZEN).good);
    world_run_for(w, 20);
    assert_int_equal(object(w, id)->s.state, SANDBOX_PAUSED);
    assert_false(timer_armed(&object(w, id)->end));
}

static void the_longest_time_is_waited_for(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, CORE_AUTO_DELETE_MAX_MS, id);
    assert_true(waits_ms(w, id) > CORE_AUTO_DELETE_MAX_MS - DAY_MS);
    let_pass(w, id, DAY_MS);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

static void one_that_is_archived_is_deleted_too(void **state)
{
    struct world *w = *state;
    const struct sandbox *s = NULL;
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    make_stopped(w, 2 * MINUTE_MS, id);
    assert_int_equal(core_sandbox_set_auto_archive(w->core, NULL, id, MINUTE_MS, &s, &e), ERR_OK);
    let_pass(w, id, MINUTE_MS);
    assert_true(core_sandbox_is_archived(&object(w, id)->s, clock_real_ms()));
    let_pass(w, id, MINUTE_MS);
    run_until_deleted(w, id, "\"auto_delete\"");
    make_stopped(w, MINUTE_MS, id);
    assert_int_equal(core_sandbox_archive(w->core, NULL, id, &s, &e), ERR_OK);
    assert_true(waits_ms(w, id) <= MINUTE_MS);
    let_pass(w, id, MINUTE_MS);
    run_until_deleted(w, id, "\"auto_delete\"");
}

/* -- other times -------------------------------------------------------------------------------- */

static void the_time_since_the_stop_counts_when_another_is_set(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, 0, id);
    assert_int_equal(set(w, id, 10 * MINUTE_MS), ERR_OK);
    let_pass(w, id, 5 * MINUTE_MS);
    assert_true(waits_ms(w, id) <= 5 * MINUTE_MS);
    assert_int_equal(set(w, id, -1), ERR_OK);
    assert_false(timer_armed(&object(w, id)->end));
    assert_int_equal(set(w, id, 6 * MINUTE_MS), ERR_OK);
    assert_true(waits_ms(w, id) <= MINUTE_MS);
    world_run_for(w, 20);
    assert_int_equal(set(w, id, 4 * MINUTE_MS), ERR_OK);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT); /* in the next turn */
    run_until_deleted(w, id, "\"auto_delete\"");
}

static void what_cannot_be_is_refused(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    const struct sandbox *s = NULL;
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    make(w, MINUTE_MS, id);
    assert_int_equal(set(w, id, CORE_AUTO_DELETE_MAX_MS + 1), ERR_INVALID);
    assert_int_equal(set(w, id, INT64_MAX), ERR_INVALID);
    assert_int_equal(core_sandbox_set_auto_delete(w->core, "another", id, 1, &s, &e),
                     ERR_NOT_FOUND);
    assert_int_equal(object(w, id)->s.auto_delete_ms, MINUTE_MS);
    r.auto_delete_ms = CORE_AUTO_DELETE_MAX_MS + 1;
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_INVALID);
    r.auto_delete_ms = -1;
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_INVALID);
    fake_set(w->fake, FAKE_KEEPS_NOTHING, 1);
    world_restart_privd(w, false);
    assert_int_equal(set(w, id, 2 * MINUTE_MS), ERR_UNIMPLEMENTED);
    assert_int_equal(set(w, id, 0), ERR_OK);
}

/* -- starts ------------------------------------------------------------------------------------- */

static void each_stop_has_the_whole_time(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, 5 * MINUTE_MS, id);
    let_pass(w, id, 4 * MINUTE_MS);
    assert_true(resumed(w, id).good);
    assert_true(waits_ms(w, id) <= MINUTE_MS); /* of its idle time */
    assert_int_equal(object(w, id)->s.auto_delete_ms, 5 * MINUTE_MS);
    assert_true(paused(w, id, SANDBOX_TIER_FILES).good);
    assert_true(waits_ms(w, id) > 4 * MINUTE_MS);
    let_pass(w, id, 4 * MINUTE_MS);
    fake_set(w->fake, FAKE_FAIL_CREATES, 1); /* a start that fails was one */
    assert_false(resumed(w, id).good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_true(waits_ms(w, id) > 4 * MINUTE_MS);
}

static void a_start_under_way_wins(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, MINUTE_MS, id);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    object(w, id)->s.kept_real_ms -= MINUTE_MS;
    auto_delete_arm(object(w, id)); /* due, and not fired yet */
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_for(w, 20);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RESTARTING);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
    assert_int_equal(fake_counts(w->fake).drops, 0);
}

static void on_snapshot(void *arg, const struct snapshot *s, const struct err *why)
{
    struct answer *a = arg;

    a->good = s != NULL;
    if (why)
        a->why = *why;
    a->calls++;
}

static void on_forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct answer *a = arg;

    a->good = forks != NULL;
    if (n > 0)
        memcpy(a->id, forks[0].id, sizeof(a->id));
    if (why)
        a->why = *why;
    a->calls++;
}

static enum err_code copy_of(struct world *w, const char *id, bool fork)
{
    struct answer a = {0};

    if (fork)
        core_sandbox_fork(w->core, "default", id,
                          &(struct core_fork_request){.count = 1, .ttl_ms = MINUTE_MS}, on_forked,
                          &a);
    else
        core_snapshot_create(w->core, "default", id, "s", SNAPSHOT_PLAIN, on_snapshot, &a);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    return a.why.code;
}

static void what_comes_later_finds_none(void **state)
{
    struct world *w = *state;
    struct answer kill = {0};
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, MINUTE_MS, id);
    assert_int_equal(copy_of(w, id, false), ERR_CONFLICT);
    assert_int_equal(copy_of(w, id, true), ERR_CONFLICT);
    fake_set(w->fake, FAKE_HOLD_DROPS, 1);
    let_pass(w, id, MINUTE_MS);
    WORLD_RUN_UNTIL_COUNTED(w, drops, 1);
    assert_int_equal(object(w, id)->s.state, SANDBOX_ENDING);
    assert_int_equal(resumed(w, id).why.code, ERR_NOT_FOUND);
    assert_int_equal(copy_of(w, id, false), ERR_NOT_FOUND);
    assert_int_equal(copy_of(w, id, true), ERR_NOT_FOUND);
    assert_int_equal(set(w, id, -1), ERR_NOT_FOUND);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &kill);
    world_run_until(w, &kill.calls, 1);
    assert_int_equal(kill.why.code, ERR_NOT_FOUND);
    fake_set(w->fake, FAKE_HOLD_DROPS, 0);
    run_until_deleted(w, id, "\"auto_delete\"");
}

static void a_fork_has_the_same_time(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    make(w, 7 * MINUTE_MS, id);
    object(w, id)->s.auto_archive_ms = 3 * MINUTE_MS;
    core_sandbox_fork(w->core, "default", id,
                      &(struct core_fork_request){.count = 1, .ttl_ms = MINUTE_MS}, on_forked, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(object(w, a.id)->s.auto_delete_ms, 7 * MINUTE_MS);
    assert_int_equal(object(w, a.id)->s.auto_archive_ms, 3 * MINUTE_MS);
}

/* -- restarts ----------------------------------------------------------------------------------- */

static void time_goes_on_while_no_cayd_runs(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, 2 * MINUTE_MS, id);
    world_stop_core(w);
    world_query(w, "UPDATE sandboxes SET kept_ms=kept_ms-60000 RETURNING 1");
    world_start_core(w);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_true(waits_ms(w, id) <= MINUTE_MS);
    world_stop_core(w);
    world_query(w, "UPDATE sandboxes SET kept_ms=kept_ms-60000 RETURNING 1");
    world_start_core(w);
    run_until_deleted(w, id, "\"auto_delete\"");
}

/* The row says ENDING; why it ends is not written. */
static void a_core_that_ends_with_it_is_followed_by_one_that_goes_on(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, MINUTE_MS, id);
    fake_set(w->fake, FAKE_HOLD_DROPS, 1);
    let_pass(w, id, MINUTE_MS);
    WORLD_RUN_UNTIL_COUNTED(w, drops, 1);
    world_stop_core(w);
    assert_true(has_row(w, id));
    fake_set(w->fake, FAKE_HOLD_DROPS, 0);
    world_start_core(w);
    run_until_deleted(w, id, "\"auto_delete\"");
}

static void it_waits_for_a_privd_that_is_away(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, MINUTE_MS, id);
    fake_down(w->fake);
    world_run_until_true(w, world_is_not_ready);
    let_pass(w, id, MINUTE_MS);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    fake_restart(w->fake, false);
    run_until_deleted(w, id, "\"auto_delete\"");
}

/* -- the clock ---------------------------------------------------------------------------------- */

static void set_clock(struct world *w, int64_t by_ms)
{
    w->core->clock_offset_ms -= by_ms; /* as if it was so before */
    lifecycle_check_clock(w->core);
    world_run_for(w, 20);
}

static void a_clock_that_is_set_ends_none(void **state)
{
    struct world *w = *state;
    int64_t kept_ms;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, 5 * MINUTE_MS, id);
    let_pass(w, id, 2 * MINUTE_MS);
    kept_ms = object(w, id)->s.kept_real_ms;
    set_clock(w, DAY_MS);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_true(object(w, id)->s.kept_real_ms >= kept_ms + DAY_MS - 1000);
    assert_int_equal(world_query(w, "SELECT kept_ms FROM sandboxes"),
                     object(w, id)->s.kept_real_ms);
    assert_true(waits_ms(w, id) <= 3 * MINUTE_MS);
    set_clock(w, -DAY_MS);
    assert_true(object(w, id)->s.kept_real_ms <= kept_ms + 1000);
    assert_true(waits_ms(w, id) <= 3 * MINUTE_MS);
    assert_int_equal(set(w, id, 6 * MINUTE_MS), ERR_OK);
    assert_true(waits_ms(w, id) <= 4 * MINUTE_MS + 1000);
}

/* The host's clock was wrong when it stopped, and is right now. */
static void a_stop_that_is_still_to_come_is_now(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_stopped(w, MINUTE_MS, id);
    world_stop_core(w);
    world_query(w, "UPDATE sandboxes SET kept_ms=kept_ms+1000000000000 RETURNING 1");
    world_start_core(w);
    assert_true(object(w, id)->s.kept_real_ms <= clock_real_ms());
    assert_int_equal(world_query(w, "SELECT kept_ms FROM sandboxes"),
                     object(w, id)->s.kept_real_ms);
    assert_true(waits_ms(w, id) <= MINUTE_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(it_ends_when_it_was_stopped_for_so_long),
        WORLD(without_a_time_it_stays),
        WORLD(one_that_is_frozen_stays),
        WORLD(the_longest_time_is_waited_for),
        WORLD(one_that_is_archived_is_deleted_too),
        WORLD(the_time_since_the_stop_counts_when_another_is_set),
        WORLD(what_cannot_be_is_refused),
        WORLD(each_stop_has_the_whole_time),
        WORLD(a_start_under_way_wins),
        WORLD(what_comes_later_finds_none),
        WORLD(a_fork_has_the_same_time),
        WORLD(time_goes_on_while_no_cayd_runs),
        WORLD(a_core_that_ends_with_it_is_followed_by_one_that_goes_on),
        WORLD(it_waits_for_a_privd_that_is_away),
        WORLD(a_clock_that_is_set_ends_none),
        WORLD(a_stop_that_is_still_to_come_is_now),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
