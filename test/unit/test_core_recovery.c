/* Units of src/core: privd goes away, cayd goes away, answers that do not come. */
#include "base/clock.h"
#include "core/core_internal.h"
#include "core/ended.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core/store_ended.h"
#include "core_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* -- privd and cayd go away -------------------------------------------------------------------- */

static void privd_gone_while_one_is_made(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer a = {0};

    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_create(w->core, &r, world_on_answer, &a);
    world_run_for(w, 30);
    fake_down(w->fake);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_true(a.why.hint[0]);
    world_run_until_true(w, world_is_not_ready);
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_UNAVAILABLE);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    fake_restart(w->fake, false);
    world_run_until_true(w, world_is_ready);
    world_run_until_rows(w, 0);
    assert_int_equal(fake_counts(w->fake).live, 0);
}

static void run_until_dead(struct world *w, const char *id)
{
    uint64_t end = clock_mono_ms() + 10000;

    while (fake_lives(w->fake, id) && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_false(fake_lives(w->fake, id));
}

static void a_restart_of_privd_keeps_what_lives(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char kept[IDS_SANDBOX_SIZE], killed[IDS_SANDBOX_SIZE];

    world_create_default(w, kept);
    world_create_default(w, killed);
    fake_down(w->fake);
    world_run_until_true(w, world_is_not_ready);
    assert_non_null(core_sandbox_find(w->core, NULL, kept));
    core_sandbox_kill(w->core, NULL, killed, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    fake_add_stray(w->fake, "istray");
    fake_restart(w->fake, false);
    world_run_until_true(w, world_is_ready);
    run_until_dead(w, killed);
    run_until_dead(w, "istray");
    assert_non_null(core_sandbox_find(w->core, NULL, kept));
    assert_true(fake_lives(w->fake, kept));
    world_run_until_rows(w, 1);
}

/* As a start finds it whose sandbox of an interrupted build was ending already: cayd aborted. */
static void the_end_of_one_that_is_ending_is_no_step(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];
    struct sandbox_obj *o;

    world_create_default(w, id);
    fake_down(w->fake);
    world_run_until_true(w, world_is_not_ready);
    core_sandbox_kill(w->core, NULL, id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    o = registry_find(&w->core->registry, id);
    assert_non_null(o);
    assert_int_equal(o->s.state, SANDBOX_ENDING);
    lifecycle_end(o, "its build was interrupted");
    assert_int_equal(o->s.state, SANDBOX_ENDING);
    fake_restart(w->fake, false);
    world_run_until_true(w, world_is_ready);
    run_until_dead(w, id);
    world_run_until_rows(w, 0);
}

/* privd has more levels than this build of it: a sandbox made at one stays at it. */
static void a_level_is_asked_for_and_stored(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];

    r.level = PRIVSEP_LEVEL_GVISOR;
    world_create(w, &r, id);
    assert_int_equal(fake_level(w->fake, id), PRIVSEP_LEVEL_GVISOR);
    world_stop_core(w);
    world_start_core(w);
    assert_int_equal(core_sandbox_find(w->core, NULL, id)->level, PRIVSEP_LEVEL_GVISOR);
}

static void what_privd_lost_is_forgotten(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    world_restart_privd(w, true);
    assert_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(world_rows(w), 0);
}

/* The moments at which cayd is killed: the last request, and what holds it up. */
static const struct moment {
    const char *name;
    enum fake_knob knob;
    bool kill;      /* else one more is being made */
    unsigned lives; /* how many of three are there afterwards */
} moments[] = {
    {"privd was asked to make one", FAKE_HOLD_CREATES, false, 2},
    {"privd had made one", FAKE_AGENT_SILENT, false, 2},
    {"privd was asked to end one", FAKE_HOLD_KILLS, true, 1},
};

/* In a process of its own: makes three, begins what the moment is about, and is killed. */
static NORETURN void be_killed(struct world *w, const struct moment *m, int out, int go)
{
    struct sandbox_request r = world_request();
    struct answer unfinished = {0};
    char id[IDS_SANDBOX_SIZE], byte;
    struct err e;

    uv_loop_fork(&w->loop);
    w->config.agent_timeout_ms = 60000;
    assert_int_equal(core_new(&w->loop, &w->config, fake_path(w->fake), &w->core, &e), ERR_OK);
    world_run_until_true(w, world_is_ready);
    for (int i = 0; i < 3; i++) {
        world_create(w, &r, id);
        if (write(out, id, sizeof(id)) != sizeof(id))
            abort();
    }
    if (read(go, &byte, 1) != 1)
        abort();
    if (m->kill)
        core_sandbox_kill(w->core, NULL, id, world_on_answer, &unfinished);
    else
        core_sandbox_create(w->core, &r, world_on_answer, &unfinished);
    world_run_for(w, 50);
    kill(getpid(), unfinished.calls ? SIGTERM : SIGKILL);
    abort();
}

/* Runs be_killed; the ids of what it made. */
static void make_and_kill(struct world *w, const struct moment *m, char ids[3][IDS_SANDBOX_SIZE])
{
    int out[2], go[2], status;
    pid_t pid;

    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(go), 0);
    pid = fork();
    if (pid == 0)
        be_killed(w, m, out[1], go[0]);
    for (int i = 0; i < 3; i++)
        assert_int_equal(read(out[0], ids[i], IDS_SANDBOX_SIZE), IDS_SANDBOX_SIZE);
    fake_set(w->fake, m->knob, 1);
    assert_int_equal(write(go[1], "", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < 2; i++) {
        close(out[i]);
        close(go[i]);
    }
}

/* Its time is over, as the next start finds it. */
static void end_time_of(struct world *w, const char *id)
{
    char sql[100];

    snprintf(sql, sizeof(sql), "UPDATE sandboxes SET end_ms = 1 WHERE id = '%s'", id);
    (void)world_query(w, sql);
}

/* To its tenant alone. */
static void assert_ended(struct world *w, const char *id, const char *reason)
{
    char text[64];
    struct err e;

    snprintf(text, sizeof(text), "sandbox '%s' has ended: %s, ", id, reason);
    assert_int_equal(core_sandbox_absent(w->core, "default", id, &e), ERR_NOT_FOUND);
    assert_int_equal(strncmp(e.text, text, strlen(text)), 0);
    assert_int_equal(core_sandbox_absent(w->core, "other", id, &e), ERR_NOT_FOUND);
    assert_null(strstr(e.text, "has ended"));
}

static void at_a_kill_of_cayd_each_is_as_before_or_gone(void **state)
{
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(moments); i++) {
        const struct moment *m = &moments[i];
        char ids[3][IDS_SANDBOX_SIZE];

        print_message("# %s\n", m->name);
        world_stop_core(w);
        make_and_kill(w, m, ids);
        assert_int_equal(world_rows(w), m->kill ? 3 : 4);
        end_time_of(w, ids[1]);
        fake_set(w->fake, m->knob, 0);
        world_start_core(w);
        world_run_until_rows(w, m->lives);
        assert_non_null(core_sandbox_find(w->core, "default", ids[0]));
        assert_null(core_sandbox_find(w->core, "default", ids[1]));
        assert_int_equal(core_sandbox_find(w->core, "default", ids[2]) != NULL, !m->kill);
        assert_ended(w, ids[1], "timeout");
        if (m->kill)
            assert_ended(w, ids[2], "killed");
        assert_in_range(core_sandbox_find(w->core, NULL, ids[0])->end_real_ms - clock_real_ms(),
                        50000, 60000);
        assert_int_equal(fake_counts(w->fake).live, m->lives);
        for (int k = 0; k < 3; k += 2) {
            struct answer gone = {0};

            core_sandbox_kill(w->core, NULL, ids[k], world_on_answer, &gone);
            world_run_until(w, &gone.calls, 1);
        }
    }
}

static void count_ended(void *arg, const struct core_ended *one)
{
    unsigned *n = arg;

    if (*n == 0)
        assert_string_equal(one->id, "i1999");
    (*n)++;
}

/* Of each tenant the newest, also where many ended in the same millisecond; none that is older than
 * seven days. */
static void ends_are_kept_up_to_a_number_and_an_age(void **state)
{
    struct world *w = *state;
    const int64_t now_ms = clock_real_ms();
    struct store_ended row = {.template_id = "host", .reason = "idle", .ended_real_ms = now_ms};
    unsigned n = 0;
    struct err e;

    for (unsigned i = 0; i < ENDED_OF_A_TENANT + 100; i++) {
        snprintf(row.id, sizeof(row.id), "i%u", 1999 - i);
        assert_int_equal(store_ended_put(w->core->store, "default", &row, &e), ERR_OK);
    }
    assert_int_equal(world_query(w, "SELECT count(*) FROM ended"), ENDED_OF_A_TENANT);
    snprintf(row.id, sizeof(row.id), "iold");
    row.ended_real_ms = now_ms - ENDED_LIFE_MS - 1000;
    assert_int_equal(store_ended_put(w->core->store, "other", &row, &e), ERR_OK);
    assert_int_equal(core_ended_each(w->core, "other", 10, count_ended, &n, &e), ERR_OK);
    assert_int_equal(n, 0);
    assert_int_equal(core_ended_each(w->core, "default", SIZE_MAX / 2, count_ended, &n, &e),
                     ERR_OK);
    assert_int_equal(n, ENDED_OF_A_TENANT);
}

/* privd was still making one for an earlier cayd when this one asked for its list. */
static void a_stray_that_appears_later_is_ended(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    world_stop_core(w);
    w->config.privd_timeout_ms = 1500;
    world_start_core(w);
    fake_add_stray(w->fake, "ilate");
    run_until_dead(w, "ilate");
    assert_true(fake_lives(w->fake, id));
    assert_non_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(fake_counts(w->fake).kills, 1);
    WORLD_RUN_UNTIL_COUNTED(w, lists, 3);
    world_run_for(w, 400);
    assert_int_equal(fake_counts(w->fake).lists, 3);
}

/* privd does not answer: its callers are told, and the late answer is made good. */
static void waits_for_privd_end(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    world_stop_core(w);
    w->config.privd_timeout_ms = 100;
    w->config.agent_timeout_ms = 100;
    world_start_core(w);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_TIMEOUT);
    assert_int_equal(world_rows(w), 2);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    world_run_until_rows(w, 1);
    assert_int_equal(fake_counts(w->fake).live, 1);

    fake_set(w->fake, FAKE_HOLD_KILLS, 1);
    core_sandbox_kill(w->core, NULL, id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_TIMEOUT);
    fake_set(w->fake, FAKE_HOLD_KILLS, 0);
    world_run_until_rows(w, 0);
    assert_int_equal(a.calls, 1);
}

/* No client is served and no sandbox forgotten before privd has said what lives. */
static void a_list_that_is_never_answered_is_asked_for_anew(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    world_stop_core(w);
    w->config.privd_timeout_ms = 300;
    world_start_core(w);
    fake_set(w->fake, FAKE_DROP_LISTS, 2);
    fake_down(w->fake);
    world_run_until_true(w, world_is_not_ready);
    fake_restart(w->fake, false);
    world_run_until_true(w, world_is_ready);
    assert_non_null(core_sandbox_find(w->core, NULL, id));
    assert_true(fake_lives(w->fake, id));
    assert_int_equal(world_rows(w), 1);
}

static void a_stop_answers_everybody_and_keeps_what_lives(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct answer made = {0}, killed = {0}, built = {0};
    char id[IDS_SANDBOX_SIZE], other[IDS_SANDBOX_SIZE];

    world_create_default(w, id);
    world_create_default(w, other);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    fake_set(w->fake, FAKE_HOLD_KILLS, 1);
    fake_set(w->fake, FAKE_HOLD_JOBS, 1);
    core_sandbox_create(w->core, &r, world_on_answer, &made);
    core_sandbox_kill(w->core, NULL, other, world_on_answer, &killed);
    core_template_build(w->core, "base", NULL, world_on_answer, &built);
    world_run_for(w, 20);
    world_stop_core(w);
    assert_int_equal(made.calls, 1);
    assert_int_equal(made.why.code, ERR_CANCELED);
    assert_int_equal(killed.calls, 1);
    assert_int_equal(killed.why.code, ERR_CANCELED);
    assert_int_equal(built.calls, 1);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    fake_set(w->fake, FAKE_HOLD_KILLS, 0);
    fake_set(w->fake, FAKE_HOLD_JOBS, 0);
    world_start_core(w);
    world_run_until_rows(w, 1);
    assert_non_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(fake_counts(w->fake).live, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(privd_gone_while_one_is_made),
        WORLD(a_restart_of_privd_keeps_what_lives),
        WORLD(the_end_of_one_that_is_ending_is_no_step),
        WORLD(a_level_is_asked_for_and_stored),
        WORLD(what_privd_lost_is_forgotten),
        WORLD(at_a_kill_of_cayd_each_is_as_before_or_gone),
        WORLD(ends_are_kept_up_to_a_number_and_an_age),
        WORLD(a_stray_that_appears_later_is_ended),
        WORLD(waits_for_privd_end),
        WORLD(a_list_that_is_never_answered_is_asked_for_anew),
        WORLD(a_stop_answers_everybody_and_keeps_what_lives),
    };

    return cmocka_run_group_tests_name("core_recovery", tests, NULL, NULL);
}
