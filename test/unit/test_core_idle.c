/* The end of a sandbox that lives as long as it is used: what callers are shown of it, and who may move it. */
#include "base/clock.h"
#include "core/archive.h"
#include "core/core.h"
#include "core/file_url.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core_world.h"

#include <string.h>

#define MINUTE_MS INT64_C(60000)

static struct sandbox_obj *make(struct world *w, int64_t idle_ms, int64_t ttl_ms)
{
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];

    r.ttl_ms = ttl_ms;
    r.idle_ms = idle_ms;
    world_create(w, &r, id);
    return sandbox_get(w->core, NULL, id);
}

/* As it is 50 s after the last look at it. */
static void let_time_pass(struct sandbox_obj *o)
{
    o->s.end_real_ms -= 50000;
    o->used_ms -= 50000;
    lifecycle_arm(o);
}

static void a_use_moves_the_end_that_is_shown(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, MINUTE_MS, 0);
    int64_t before_ms;

    let_time_pass(o);
    before_ms = clock_real_ms();
    assert_true(o->s.end_real_ms < before_ms + MINUTE_MS - 40000);
    core_sandbox_used(w->core, o->s.id);
    assert_true(core_sandbox_find(w->core, NULL, o->s.id)->end_real_ms >=
                before_ms + MINUTE_MS - 1);
}

static void no_use_moves_it_beyond_the_last_end(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, MINUTE_MS, MINUTE_MS + 1000);
    int64_t last_ms = o->s.last_end_real_ms;

    o->s.last_end_real_ms -= 30000;
    let_time_pass(o);
    core_sandbox_used(w->core, o->s.id);
    assert_int_equal(o->s.end_real_ms, last_ms - 30000);
}

static void a_use_moves_no_end_that_was_named(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, 0, MINUTE_MS);
    int64_t end_ms = o->s.end_real_ms;

    core_sandbox_used(w->core, o->s.id);
    assert_int_equal(o->s.end_real_ms, end_ms);
}

/* E2B's connect with 30 s, ten seconds before the end that its last use has moved on by 50. */
static void a_connect_does_not_shorten_it(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, MINUTE_MS, 0);
    const struct sandbox *s = NULL;
    struct err e;
    int64_t end_ms;

    let_time_pass(o);
    core_sandbox_used(w->core, o->s.id);
    end_ms = o->s.end_real_ms;
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", o->s.id, 30000, true, &s, &e),
                     ERR_OK);
    assert_int_equal(s->end_real_ms, end_ms);
    assert_int_equal(s->idle_ms, MINUTE_MS);
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", o->s.id, 2 * MINUTE_MS, true, &s, &e),
                     ERR_OK);
    assert_true(s->end_real_ms > end_ms);
    assert_int_equal(s->idle_ms, 0);
}

/* -- processes ---------------------------------------------------------------------------------- */

static struct sandbox_obj *make_counting(struct world *w, unsigned counts)
{
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];

    r.ttl_ms = 0;
    r.idle_ms = MINUTE_MS;
    r.idle_counts = counts;
    world_create(w, &r, id);
    return sandbox_get(w->core, NULL, id);
}

/* As it is when its end has come; true: it lives on for a whole idle time more. */
static bool end_comes(struct world *w, struct sandbox_obj *o)
{
    char id[IDS_SANDBOX_SIZE];
    uint64_t until_ms = clock_mono_ms() + 10000;

    memcpy(id, o->s.id, sizeof(id));
    o->used_ms -= MINUTE_MS;
    if (o->idle_check_ms)
        o->idle_check_ms -= MINUTE_MS;
    o->s.end_real_ms = clock_real_ms();
    lifecycle_arm(o);
    while (clock_mono_ms() < until_ms) {
        o = sandbox_get(w->core, NULL, id);
        if (!o)
            return false;
        if (o->s.end_real_ms > clock_real_ms() + MINUTE_MS / 2)
            return true;
        world_run_for(w, 2);
    }
    fail_msg("it neither ended nor lived on");
    return false;
}

/* 1 % of a processor in a minute is 600 ms. */
static void what_computes_lives_on_and_what_waits_does_not(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_PROCESSES | SANDBOX_IDLE_TRAFFIC);

    fake_set(w->fake, FAKE_CPU_MS, 700);
    assert_true(end_comes(w, o));
    fake_set(w->fake, FAKE_CPU_MS, 1400);
    assert_true(end_comes(w, o));
    fake_set(w->fake, FAKE_CPU_MS, 1900);
    assert_false(end_comes(w, o));
}

static void processes_are_not_asked_about_where_they_do_not_count(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_TRAFFIC);
    unsigned stats = fake_counts(w->fake).stats;

    fake_set(w->fake, FAKE_CPU_MS, 60000);
    assert_false(end_comes(w, o));
    assert_int_equal(fake_counts(w->fake).stats, stats);
}

static void traffic_does_not_count_where_it_is_switched_off(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_PROCESSES);
    int64_t end_ms = o->s.end_real_ms;

    core_sandbox_used(w->core, o->s.id);
    assert_int_equal(o->s.end_real_ms, end_ms);
    assert_false(end_comes(w, o));
}

/* A boot begins to count anew: a sum that is less than before counts whole. */
static void a_counter_that_began_anew_counts_whole(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_PROCESSES);

    fake_set(w->fake, FAKE_CPU_MS, 5000);
    assert_true(end_comes(w, o));
    fake_set(w->fake, FAKE_CPU_MS, 900);
    assert_true(end_comes(w, o));
    fake_set(w->fake, FAKE_CPU_MS, 1000);
    assert_false(end_comes(w, o));
}

/* Also where the answer comes after its last end: nothing of that is moved. */
static void no_process_moves_it_beyond_the_last_end(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_PROCESSES);

    o->s.last_end_real_ms = clock_real_ms();
    fake_set(w->fake, FAKE_CPU_MS, 60000);
    assert_false(end_comes(w, o));
}

/* Daytona's setAutostopInterval(0). */
static void without_an_idle_time_it_lives_as_long_as_it_may(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_TRAFFIC);
    const int64_t most_ms = 60 * MINUTE_MS; /* world_start_core gives it as the longest */
    const struct sandbox *s = NULL;
    int64_t before_ms, end_ms;
    struct err e;

    assert_true(o->s.end_real_ms < clock_real_ms() + most_ms);
    before_ms = clock_real_ms();
    assert_int_equal(core_sandbox_set_idle(w->core, NULL, o->s.id, 0, &s, &e), ERR_OK);
    assert_int_equal(s->idle_ms, 0);
    assert_in_range(s->end_real_ms, before_ms + most_ms, clock_real_ms() + most_ms);
    end_ms = s->end_real_ms;
    assert_int_equal(core_sandbox_set_idle(w->core, NULL, o->s.id, 0, &s, &e), ERR_OK);
    assert_int_equal(s->end_real_ms, end_ms);
}

static void without_an_idle_time_it_lives_to_its_last_end(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_TRAFFIC);
    const struct sandbox *s = NULL;
    struct err e;

    o->s.last_end_real_ms = clock_real_ms() + 2 * MINUTE_MS;
    assert_int_equal(core_sandbox_set_idle(w->core, NULL, o->s.id, 0, &s, &e), ERR_OK);
    assert_int_equal(s->end_real_ms, s->last_end_real_ms);
}

static void it_is_asked_again_when_privd_is_back(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make_counting(w, SANDBOX_IDLE_PROCESSES);

    fake_set(w->fake, FAKE_CPU_MS, 60000);
    fake_restart(w->fake, false);
    world_run_until_true(w, world_is_not_ready);
    assert_true(end_comes(w, o));
}

static void what_counts_is_kept_over_a_restart(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    for (unsigned counts = SANDBOX_IDLE_TRAFFIC;
         counts <= (SANDBOX_IDLE_TRAFFIC | SANDBOX_IDLE_PROCESSES); counts++) {
        memcpy(id, make_counting(w, counts)->s.id, sizeof(id));
        world_stop_core(w);
        world_start_core(w);
        assert_int_equal(core_sandbox_find(w->core, NULL, id)->idle_counts, counts);
    }
}

/* It is what the sandbox is deleted or kept by. */
static void what_comes_at_the_end_is_kept_over_a_restart(void **state)
{
    static const int64_t afters_ms[] = {MINUTE_MS, 0, -1, CORE_AUTO_DELETE_MAX_MS};
    struct world *w = *state;
    const struct sandbox *s = NULL;
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    memcpy(id, make_counting(w, SANDBOX_IDLE_TRAFFIC)->s.id, sizeof(id));
    for (size_t i = 0; i < ARRAY_SIZE(afters_ms); i++) {
        assert_int_equal(core_sandbox_set_auto_delete(w->core, NULL, id, afters_ms[i], &s, &e),
                         ERR_OK);
        world_stop_core(w);
        world_start_core(w);
        s = core_sandbox_find(w->core, NULL, id);
        assert_int_equal(s->on_timeout,
                         afters_ms[i] == 0 ? SANDBOX_ON_TIMEOUT_KILL : SANDBOX_ON_TIMEOUT_PAUSE);
        assert_int_equal(s->auto_delete_ms, MAX(afters_ms[i], 0));
    }
}

static void a_replaced_key_of_signed_urls_stays_replaced(void **state)
{
    struct world *w = *state;
    char first[FILE_URL_KEY_SIZE], second[FILE_URL_KEY_SIZE], now[FILE_URL_KEY_SIZE];
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    memcpy(id, make_counting(w, SANDBOX_IDLE_TRAFFIC)->s.id, sizeof(id));
    assert_int_equal(core_sandbox_file_url_key(w->core, NULL, id, false, first, &e), ERR_OK);
    assert_int_equal(core_sandbox_file_url_key(w->core, NULL, id, true, second, &e), ERR_OK);
    assert_string_not_equal(first, second);
    world_stop_core(w);
    world_start_core(w);
    assert_int_equal(core_sandbox_file_url_key(w->core, NULL, id, false, now, &e), ERR_OK);
    assert_string_equal(now, second);
    assert_int_equal(core_sandbox_file_url_key(w->core, "another", id, true, now, &e),
                     ERR_NOT_FOUND);
}

/* -- archived ----------------------------------------------------------------------------------- */

static const struct sandbox *change(struct world *w, const char *id, bool resume)
{
    struct answer a = {0};

    if (resume)
        core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    else
        core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FILES, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return core_sandbox_find(w->core, NULL, id);
}

static void one_that_is_stopped_is_archived_when_its_time_comes(void **state)
{
    struct world *w = *state;
    const struct sandbox *s = &make(w, MINUTE_MS, 0)->s;
    char id[IDS_SANDBOX_SIZE];
    int64_t before_ms = clock_real_ms(), far_ms = before_ms + 2 * CORE_ARCHIVE_MAX_MS;
    struct err e;

    memcpy(id, s->id, sizeof(id));
    assert_int_equal(s->auto_archive_ms, CORE_ARCHIVE_DEFAULT_MS);
    assert_int_equal(core_sandbox_set_auto_archive(w->core, NULL, id, 5 * MINUTE_MS, &s, &e),
                     ERR_OK);
    assert_int_equal(core_sandbox_archive(w->core, NULL, id, &s, &e), ERR_CONFLICT);
    assert_false(core_sandbox_is_archived(core_sandbox_find(w->core, NULL, id), far_ms));
    s = change(w, id, false);
    assert_int_equal(s->state, SANDBOX_KEPT);
    assert_true(s->kept_real_ms >= before_ms && s->kept_real_ms <= clock_real_ms());
    assert_false(core_sandbox_is_archived(s, s->kept_real_ms + 5 * MINUTE_MS - 1));
    assert_true(core_sandbox_is_archived(s, s->kept_real_ms + 5 * MINUTE_MS));
    assert_false(core_sandbox_is_archived(change(w, id, true), far_ms));
}

static void what_was_archived_is_so_over_a_restart_and_until_it_starts(void **state)
{
    struct world *w = *state;
    const struct sandbox *s;
    char id[IDS_SANDBOX_SIZE];
    int64_t kept_ms;
    struct err e;

    memcpy(id, make(w, MINUTE_MS, 0)->s.id, sizeof(id));
    assert_int_equal(core_sandbox_archive(w->core, "another", id, &s, &e), ERR_NOT_FOUND);
    kept_ms = change(w, id, false)->kept_real_ms;
    assert_int_equal(core_sandbox_archive(w->core, "default", id, &s, &e), ERR_OK);
    world_stop_core(w);
    world_start_core(w);
    s = core_sandbox_find(w->core, NULL, id);
    assert_int_equal(s->kept_real_ms, kept_ms);
    assert_true(core_sandbox_is_archived(s, kept_ms));
    assert_false(change(w, id, true)->archived);
    s = change(w, id, false);
    assert_false(core_sandbox_is_archived(s, s->kept_real_ms));
}

static void archiving_has_bounds(void **state)
{
    struct world *w = *state;
    const struct sandbox *s = &make(w, MINUTE_MS, 0)->s;
    const int64_t bad[] = {-1, 0, CORE_ARCHIVE_MAX_MS + 1};
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(core_sandbox_set_auto_archive(w->core, NULL, s->id, bad[i], &s, &e),
                         ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_use_moves_the_end_that_is_shown),
        WORLD(no_use_moves_it_beyond_the_last_end),
        WORLD(a_use_moves_no_end_that_was_named),
        WORLD(a_connect_does_not_shorten_it),
        WORLD(what_computes_lives_on_and_what_waits_does_not),
        WORLD(processes_are_not_asked_about_where_they_do_not_count),
        WORLD(traffic_does_not_count_where_it_is_switched_off),
        WORLD(a_counter_that_began_anew_counts_whole),
        WORLD(no_process_moves_it_beyond_the_last_end),
        WORLD(without_an_idle_time_it_lives_as_long_as_it_may),
        WORLD(without_an_idle_time_it_lives_to_its_last_end),
        WORLD(it_is_asked_again_when_privd_is_back),
        WORLD(what_counts_is_kept_over_a_restart),
        WORLD(what_comes_at_the_end_is_kept_over_a_restart),
        WORLD(a_replaced_key_of_signed_urls_stays_replaced),
        WORLD(one_that_is_stopped_is_archived_when_its_time_comes),
        WORLD(what_was_archived_is_so_over_a_restart_and_until_it_starts),
        WORLD(archiving_has_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
