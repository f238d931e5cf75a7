/* A resume that boots anew: what else is asked for at each of its steps, and what it waits for. */
#include "core/core_internal.h"
#include "core/events.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core_world.h"

#include <string.h>
#include <unistd.h>

/* One that is paused with its memory. */
static struct sandbox_obj *make_paused(struct world *w, char id[static IDS_SANDBOX_SIZE])
{
    struct answer a = {0};

    world_create_default(w, id);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    return sandbox_get(w->core, NULL, id);
}

static void run_until_state(struct world *w, const char *id, enum sandbox_state state)
{
    for (int i = 0; i < 5000 && sandbox_get(w->core, NULL, id)->s.state != state; i++)
        world_run_for(w, 2);
    assert_int_equal(sandbox_get(w->core, NULL, id)->s.state, state);
}

/* "sandbox.paused", "sandbox.resumed", in their order: "pr". */
static void events(struct world *w, const char *id, char out[static 16])
{
    char lines[EVENTS_LINE_MAX];
    size_t n = 0;

    world_events(w, id, 1u << EVENT_SANDBOX_PAUSED | 1u << EVENT_SANDBOX_RESUMED, lines);
    for (const char *at = lines; (at = strstr(at, "\"sandbox.")) && n < 15; at++)
        out[n++] = at[9];
    out[n] = '\0';
}

/* The pause's answer, which comes after the boot's. */
struct turn {
    struct answer paused;
    const struct answer *boot;
    unsigned boots_before;
};

static void on_paused(void *arg, const struct sandbox *s, const struct err *why)
{
    struct turn *t = arg;

    t->boots_before = t->boot->calls;
    world_on_answer(&t->paused, s, why);
}

/* Each step of it, and what of the fake's holds it there. */
static const struct step {
    enum sandbox_state state;
    enum fake_knob hold;
} steps[] = {
    {SANDBOX_RESUMING, FAKE_HOLD_THAWS},
    {SANDBOX_KEEPING, FAKE_HOLD_KEEPS},
    {SANDBOX_RESTARTING, FAKE_HOLD_CREATES},
};

static void pause_at(struct world *w, const struct step *step, enum sandbox_tier tier)
{
    struct answer boot = {0};
    struct turn turn = {.boot = &boot};
    char id[IDS_SANDBOX_SIZE], told[16];
    struct sandbox_obj *o = make_paused(w, id);
    unsigned inits = fake_counts(w->fake).inits;

    fake_set(w->fake, step->hold, 1);
    core_sandbox_resume(w->core, "default", id, 50000, true, world_on_answer, &boot);
    run_until_state(w, id, step->state);
    core_sandbox_pause(w->core, "default", id, tier, on_paused, &turn);
    fake_set(w->fake, step->hold, 0);
    world_run_until(w, &turn.paused.calls, 1);
    assert_true(turn.paused.good && turn.boots_before == 1 && boot.good);
    assert_int_equal(o->s.state, tier == SANDBOX_TIER_FILES ? SANDBOX_KEPT : SANDBOX_PAUSED);
    assert_int_equal(fake_counts(w->fake).inits, inits + 1);
    events(w, id, told);
    assert_string_equal(told, "prp");
}

static void a_pause_has_its_turn_after_the_boot(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        pause_at(*state, &steps[i], SANDBOX_TIER_FROZEN);
        pause_at(*state, &steps[i], SANDBOX_TIER_FILES);
    }
}

/* It runs, with the processes that it had: that is told, and then it is paused. */
static void one_that_is_not_kept_runs_and_is_paused_then(void **state)
{
    struct answer boot = {0}, paused = {0};
    char id[IDS_SANDBOX_SIZE], told[16];
    struct world *w = *state;
    struct sandbox_obj *o = make_paused(w, id);

    fake_set(w->fake, FAKE_HOLD_KEEPS, 1);
    fake_set(w->fake, FAKE_FAIL_KEEPS, 1);
    core_sandbox_resume(w->core, "default", id, 50000, true, world_on_answer, &boot);
    run_until_state(w, id, SANDBOX_KEEPING);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    fake_set(w->fake, FAKE_HOLD_KEEPS, 0);
    world_run_until(w, &paused.calls, 1);
    assert_true(boot.calls == 1 && !boot.good && paused.good);
    assert_int_equal(o->s.state, SANDBOX_PAUSED);
    events(w, id, told);
    assert_string_equal(told, "prp");
}

/* Its files are kept, and the template that they lie on is gone: it stays so. */
static void one_that_cannot_begin_to_boot_is_paused(void **state)
{
    struct answer boot = {0}, paused = {0};
    char id[IDS_SANDBOX_SIZE];
    struct world *w = *state;
    struct sandbox_obj *o = make_paused(w, id);

    fake_set(w->fake, FAKE_HOLD_KEEPS, 1);
    core_sandbox_resume(w->core, "default", id, 50000, true, world_on_answer, &boot);
    run_until_state(w, id, SANDBOX_KEEPING);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    (void)strcpy(o->s.template_id, "none");
    fake_set(w->fake, FAKE_HOLD_KEEPS, 0);
    world_run_until(w, &boot.calls, 1);
    assert_true(!boot.good && paused.calls == 1 && paused.good);
    assert_int_equal(o->s.state, SANDBOX_KEPT);
    assert_true(!o->reboot && !o->reboot_keeps);
}

/* The channel breaks while it is kept: who waited is told so; the next pause waits for what is so, and is answered. */
static void one_that_is_broken_off_is_what_privd_says(void **state)
{
    struct answer boot = {0}, paused = {0};
    char id[IDS_SANDBOX_SIZE], told[16];
    struct world *w = *state;
    struct sandbox_obj *o = make_paused(w, id);

    fake_set(w->fake, FAKE_HOLD_KEEPS, 1);
    core_sandbox_resume(w->core, "default", id, 50000, true, world_on_answer, &boot);
    run_until_state(w, id, SANDBOX_KEEPING);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    fake_restart(w->fake, false);
    world_run_until(w, &boot.calls, 1);
    world_run_until(w, &paused.calls, 1);
    assert_int_equal(boot.why.code, ERR_UNAVAILABLE);
    assert_int_equal(paused.why.code, ERR_UNAVAILABLE);
    run_until_state(w, id, SANDBOX_RUNNING);
    events(w, id, told);
    assert_string_equal(told, "pr");
    assert_true(!o->reboot && !o->reboot_keeps);
}

static void on_snapshot(void *arg, const struct snapshot *s, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = s != NULL;
}

/* Its files stay where they are: nothing of it is begun. Without a boot it may go on. */
static void it_is_refused_while_a_snapshot_is_made(void **state)
{
    struct answer boot = {0}, joined = {0}, resumed = {0}, copied = {0};
    char id[IDS_SANDBOX_SIZE];
    struct world *w = *state;
    struct sandbox_obj *o = make_paused(w, id);

    fake_set(w->fake, FAKE_HOLD_COPIES, 1);
    core_snapshot_create(w->core, "default", id, NULL, false, on_snapshot, &copied);
    core_sandbox_resume(w->core, "default", id, 50000, true, world_on_answer, &boot);
    world_run_until(w, &boot.calls, 1);
    assert_int_equal(boot.why.code, ERR_UNAVAILABLE);
    assert_true(o->s.state == SANDBOX_PAUSED && !o->reboot);
    assert_int_equal(fake_counts(w->fake).thaws, 0);
    fake_set(w->fake, FAKE_HOLD_THAWS, 1);
    core_sandbox_resume(w->core, "default", id, 50000, false, world_on_answer, &resumed);
    core_sandbox_resume(w->core, "default", id, 50000, true, world_on_answer, &joined);
    world_run_until(w, &joined.calls, 1);
    assert_int_equal(joined.why.code, ERR_UNAVAILABLE);
    fake_set(w->fake, FAKE_HOLD_THAWS, 0);
    world_run_until(w, &resumed.calls, 1);
    assert_true(resumed.good);
    assert_int_equal(fake_counts(w->fake).keeps, 0);
    fake_set(w->fake, FAKE_HOLD_COPIES, 0);
    world_run_until(w, &copied.calls, 1);
    assert_true(copied.good);
    assert_int_equal(o->copies, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_pause_has_its_turn_after_the_boot),
        WORLD(one_that_is_not_kept_runs_and_is_paused_then),
        WORLD(one_that_cannot_begin_to_boot_is_paused),
        WORLD(one_that_is_broken_off_is_what_privd_says),
        WORLD(it_is_refused_while_a_snapshot_is_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
