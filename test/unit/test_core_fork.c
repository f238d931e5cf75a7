/* Forks with memory: calls that come for the source meanwhile, and what each fork has of it. */
#include "core/core_internal.h"
#include "core/fork.h"
#include "core/network.h"
#include "core/quota.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "core_world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FORKS 3u

struct forked {
    unsigned calls, made;
    char id[FORKS + 1][IDS_SANDBOX_SIZE];
    struct err why;
    char source[400]; /* why it does not go on */
};

static void on_forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct forked *f = arg;

    f->calls++;
    if (why)
        f->why = *why;
    for (size_t i = 0; i < n; i++) {
        memcpy(f->id[i], forks[i].id, sizeof(f->id[i]));
        f->made += forks[i].id[0] != '\0';
        if (forks[i].source)
            snprintf(f->source, sizeof(f->source), "%s", forks[i].source->text);
    }
}

static void fork_it(struct world *w, const char *id, size_t count, struct forked *f)
{
    *f = (struct forked){0};
    core_sandbox_fork(w->core, "default", id,
                      &(struct core_fork_request){.count = count, .memory = true, .ttl_ms = 60000},
                      on_forked, f);
}

static struct sandbox_obj *object(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id);
}

static void run_until_copied(struct world *w, const char *id)
{
    for (int i = 0; i < 1000 && object(w, id)->copies == 0; i++)
        world_run_for(w, 2);
    assert_int_equal(object(w, id)->copies, 1);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

/* A sandbox of which count are being made: none goes on before release. */
static void hold_forks(struct world *w, char id[static IDS_SANDBOX_SIZE], size_t count,
                       struct forked *f)
{
    world_create_default(w, id);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    fork_it(w, id, count, f);
    run_until_copied(w, id);
}

static void release(struct world *w)
{
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
}

static void a_resume_waits_for_all_of_them(void **state)
{
    struct world *w = *state;
    struct answer resumed = {0};
    char id[IDS_SANDBOX_SIZE];
    struct forked f;

    hold_forks(w, id, FORKS, &f);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &resumed);
    world_run_for(w, 20);
    assert_true(resumed.calls == 0 && f.calls == 0);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    release(w);
    world_run_until(w, &f.calls, 1);
    world_run_until(w, &resumed.calls, 1);
    assert_int_equal(f.made, FORKS);
    assert_true(resumed.good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
    assert_int_equal(object(w, id)->copies, 0);
}

/* Asked for while its source is being paused for them. */
static void a_resume_before_the_first_waits_too(void **state)
{
    struct world *w = *state;
    struct answer resumed = {0};
    char id[IDS_SANDBOX_SIZE];
    struct forked f;

    world_create_default(w, id);
    fake_set(w->fake, FAKE_HOLD_DUMPS, 1);
    fork_it(w, id, FORKS, &f);
    world_run_for(w, 20);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &resumed);
    fake_set(w->fake, FAKE_HOLD_DUMPS, 0);
    world_run_until(w, &f.calls, 1);
    world_run_until(w, &resumed.calls, 1);
    assert_int_equal(f.made, FORKS);
    assert_true(resumed.good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
}

/* The first call has paused it, and the last to end has it go on. */
static void two_calls_at_once_leave_it_running(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct forked f, g;

    hold_forks(w, id, 1, &f);
    fork_it(w, id, FORKS, &g);
    for (int i = 0; i < 1000 && object(w, id)->copies < 2; i++)
        world_run_for(w, 2);
    assert_int_equal(object(w, id)->copies, 2);
    release(w);
    world_run_until(w, &f.calls, 1);
    world_run_until(w, &g.calls, 1);
    assert_true(f.made == 1 && g.made == FORKS);
    assert_int_equal(object(w, id)->copies, 0);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
}

static void a_source_that_was_paused_stays_so(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];
    struct forked f;

    world_create_default(w, id);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_MEMORY, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    fork_it(w, id, FORKS, &f);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, FORKS);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_int_equal(object(w, id)->copies, 0);
}

/* The forks run, and each says it. */
static void a_source_that_does_not_go_on_is_told(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct forked f, g;

    world_create_default(w, id);
    fake_set(w->fake, FAKE_LOSE_RESUMES, 1);
    fork_it(w, id, FORKS, &f);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, FORKS);
    assert_non_null(strstr(f.source, "is paused still"));
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "files");
    fork_it(w, f.id[0], 1, &g); /* control */
    world_run_until(w, &g.calls, 1);
    assert_true(g.made == 1 && !*g.source);
}

/* It ends: forks that were made are told, the others not. */
static void an_end_of_the_source_ends_the_rest(void **state)
{
    struct world *w = *state;
    struct answer killed = {0};
    char id[IDS_SANDBOX_SIZE];
    struct forked f;

    hold_forks(w, id, FORKS, &f);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &killed);
    release(w);
    world_run_until(w, &killed.calls, 1);
    world_run_until(w, &f.calls, 1);
    assert_true(killed.good && f.made < FORKS);
    assert_string_equal(f.source, ""); /* what its owner has ended is not said to be paused still */
    assert_null(object(w, id));
}

/* The forks are there, and it is not said to be paused still: its owner has ended it. */
static void an_end_of_the_source_as_the_last_is_made(void **state)
{
    struct world *w = *state;
    struct answer killed = {0};
    char id[IDS_SANDBOX_SIZE];
    struct forked f;

    hold_forks(w, id, 1, &f);
    fake_set(w->fake, FAKE_HOLD_DROPS, 1);
    core_sandbox_kill(w->core, "default", id, world_on_answer, &killed);
    release(w);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, 1);
    assert_non_null(object(w, id)); /* control: it was asked to go on as it ended */
    assert_string_equal(f.source, "");
    fake_set(w->fake, FAKE_HOLD_DROPS, 0);
    world_run_until(w, &killed.calls, 1);
    assert_true(killed.good);
}

static void no_quota_of_pauses_is_needed(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];
    const int64_t most[QUOTA_COUNT] = {0};
    bool given[QUOTA_COUNT] = {[QUOTA_PAUSED] = true};
    struct forked f;
    struct err e;

    world_create_default(w, id);
    assert_int_equal(core_tenant_set_quotas(w->core, "default", most, given, &e), ERR_OK);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_MEMORY, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_EXHAUSTED); /* the control */
    fork_it(w, id, FORKS, &f);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, FORKS);
}

/* Of the forks that are begun after a change each has what the source has then. */
static void a_change_of_the_policy_holds_for_the_forks_after_it(void **state)
{
    struct world *w = *state;
    struct core_network changed = {.allow_internet = true};
    char id[IDS_SANDBOX_SIZE];
    struct answer set = {0};
    struct forked f;

    hold_forks(w, id, 2, &f);
    changed.policy = json_pack("{s:s}", "default", "deny");
    core_sandbox_set_network(w->core, "default", id, &changed, world_on_answer, &set);
    world_run_until(w, &set.calls, 1);
    assert_true(set.good);
    release(w);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, 2);
    assert_false(json_equal(object(w, f.id[0])->s.policy, changed.policy));
    assert_true(json_equal(object(w, f.id[1])->s.policy, changed.policy));
    json_decref(changed.policy);
}

static size_t children(struct world *w, const char *id)
{
    size_t n = 0;

    for (struct sandbox_obj *o = tenant_find(w->core, "default")->sandboxes; o; o = o->tenant_next)
        n += strcmp(o->s.parent, id) == 0;
    return n;
}

/* The first is made, and those that are begun then are held. */
static void hold_the_others(struct world *w, const char *id)
{
    world_run_for(w, 20);
    assert_int_equal(children(w, id), 1);
    fake_set(w->fake, FAKE_HOLD_CREATES, -1);
    for (int i = 0; i < 1000 && children(w, id) == 1; i++)
        world_run_for(w, 2);
    world_run_for(w, 20);
}

/* The first of them opens the image for the others. */
static void the_first_is_made_alone_and_then_two_at_a_time(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct forked f;

    hold_forks(w, id, FORKS + 1, &f);
    hold_the_others(w, id);
    assert_int_equal(children(w, id), 3);
    release(w);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, FORKS + 1);
    assert_int_equal(object(w, id)->s.state, SANDBOX_RUNNING);
}

/* As where others of the tenant's are being restored. */
static void one_that_has_no_place_beside_another_is_made_after_it(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct forked f;

    hold_forks(w, id, FORKS + 1, &f);
    hold_the_others(w, id);
    fake_set(w->fake, FAKE_MEMORY_ERRNO, EAGAIN);
    fake_set(w->fake, FAKE_FAIL_RESTORES, 1);
    release(w);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, FORKS + 1);
    fake_set(w->fake, FAKE_FAIL_RESTORES, 1); /* the control: it is the only one */
    fork_it(w, id, 1, &f);
    world_run_until(w, &f.calls, 1);
    assert_int_equal(f.made, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_resume_waits_for_all_of_them),
        WORLD(a_resume_before_the_first_waits_too),
        WORLD(two_calls_at_once_leave_it_running),
        WORLD(a_source_that_was_paused_stays_so),
        WORLD(a_source_that_does_not_go_on_is_told),
        WORLD(an_end_of_the_source_ends_the_rest),
        WORLD(an_end_of_the_source_as_the_last_is_made),
        WORLD(no_quota_of_pauses_is_needed),
        WORLD(a_change_of_the_policy_holds_for_the_forks_after_it),
        WORLD(the_first_is_made_alone_and_then_two_at_a_time),
        WORLD(one_that_has_no_place_beside_another_is_made_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
