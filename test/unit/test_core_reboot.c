/* A resume that boots anew: what else is asked for at each of its steps, and what it waits for.
 * A rollback, and how it can fail. */
#include "base/clock.h"
#include "core/core_internal.h"
#include "core/events.h"
#include "core/reboot.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core_world.h"

#include <string.h>
#include <unistd.h>

/* A sandbox that is paused with its memory. */
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

struct pauser {
    struct world *w;
    struct answer resumed, paused;
};

static void pause_in_callback(void *arg, const struct sandbox *s, const struct err *why)
{
    struct pauser *p = arg;

    world_on_answer(&p->resumed, s, why);
    core_sandbox_pause(p->w->core, "default", s->id, SANDBOX_TIER_FILES, world_on_answer,
                       &p->paused);
}

/* Each that waited for it pauses it at once, as one does who needed it for a moment. */
static void it_is_paused_by_who_is_told_that_it_runs(void **state)
{
    struct pauser all[] = {{.w = *state}, {.w = *state}};
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct sandbox_obj *o = make_paused(w, id);

    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        core_sandbox_resume(w->core, "default", id, 50000, false, pause_in_callback, &all[i]);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        world_run_until(w, &all[i].paused.calls, 1);
    assert_true(all[0].resumed.good && all[0].paused.good && all[1].resumed.good);
    assert_int_equal(all[1].paused.why.code, ERR_EXISTS);
    assert_int_equal(o->s.state, SANDBOX_KEPT);
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

/* The channel breaks while it is kept: who waited is told so; the next pause waits for what is
 * so, and is answered. */
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
    if (s)
        memcpy(a->id, s->id, sizeof(a->id));
}

static void make_snapshot(struct world *w, const char *box, struct answer *a)
{
    *a = (struct answer){0};
    core_snapshot_create(w->core, "default", box, NULL, SNAPSHOT_PLAIN, on_snapshot, a);
}

/* Its files stay where they are meanwhile, and privd lets nothing of it run. A resume that wants
 * it to go on without a boot waits, too. */
static void it_waits_for_a_snapshot_that_is_made(void **state)
{
    struct answer boot = {0}, resumed = {0}, copied;
    char id[IDS_SANDBOX_SIZE];
    struct world *w = *state;
    struct sandbox_obj *o = make_paused(w, id);

    for (int joins = 0; joins < 2; joins++) {
        unsigned keeps = fake_counts(w->fake).keeps, thaws = fake_counts(w->fake).thaws;

        fake_set(w->fake, FAKE_HOLD_COPIES, 1);
        make_snapshot(w, id, &copied);
        core_sandbox_resume(w->core, "default", id, 50000, true, world_on_answer, &boot);
        world_run_for(w, 20);
        assert_true(o->s.state == SANDBOX_PAUSED && fake_counts(w->fake).thaws == thaws);
        if (joins) {
            core_sandbox_resume(w->core, "default", id, 50000, false, world_on_answer, &resumed);
            world_run_for(w, 20);
            assert_true(o->s.state == SANDBOX_PAUSED && fake_counts(w->fake).thaws == thaws);
        }
        assert_true(fake_counts(w->fake).keeps == keeps && boot.calls == (unsigned)joins);
        fake_set(w->fake, FAKE_HOLD_COPIES, 0);
        world_run_until(w, &boot.calls, 1 + (unsigned)joins);
        assert_true(copied.good && boot.good && resumed.calls == (unsigned)joins);
        assert_int_equal(fake_counts(w->fake).keeps, keeps + 1);
        core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &resumed);
        run_until_state(w, id, SANDBOX_PAUSED);
        resumed.calls = 0;
    }
}

static void it_is_resumed_when_the_snapshot_is_made(void **state)
{
    struct answer resumed = {0}, copied;
    char id[IDS_SANDBOX_SIZE];
    struct world *w = *state;
    struct sandbox_obj *o = make_paused(w, id);
    unsigned thaws = fake_counts(w->fake).thaws, keeps = fake_counts(w->fake).keeps;

    fake_set(w->fake, FAKE_HOLD_COPIES, 1);
    make_snapshot(w, id, &copied);
    core_sandbox_resume(w->core, "default", id, 50000, false, world_on_answer, &resumed);
    world_run_for(w, 20);
    assert_true(o->s.state == SANDBOX_PAUSED && resumed.calls == 0);
    assert_int_equal(fake_counts(w->fake).thaws, thaws); /* it would be EBUSY */
    fake_set(w->fake, FAKE_HOLD_COPIES, 0);
    world_run_until(w, &resumed.calls, 1);
    assert_true(copied.good && resumed.good && o->s.state == SANDBOX_RUNNING);
    assert_int_equal(fake_counts(w->fake).thaws, thaws + 1);
    assert_int_equal(fake_counts(w->fake).keeps, keeps); /* and has not booted */
}

static void it_waits_for_so_long(void **state)
{
    struct world *w = *state;

    for (int boots = 0; boots < 2; boots++) {
        struct answer resumed = {0}, copied;
        char id[IDS_SANDBOX_SIZE];
        struct sandbox_obj *o = make_paused(w, id);

        fake_set(w->fake, FAKE_HOLD_COPIES, 1);
        make_snapshot(w, id, &copied);
        core_sandbox_resume(w->core, "default", id, 50000, boots, world_on_answer, &resumed);
        assert_true(timer_armed(&o->copies_wait));
        timers_set(&w->core->timers, &o->copies_wait, clock_mono_ms());
        world_run_until(w, &resumed.calls, 1);
        assert_int_equal(resumed.why.code, ERR_UNAVAILABLE);
        assert_true(o->s.state == SANDBOX_PAUSED && !o->reboot);
        fake_set(w->fake, FAKE_HOLD_COPIES, 0);
        world_run_until(w, &copied.calls, 1);
        assert_true(copied.good && o->s.state == SANDBOX_PAUSED && !timer_armed(&o->copies_wait));
    }
}

/* -- rollback ---------------------------------------------------------------------------------- */

static unsigned kept_numbers(struct world *w)
{
    unsigned n = 0;

    for (unsigned number = 1; number <= PRIVSEP_KEPT_MAX; number++)
        n += fake_is_kept(w->fake, number);
    return n;
}

/* A sandbox in that state, with a snapshot of it. */
static struct sandbox_obj *make_with_snapshot(struct world *w, enum sandbox_state as,
                                              char id[static IDS_SANDBOX_SIZE], struct answer *made)
{
    struct answer a = {0};

    world_create_default(w, id);
    make_snapshot(w, id, made);
    world_run_until(w, &made->calls, 1);
    assert_true(made->good);
    if (as != SANDBOX_RUNNING) {
        core_sandbox_pause(w->core, "default", id,
                           as == SANDBOX_KEPT ? SANDBOX_TIER_FILES : SANDBOX_TIER_FROZEN,
                           world_on_answer, &a);
        world_run_until(w, &a.calls, 1);
    }
    assert_int_equal(sandbox_get(w->core, NULL, id)->s.state, as);
    return sandbox_get(w->core, NULL, id);
}

static void roll_back(struct world *w, const char *id, const char *snapshot, struct answer *a)
{
    *a = (struct answer){0};
    core_sandbox_rollback(w->core, "default", id, snapshot, world_on_answer, a);
}

/* From each state it runs afterwards, on a copy of the snapshot's: nothing is kept but that. */
static void it_is_rolled_back_from_each_state(void **state)
{
    static const struct {
        enum sandbox_state state;
        const char *told;
    } cases[] = {{SANDBOX_RUNNING, ""}, {SANDBOX_PAUSED, "pr"}, {SANDBOX_KEPT, "pr"}};
    char id[IDS_SANDBOX_SIZE], told[16], lines[EVENTS_LINE_MAX];
    struct world *w = *state;
    struct answer made, rolled;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sandbox_obj *o = make_with_snapshot(w, cases[i].state, id, &made);
        int64_t end_ms = o->s.end_real_ms;
        unsigned inits = fake_counts(w->fake).inits;

        roll_back(w, id, made.id, &rolled);
        world_run_until(w, &rolled.calls, 1);
        assert_true(rolled.good && o->s.state == SANDBOX_RUNNING && o->s.kept == 0);
        if (cases[i].state == SANDBOX_RUNNING)
            assert_in_range(o->s.end_real_ms, end_ms - 1000, end_ms + 1000);
        assert_int_equal(fake_counts(w->fake).inits, inits + 1);
        for (int t = 0; t < 500 && kept_numbers(w) != i + 1; t++)
            world_run_for(w, 2);
        assert_int_equal(kept_numbers(w), i + 1);
        events(w, id, told);
        assert_string_equal(told, cases[i].told);
        world_events(w, id, 1u << EVENT_SANDBOX_ROLLED_BACK, lines);
        assert_non_null(strstr(lines, made.id));
        assert_true(!o->reboot && !o->reboot_ran && !o->rolled_back && !o->rollback_to[0]);
    }
}

/* How it can fail after its own files are kept, and before it runs. */
static void fail_create(struct world *w, const char *id, const char *snapshot)
{
    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
}

static void fail_agent(struct world *w, const char *id, const char *snapshot)
{
    fake_set(w->fake, FAKE_AGENT_STATUS, 500);
}

static void lose_agent(struct world *w, const char *id, const char *snapshot)
{
    fake_set(w->fake, FAKE_AGENT_SILENT, 1);
}

static void on_gone(void *arg, const struct err *why)
{
    assert_null(why);
}

static void remove_snapshot(struct world *w, const char *id, const char *snapshot)
{
    core_snapshot_delete(w->core, "default", snapshot, on_gone, NULL);
}

static bool is_booting(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id)->s.state == SANDBOX_RESTARTING && fake_lives(w->fake, id);
}

/* cayd ends as it boots: the next one finds what was made of the snapshot, and the own files
 * beside it. */
static void restart_core(struct world *w, const char *id)
{
    world_stop_core(w);
    world_start_core(w);
}

static void restart_privd(struct world *w, const char *id)
{
    fake_restart(w->fake, false);
}

static void end_first_process(struct world *w, const char *id)
{
    fake_end(w->fake, id, PRIVSEP_CAUSE_EXITED);
}

/* It is paused with its own files, which is what its owner is told, and goes on from them. */
static void one_that_is_not_rolled_back_has_its_own_files(void **state)
{
    static const struct {
        void (*breaks)(struct world *w, const char *id, const char *snapshot);
        void (*then)(struct world *w, const char *id); /* once it boots; NULL: it fails by itself */
    } cases[] = {{fail_create, NULL},         {fail_agent, NULL},
                 {remove_snapshot, NULL},     {lose_agent, restart_core},
                 {lose_agent, restart_privd}, {lose_agent, end_first_process}};
    char id[IDS_SANDBOX_SIZE], told[16];
    struct answer made, rolled, resumed;
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sandbox_obj *o = make_with_snapshot(w, SANDBOX_RUNNING, id, &made);
        unsigned keeps = fake_counts(w->fake).keeps;
        uint32_t own;

        fake_set(w->fake, FAKE_HOLD_KEEPS, 1);
        roll_back(w, id, made.id, &rolled);
        for (int t = 0; t < 5000 && fake_counts(w->fake).keeps == keeps; t++)
            world_run_for(w, 2);
        own = o->s.kept;
        cases[i].breaks(w, id, made.id);
        fake_set(w->fake, FAKE_HOLD_KEEPS, 0);
        for (int t = 0; cases[i].then && t < 5000 && !is_booting(w, id); t++)
            world_run_for(w, 2);
        if (cases[i].then)
            cases[i].then(w, id);
        world_run_until(w, &rolled.calls, 1);
        run_until_state(w, id, SANDBOX_KEPT);
        assert_true(!rolled.good && fake_is_kept(w->fake, own));
        assert_false(fake_lives(w->fake, id));
        if (cases[i].then != restart_core && cases[i].then != restart_privd) {
            events(w, id, told);
            assert_string_equal(told, "p");
        }
        fake_set(w->fake, FAKE_AGENT_SILENT, 0);
        fake_set(w->fake, FAKE_AGENT_STATUS, 204);
        world_run_until_true(w, world_is_ready);
        resumed = (struct answer){0};
        core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &resumed);
        world_run_until(w, &resumed.calls, 1);
        assert_true(resumed.good && !fake_is_kept(w->fake, own));
    }
}

static void what_is_refused_of_rollbacks(void **state)
{
    char id[IDS_SANDBOX_SIZE], other[IDS_SANDBOX_SIZE];
    struct world *w = *state;
    struct answer made, again, rolled, refused;
    struct sandbox_obj *o = make_with_snapshot(w, SANDBOX_RUNNING, id, &made);
    unsigned keeps = fake_counts(w->fake).keeps;

    roll_back(w, id, "snone", &refused);
    world_run_until(w, &refused.calls, 1);
    assert_int_equal(refused.why.code, ERR_NOT_FOUND);
    refused = (struct answer){0};
    core_sandbox_rollback(w->core, "another", id, made.id, world_on_answer, &refused);
    world_run_until(w, &refused.calls, 1);
    assert_int_equal(refused.why.code, ERR_NOT_FOUND);
    (void)make_with_snapshot(w, SANDBOX_RUNNING, other, &again);
    fake_set(w->fake, FAKE_HOLD_DROPS, 1); /* it is being removed */
    core_snapshot_delete(w->core, "default", again.id, on_gone, NULL);
    roll_back(w, id, again.id, &refused);
    world_run_until(w, &refused.calls, 1);
    assert_int_equal(refused.why.code, ERR_NOT_FOUND);
    fake_set(w->fake, FAKE_HOLD_DROPS, 0);
    assert_true(o->s.state == SANDBOX_RUNNING && fake_counts(w->fake).keeps == keeps);
    fake_set(w->fake, FAKE_HOLD_KEEPS, 1);
    roll_back(w, id, made.id, &rolled);
    roll_back(w, id, made.id, &refused);
    world_run_until(w, &refused.calls, 1);
    assert_int_equal(refused.why.code, ERR_CONFLICT);
    fake_set(w->fake, FAKE_HOLD_KEEPS, 0);
    world_run_until(w, &rolled.calls, 1);
    assert_true(rolled.good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_pause_has_its_turn_after_the_boot),
        WORLD(one_that_is_not_kept_runs_and_is_paused_then),
        WORLD(it_is_paused_by_who_is_told_that_it_runs),
        WORLD(one_that_cannot_begin_to_boot_is_paused),
        WORLD(one_that_is_broken_off_is_what_privd_says),
        WORLD(it_waits_for_a_snapshot_that_is_made),
        WORLD(it_is_resumed_when_the_snapshot_is_made),
        WORLD(it_waits_for_so_long),
        WORLD(it_is_rolled_back_from_each_state),
        WORLD(one_that_is_not_rolled_back_has_its_own_files),
        WORLD(what_is_refused_of_rollbacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
