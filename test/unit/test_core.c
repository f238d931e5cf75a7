/* Units of src/core: making, ending, time. */
#include "base/clock.h"
#include "core_world.h"

#include <stdio.h>
#include <string.h>

#include <sqlite3.h>

/* -- create and kill --------------------------------------------------------------------------- */

static void create_gives_a_running_sandbox_whose_agent_knows_it(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE], body[16384];
    const struct sandbox *s;
    json_t *init, *env;
    int64_t begun = clock_real_ms();

    r.env = json_pack("{s:s, s:s}", "A", "1", "SANDBOX_ID", "mine");
    r.metadata = json_pack("{s:s}", "k", "v");
    world_create(w, &r, id);
    json_decref(r.env);
    json_decref(r.metadata);

    s = core_sandbox_find(w->core, "default", id);
    assert_non_null(s);
    assert_true(ids_is_sandbox(id));
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_string_equal(s->template_id, "host");
    assert_int_equal(s->limits.pids, 256);
    assert_string_equal(json_string_value(json_object_get(s->metadata, "k")), "v");
    assert_null(s->env);
    assert_in_range(s->end_real_ms, begun + 60000, clock_real_ms() + 60000);
    assert_ptr_equal(core_sandbox_find(w->core, NULL, id), s);
    assert_null(core_sandbox_find(w->core, "other", id));

    fake_init_body(w->fake, body, sizeof(body));
    init = json_loads(body, 0, NULL);
    assert_non_null(init);
    env = json_object_get(init, "envVars");
    assert_string_equal(json_string_value(json_object_get(env, "A")), "1");
    assert_string_equal(json_string_value(json_object_get(env, "SANDBOX_ID")), id);
    assert_string_equal(json_string_value(json_object_get(env, "IN_SANDBOX")), "true");
    assert_string_equal(json_string_value(json_object_get(env, "TEMPLATE_ID")), "host");
    assert_string_equal(json_string_value(json_object_get(init, "defaultUser")), "user");
    json_decref(init);
    assert_int_equal(fake_counts(w->fake).bad_keys, 0);
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_RUNNING);
}

static void kill_leaves_nothing(void **state)
{
    struct world *w = *state;
    struct answer a = {0}, b = {0}, c = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    core_sandbox_kill(w->core, "other", id, world_on_answer, &c);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &a);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &b);
    assert_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(a.calls + b.calls + c.calls, 0);
    world_run_until(w, &a.calls, 1);
    world_run_until(w, &b.calls, 1);
    world_run_until(w, &c.calls, 1);
    assert_true(a.good);
    assert_int_equal(b.why.code, ERR_NOT_FOUND);
    assert_int_equal(c.why.code, ERR_NOT_FOUND);
    assert_int_equal(world_rows(w), 0);
    assert_false(fake_lives(w->fake, id));
    assert_int_equal(fake_counts(w->fake).kills, 1);
}

static void a_refused_create_leaves_nothing_and_says_why(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer a;

    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    a = world_create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_NO_SPACE);
    assert_non_null(strstr(a.why.text, "layer"));
    fake_set(w->fake, FAKE_LATE_CREATES, 1);
    a = world_create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(a.why.text, "in time"));
    assert_non_null(strstr(a.why.hint, "try again"));
    assert_int_equal(world_rows(w), 0);
}

static void an_agent_that_fails_undoes_the_create(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer a;

    fake_set(w->fake, FAKE_AGENT_STATUS, 500);
    a = world_create_fails(w, &r);
    assert_non_null(strstr(a.why.text, "500"));
    world_run_until_true(w, world_nothing_lives);
    world_run_until_rows(w, 0);

    world_stop_core(w);
    w->config.agent_timeout_ms = 300;
    world_start_core(w);
    fake_set(w->fake, FAKE_AGENT_STATUS, 204);
    fake_set(w->fake, FAKE_AGENT_SILENT, 1);
    a = world_create_fails(w, &r);
    world_run_until_true(w, world_nothing_lives);
    world_run_until_rows(w, 0);
}

static void create_checks_what_it_is_asked_for(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer a;

    r.template_name = "nonsense";
    a = world_create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_NOT_FOUND);
    assert_non_null(strstr(a.why.text, "host, base"));
    r = world_request();
    r.ttl_ms = 3600001;
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_INVALID);
    r.ttl_ms = -1;
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_INVALID);
    assert_int_equal(fake_counts(w->fake).creates, 0);
}

static void the_number_of_sandboxes_is_bounded(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];
    struct answer a;

    world_stop_core(w);
    w->config.max_sandboxes = 2;
    world_start_core(w);
    world_create_default(w, id);
    world_create_default(w, id);
    a = world_create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(a.why.text, "2 of 2"));
}

/* A tenant alone may have all; where there are others it leaves them some. */
static void sandboxes_are_shared_out_by_tenant(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE], key[CORE_TOKEN_SIZE];
    struct answer a;
    struct err e;

    world_stop_core(w);
    w->config.max_sandboxes = 8;
    world_start_core(w);
    for (int i = 0; i < 5; i++)
        world_create_default(w, id);
    assert_int_equal(world_key(w, "default", "", key, &e), ERR_OK);
    world_create_default(w, id);
    assert_int_equal(world_key(w, "another", "", key, &e), ERR_OK);
    a = world_create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_EXHAUSTED);
    assert_non_null(strstr(a.why.text, "6 of 8"));
    r.tenant = "another";
    world_create(w, &r, id);
    a = world_create_fails(w, &r); /* one is left for a third */
    assert_int_equal(a.why.code, ERR_EXHAUSTED);
}

static void a_kill_while_it_is_made_undoes_it(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer made = {0}, killed = {0}, again = {0};
    char id[IDS_SANDBOX_SIZE] = "";
    char path[100];
    sqlite3 *db;
    sqlite3_stmt *s;

    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_create(w->core, &r, world_on_answer, &made);
    world_run_for(w, 30);
    snprintf(path, sizeof(path), "%s/cay.db", w->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT id FROM sandboxes", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    strncpy(id, (const char *)sqlite3_column_text(s, 0), sizeof(id) - 1);
    sqlite3_finalize(s);
    sqlite3_close(db);

    assert_null(core_sandbox_find(w->core, NULL, id));
    core_sandbox_kill(w->core, "default", id, world_on_answer, &killed);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &again);
    world_run_until(w, &made.calls, 1);
    assert_int_equal(made.why.code, ERR_CANCELED);
    world_run_until(w, &again.calls, 1);
    assert_int_equal(again.why.code, ERR_NOT_FOUND);
    assert_int_equal(killed.calls, 0);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    world_run_until(w, &killed.calls, 1);
    assert_true(killed.good);
    assert_int_equal(world_rows(w), 0);
    assert_int_equal(fake_counts(w->fake).live, 0);
    assert_int_equal(made.calls, 1);
}

static void a_kill_that_fails_is_told_and_tried_again(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    fake_set(w->fake, FAKE_FAIL_KILLS, 1);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    world_run_until_true(w, world_nothing_lives);
    world_run_until_rows(w, 0);
    assert_int_equal(a.calls, 1);
}

static void one_that_ends_by_itself_goes(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    fake_end(w->fake, id, PRIVSEP_CAUSE_OOM);
    world_run_until_ended(w, id);
    world_run_until_rows(w, 0);
}

static void a_thousand_creates_leave_nothing(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    static struct answer made[1000], killed[1000];
    size_t descriptors;
    uint64_t begun;

    memset(made, 0, sizeof(made));
    memset(killed, 0, sizeof(killed));
    world_run_for(w, 1200); /* socket caches of earlier uses are dropped */
    descriptors = world_open_descriptors();
    begun = clock_mono_us();
    for (size_t i = 0; i < ARRAY_SIZE(made); i += 50) {
        for (size_t k = i; k < i + 50; k++)
            core_sandbox_create(w->core, &r, world_on_answer, &made[k]);
        for (size_t k = i; k < i + 50; k++) {
            world_run_until(w, &made[k].calls, 1);
            assert_true(made[k].good);
        }
    }
    assert_int_equal(world_rows(w), 1000);
    print_message("# 1000 creates: %llu us each\n",
                  (unsigned long long)(clock_mono_us() - begun) / 1000u);
    for (size_t i = 0; i < ARRAY_SIZE(made); i++)
        core_sandbox_kill(w->core, "default", made[i].id, world_on_answer, &killed[i]);
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        world_run_until(w, &killed[i].calls, 1);
        assert_true(killed[i].good);
    }
    assert_int_equal(world_rows(w), 0);
    assert_int_equal(fake_counts(w->fake).live, 0);
    assert_int_equal(fake_counts(w->fake).connects, 1000);
    world_run_for(w, 100);
    /* The checkpoint thread may have opened the log meanwhile. */
    assert_in_range(world_open_descriptors(), 1, descriptors + 2);
}

/* -- time -------------------------------------------------------------------------------------- */

/* Not before its end (of two clocks, each cut to milliseconds); after it as soon as the loop turns, which is not
 * measured. */
static void a_ttl_ends_it_and_not_earlier(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];
    int64_t end;

    r.ttl_ms = 150;
    world_create(w, &r, id);
    end = core_sandbox_find(w->core, NULL, id)->end_real_ms;
    world_run_until_ended(w, id);
    assert_true(clock_real_ms() >= end - 1);
    world_run_until_rows(w, 0);
    assert_true(world_nothing_lives(w));
}

static void a_ttl_is_extended_and_shortened_to_the_millisecond(void **state)
{
    struct world *w = *state;
    const struct sandbox *s = NULL;
    struct err e;
    char id[IDS_SANDBOX_SIZE];
    int64_t before, now;

    world_create_default(w, id);
    before = core_sandbox_find(w->core, NULL, id)->end_real_ms;
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 1000, true, &s, &e), ERR_OK);
    assert_int_equal(s->end_real_ms, before);
    now = clock_real_ms();
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 120000, true, &s, &e), ERR_OK);
    assert_in_range(s->end_real_ms, now + 120000, clock_real_ms() + 120000);
    assert_int_equal(world_query(w, "SELECT end_ms FROM sandboxes"), s->end_real_ms);
    now = clock_real_ms();
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 100, false, &s, &e), ERR_OK);
    assert_in_range(s->end_real_ms, now + 100, clock_real_ms() + 100);
    world_run_until_true(w, world_nothing_lives);
    assert_true(clock_real_ms() - now >= 99); /* and not at its end before, two minutes on */

    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 100, false, &s, &e),
                     ERR_NOT_FOUND);
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 0, false, &s, &e), ERR_INVALID);
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 3600001, false, &s, &e),
                     ERR_INVALID);
}

/* Ten calls, each within the idle time and together far beyond it; then none. */
static void one_that_ends_when_idle_lives_while_it_is_used(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];
    int64_t begun, used = 0;

    r.ttl_ms = 0;
    r.idle_ms = 400;
    r.name = "mine";
    world_create(w, &r, id);
    begun = clock_real_ms();
    for (int i = 0; i < 10; i++) {
        world_run_for(w, 100);
        assert_non_null(core_sandbox_find_named(w->core, "default", "mine"));
        core_sandbox_used(w->core, id);
        used = clock_real_ms();
    }
    assert_true(used - begun >= 1000);
    world_run_until_true(w, world_nothing_lives);
    assert_true(clock_real_ms() - used >= 399);
    assert_int_equal(world_rows(w), 0);
}

static void an_idle_time_does_not_go_beyond_the_last_end(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];
    int64_t begun = clock_real_ms();

    r.ttl_ms = 300;
    r.idle_ms = 200;
    world_create(w, &r, id);
    while (core_sandbox_find(w->core, NULL, id) && clock_real_ms() < begun + 5000) {
        core_sandbox_used(w->core, id);
        world_run_for(w, 20);
    }
    assert_true(clock_real_ms() - begun >= 299);
    assert_null(core_sandbox_find(w->core, NULL, id));
}

/* The control of "mine" above: names are of one tenant, and free again after the end. */
static void a_name_is_there_once_for_a_tenant(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE], key[CORE_TOKEN_SIZE];
    struct answer a;
    struct err e;

    r.name = "mine";
    world_create(w, &r, id);
    a = world_create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_EXISTS);
    assert_int_equal(world_key(w, "another", "", key, &e), ERR_OK);
    assert_null(core_sandbox_find_named(w->core, "another", "mine"));
    r.tenant = "another";
    world_create(w, &r, id);
    assert_string_equal(core_sandbox_find_named(w->core, "another", "mine")->id, id);
    assert_null(core_sandbox_find_named(w->core, "default", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(create_gives_a_running_sandbox_whose_agent_knows_it),
        WORLD(kill_leaves_nothing),
        WORLD(a_refused_create_leaves_nothing_and_says_why),
        WORLD(an_agent_that_fails_undoes_the_create),
        WORLD(create_checks_what_it_is_asked_for),
        WORLD(the_number_of_sandboxes_is_bounded),
        WORLD(sandboxes_are_shared_out_by_tenant),
        WORLD(a_kill_while_it_is_made_undoes_it),
        WORLD(a_kill_that_fails_is_told_and_tried_again),
        WORLD(one_that_ends_by_itself_goes),
        WORLD(a_thousand_creates_leave_nothing),
        WORLD(a_ttl_ends_it_and_not_earlier),
        WORLD(a_ttl_is_extended_and_shortened_to_the_millisecond),
        WORLD(one_that_ends_when_idle_lives_while_it_is_used),
        WORLD(an_idle_time_does_not_go_beyond_the_last_end),
        WORLD(a_name_is_there_once_for_a_tenant),
    };

    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
