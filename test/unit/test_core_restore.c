/* A resume from the memory on the disk whose answer does not come, as cayd ended meanwhile, or that costs the memory. */
#include "core/core_internal.h"
#include "core/keep.h"
#include "core/sandbox.h"
#include "core_world.h"

#include <errno.h>
#include <string.h>

#define ALWAYS 1000000

static struct sandbox_obj *object(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id);
}

static void make_kept(struct world *w, char id[static IDS_SANDBOX_SIZE])
{
    struct answer a = {0};

    world_create_default(w, id);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_MEMORY, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

static struct answer resumed(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static struct answer killed(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_kill(w->core, "default", id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static void await_state(struct world *w, const char *id, enum sandbox_state wanted)
{
    for (int i = 0; i < 5000 && object(w, id)->s.state != wanted; i++)
        world_run_for(w, 2);
    assert_int_equal(object(w, id)->s.state, wanted);
}

static void assert_nothing_is_left(struct world *w, const char *id)
{
    assert_null(object(w, id));
    assert_false(fake_lives(w->fake, id));
    assert_int_equal(world_rows(w), 0);
    for (unsigned n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        assert_false(fake_is_kept(w->fake, n));
}

/* The cayd that has asked for it is gone. busy: privd has begun, so that the files are no more than named. */
static void asked_for_by_an_earlier_cayd(struct world *w, char id[static IDS_SANDBOX_SIZE],
                                         bool busy)
{
    struct answer a = {0};

    make_kept(w, id);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RESTARTING);
    world_run_for(w, 20);
    world_stop_core(w);
    assert_true(a.calls == 1 && !a.good);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    fake_set(w->fake, FAKE_BUSY_KEPTS, busy ? ALWAYS : 0);
    world_start_core(w);
    assert_int_equal(object(w, id)->s.state, busy ? SANDBOX_RESTARTING : SANDBOX_KEPT);
}

/* Before the next cayd knew of it: as it was left, or as it was told that it is paused. */
static void what_was_restored_meanwhile_runs(void **state)
{
    struct world *w = *state;

    for (int busy = 0; busy < 2; busy++) {
        char id[IDS_SANDBOX_SIZE];
        const struct sandbox_obj *o;
        unsigned kills = fake_counts(w->fake).kills, keeps = fake_counts(w->fake).keeps;

        asked_for_by_an_earlier_cayd(w, id, busy);
        o = object(w, id);
        fake_restored(w->fake, o->s.kept, id, o->s.agent_key);
        await_state(w, id, SANDBOX_RUNNING);
        fake_set(w->fake, FAKE_BUSY_KEPTS, 0);
        assert_true(o->s.kept == 0 && !o->s.kept_memory && o->known_to_privd);
        assert_string_equal(core_sandbox_fell(&o->s), "");
        world_run_for(w, 50); /* its hooks */
        assert_true(fake_lives(w->fake, id));
        assert_int_equal(fake_counts(w->fake).bad_keys, 0);
        assert_int_equal(fake_counts(w->fake).kills, kills);
        assert_int_equal(fake_counts(w->fake).keeps, keeps);
        assert_true(killed(w, id).good);
        assert_nothing_is_left(w, id);
    }
}

/* Its caller is answered, and what privd makes of it still is ended. */
static void a_kill_before_it_is_restored_ends_it(void **state)
{
    struct world *w = *state;
    uint8_t key[PRIVSEP_KEY_SIZE];
    char id[IDS_SANDBOX_SIZE];
    unsigned number;

    asked_for_by_an_earlier_cayd(w, id, true);
    number = object(w, id)->s.kept;
    memcpy(key, object(w, id)->s.agent_key, sizeof(key));
    assert_true(killed(w, id).good);
    fake_restored(w->fake, number, id, key);
    for (int i = 0; i < 5000 && fake_lives(w->fake, id); i++)
        world_run_for(w, 2);
    assert_nothing_is_left(w, id);
}

static void a_kill_meanwhile_ends_one_that_privd_refuses(void **state)
{
    struct world *w = *state;
    struct answer a = {0}, b = {0};
    char id[IDS_SANDBOX_SIZE];

    make_kept(w, id);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &b);
    world_run_for(w, 20);
    assert_int_equal(b.calls, 0);
    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    world_run_until(w, &b.calls, 1);
    assert_true(b.good);
    assert_int_equal(a.why.code, ERR_NOT_FOUND);
    assert_nothing_is_left(w, id);
}

/* It is told as it is from the answer on. */
static void a_resume_that_costs_the_memory_says_so(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    unsigned inits;
    struct answer a;

    make_kept(w, id);
    fake_set(w->fake, FAKE_MEMORY_ERRNO, EIO);
    fake_set(w->fake, FAKE_LOSE_RESUMES, 1);
    a = resumed(w, id);
    assert_int_equal(a.why.code, ERR_INTERNAL);
    assert_non_null(strstr(a.why.text, "could not be restored"));
    assert_non_null(strstr(a.why.hint, "--files"));
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "files");
    assert_non_null(strstr(core_sandbox_fell(&object(w, id)->s), "could not be restored"));
    assert_true(object(w, id)->s.kept_real_ms > 0);
    world_stop_core(w);
    world_start_core(w);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "files");
    inits = fake_counts(w->fake).inits;
    assert_true(resumed(w, id).good);
    assert_int_equal(fake_counts(w->fake).inits, inits + 1);
    assert_true(killed(w, id).good);
    assert_nothing_is_left(w, id);
}

/* Found at a start, too: an earlier cayd has ended before it could look. */
static void memory_that_is_gone_at_a_start_is_not_told_as_there(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_kept(w, id);
    world_stop_core(w);
    fake_set_memory(w->fake, 1, false);
    world_start_core(w);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "files");
    assert_non_null(strstr(core_sandbox_fell(&object(w, id)->s), "was lost"));
    assert_true(object(w, id)->s.kept_real_ms > 0);
    assert_true(resumed(w, id).good);
    assert_true(killed(w, id).good);
}

/* An answer is many events, with turns of the loop between them: a question that is asked then takes none of them away. */
static void what_is_kept_is_known_while_it_is_asked_for(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_kept(w, id);
    assert_int_equal(keep_request_settle(w->core), 0);
    world_run_for(w, 20);
    assert_int_equal(keep_request_settle(w->core), 0);
    assert_int_equal(keep_seen(w->core, object(w, id)->s.kept, id), KEPT_SEEN_WHOLE);
    keep_settle_all(w->core);
    assert_non_null(object(w, id));
    world_run_for(w, 20);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_true(killed(w, id).good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(what_was_restored_meanwhile_runs),
        WORLD(a_kill_before_it_is_restored_ends_it),
        WORLD(a_kill_meanwhile_ends_one_that_privd_refuses),
        WORLD(a_resume_that_costs_the_memory_says_so),
        WORLD(memory_that_is_gone_at_a_start_is_not_told_as_there),
        WORLD(what_is_kept_is_known_while_it_is_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
