/* A pause with the memory on the disk, and the resume from it: what its agent and privd may answer, what comes in between, and
 * what becomes of it where they refuse. Every state and event besides: test_core_life.c. */
#include "base/clock.h"
#include "core/archive.h"
#include "core/core_internal.h"
#include "core/events.h"
#include "core/sandbox.h"
#include "core/timers.h"
#include "core_world.h"

#include <errno.h>
#include <string.h>

#define REFUSED "process 7 is traced by a debugger"

static struct sandbox_obj *object(struct world *w, const char *id)
{
    return sandbox_get(w->core, NULL, id);
}

static void begin_pause(struct world *w, const char *id, enum sandbox_tier tier, struct answer *a)
{
    *a = (struct answer){0};
    core_sandbox_pause(w->core, "default", id, tier, world_on_answer, a);
}

static struct answer paused(struct world *w, const char *id, enum sandbox_tier tier)
{
    struct answer a;

    begin_pause(w, id, tier, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static struct answer resumed(struct world *w, const char *id, bool reboot)
{
    struct answer a = {0};

    core_sandbox_resume(w->core, "default", id, 0, reboot, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    return a;
}

static void make_kept(struct world *w, char id[static IDS_SANDBOX_SIZE])
{
    world_create_default(w, id);
    assert_true(paused(w, id, SANDBOX_TIER_MEMORY).good);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
}

static void end(struct world *w, const char *id)
{
    struct answer a = {0};

    core_sandbox_kill(w->core, "default", id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    for (unsigned n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        assert_false(fake_is_kept(w->fake, n) || fake_has_memory(w->fake, n));
}

static void assert_runs(struct world *w, const char *id)
{
    const struct sandbox_obj *o = object(w, id);

    assert_int_equal(o->s.state, SANDBOX_RUNNING);
    assert_true(o->s.kept == 0 && !o->s.kept_memory && !o->s.or_files && !o->s.env);
    assert_false(o->dump_requested || o->dump_waits || o->dump_prepared || o->restoring ||
                 o->change_requested);
    assert_false(fake_is_prepared(w->fake, id));
    assert_int_equal(world_query(w, "SELECT kept FROM sandboxes"), 0);
}

/* The last event of that type has this text. */
static void assert_event(struct world *w, const char *id, unsigned type, const char *text)
{
    char lines[EVENTS_LINE_MAX];

    world_events(w, id, 1u << type, lines);
    if (!strstr(lines, text))
        fail_msg("no \"%s\" in %s", text, lines);
}

/* Why its memory is not there has text in it, or is "", in the next cayd too. */
static struct sandbox_obj *seen_after_a_restart(struct world *w, const char *id, const char *text)
{
    struct sandbox_obj *o;

    world_stop_core(w);
    world_start_core(w);
    o = object(w, id);
    assert_non_null(o);
    assert_non_null(strstr(core_sandbox_fell(&o->s), text));
    assert_int_equal(core_sandbox_fell(&o->s)[0] == '\0', text[0] == '\0');
    return o;
}

/* -- as it is to be ----------------------------------------------------------------------------- */

static void what_ran_goes_on(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    uint8_t key[PRIVSEP_KEY_SIZE];
    unsigned inits;
    struct sandbox_obj *o;

    make_kept(w, id);
    o = object(w, id);
    assert_string_equal(core_pause_tier_name(&o->s), "memory");
    assert_true(core_sandbox_has_memory(&o->s) && !core_sandbox_is_stopped(&o->s));
    assert_true(fake_has_memory(w->fake, o->s.kept) && !fake_lives(w->fake, id));
    assert_int_equal(fake_counts(w->fake).prepares, 1);
    assert_int_equal(fake_counts(w->fake).dumps, 1);
    assert_int_equal(fake_counts(w->fake).keeps, 0);
    assert_event(w, id, EVENT_SANDBOX_PAUSED, "\"tier\":\"memory\"");
    inits = fake_counts(w->fake).inits;
    memcpy(key, o->s.agent_key, sizeof(key));
    assert_true(resumed(w, id, false).good);
    assert_runs(w, id);
    assert_int_equal(fake_counts(w->fake).inits, inits);
    assert_int_equal(fake_counts(w->fake).restores, 1);
    assert_memory_not_equal(key, o->s.agent_key, sizeof(key));
    assert_string_equal(core_sandbox_fell(&o->s), "");
    world_run_for(w, 50); /* its hooks */
    assert_int_equal(fake_counts(w->fake).bad_keys, 0);
    end(w, id);
}

static void it_outlives_a_restart_of_cayd(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_kept(w, id);
    world_stop_core(w);
    world_start_core(w);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "memory");
    assert_true(resumed(w, id, false).good);
    assert_int_equal(fake_counts(w->fake).restores, 1);
    end(w, id);
}

static void however_many_resume_it_there_is_one_create(void **state)
{
    struct world *w = *state;
    struct answer all[20] = {0};
    char id[IDS_SANDBOX_SIZE];
    unsigned creates;

    make_kept(w, id);
    creates = fake_counts(w->fake).creates;
    for (size_t i = 0; i < ARRAY_SIZE(all); i++)
        core_sandbox_resume(w->core, NULL, id, 0, false, world_on_answer, &all[i]);
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        world_run_until(w, &all[i].calls, 1);
        assert_true(all[i].good);
    }
    assert_int_equal(fake_counts(w->fake).creates, creates + 1);
    end(w, id);
}

static void a_boot_anew_gives_its_memory_up(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    unsigned inits;

    make_kept(w, id);
    inits = fake_counts(w->fake).inits;
    assert_true(resumed(w, id, true).good);
    assert_runs(w, id);
    assert_int_equal(fake_counts(w->fake).restores, 0);
    assert_int_equal(fake_counts(w->fake).inits, inits + 1);
    end(w, id);
}

/* Neither what a stopped one is deleted after, nor what it is archived after, is of one that goes on where it was. */
static void it_is_not_stopped(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct sandbox_obj *o;

    world_create_default(w, id);
    o = object(w, id);
    o->s.auto_delete_ms = 1;
    o->s.auto_archive_ms = 1;
    assert_true(paused(w, id, SANDBOX_TIER_MEMORY).good);
    world_run_for(w, 30);
    assert_int_equal(object(w, id)->s.state, SANDBOX_KEPT);
    assert_false(timer_armed(&o->end));
    assert_false(core_sandbox_is_stopped(&o->s));
    assert_false(core_sandbox_is_archived(&o->s, clock_real_ms() + 60000));
    end(w, id);
}

/* -- what cannot be kept ------------------------------------------------------------------------ */

/* The agent has no such route, or says why not. */
static void an_agent_that_does_not_prepare_runs_on(void **state)
{
    static const struct {
        int status;
        const char *text;
    } rows[] = {{404, "does not know how to prepare"}, {409, "with a filter of its own"}};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char id[IDS_SANDBOX_SIZE];
        struct answer a;

        fake_set(w->fake, FAKE_PREPARE, rows[i].status);
        world_create_default(w, id);
        a = paused(w, id, SANDBOX_TIER_MEMORY);
        assert_int_equal(a.why.code, ERR_UNIMPLEMENTED);
        assert_non_null(strstr(a.why.text, rows[i].text));
        assert_int_equal(fake_counts(w->fake).dumps, 0);
        assert_runs(w, id);
        end(w, id);
    }
}

static void what_privd_refuses_runs_on(void **state)
{
    static const struct {
        int status;
        enum err_code code;
        const char *text;
    } rows[] = {
        {EOPNOTSUPP, ERR_UNIMPLEMENTED, REFUSED}, {ENOENT, ERR_UNIMPLEMENTED, "cannot be kept"},
        {ENOSPC, ERR_NO_SPACE, "cannot be kept"}, {EDQUOT, ERR_NO_SPACE, "cannot be kept"},
        {EFBIG, ERR_NO_SPACE, "cannot be kept"},  {EIO, ERR_INTERNAL, "cannot be kept"}};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char id[IDS_SANDBOX_SIZE];
        struct answer a;

        fake_set(w->fake, FAKE_MEMORY_ERRNO, rows[i].status);
        fake_set(w->fake, FAKE_FAIL_DUMPS, 1);
        fake_set(w->fake, FAKE_LATE_GO_ONS, (int)i % 3); /* its agent serves when it is answered */
        world_create_default(w, id);
        a = paused(w, id, SANDBOX_TIER_MEMORY);
        assert_int_equal(a.why.code, rows[i].code);
        assert_non_null(strstr(a.why.text, rows[i].text));
        assert_true(a.why.hint[0] != '\0');
        assert_runs(w, id);
        assert_true(timer_armed(&object(w, id)->end));
        end(w, id);
    }
}

/* Told in the answer's sandbox and in the event; and it can be resumed, by a boot. */
static void where_files_will_do_they_are_kept(void **state)
{
    struct world *w = *state;

    for (int by_agent = 0; by_agent < 2; by_agent++) {
        unsigned keeps = fake_counts(w->fake).keeps;
        char id[IDS_SANDBOX_SIZE];
        struct sandbox_obj *o;

        fake_set(w->fake, FAKE_PREPARE, by_agent ? 409 : 204);
        fake_set(w->fake, FAKE_FAIL_DUMPS, !by_agent);
        world_create_default(w, id);
        o = object(w, id);
        assert_true(paused(w, id, SANDBOX_TIER_MEMORY_OR_FILES).good);
        assert_string_equal(core_pause_tier_name(&o->s), "files");
        assert_non_null(strstr(core_sandbox_fell(&o->s), by_agent ? "of its own" : REFUSED));
        assert_event(w, id, EVENT_SANDBOX_PAUSED, "\"tier\":\"files\"");
        assert_event(w, id, EVENT_SANDBOX_PAUSED, "\"memoryError\":\"its memory cannot be kept");
        assert_int_equal(fake_counts(w->fake).keeps, keeps + 1);
        assert_true(core_sandbox_is_stopped(&o->s));
        assert_true(resumed(w, id, false).good);
        assert_runs(w, id);
        end(w, id);
    }
}

/* CRIU was killed in the middle: the programs are lost, whatever the caller allowed, and that is
 * told. */
static void a_dump_that_ended_it_has_kept_its_files(void **state)
{
    static const int errors[] = {ETIMEDOUT, ECHILD};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        char id[IDS_SANDBOX_SIZE];

        fake_set(w->fake, FAKE_MEMORY_ERRNO, errors[i]);
        fake_set(w->fake, FAKE_FAIL_DUMPS, 1);
        world_create_default(w, id);
        assert_true(paused(w, id, SANDBOX_TIER_MEMORY).good);
        assert_string_equal(core_pause_tier_name(&object(w, id)->s), "files");
        assert_event(w, id, EVENT_SANDBOX_PAUSED, "memoryError");
        assert_true(resumed(w, id, false).good);
        assert_runs(w, id);
        end(w, id);
    }
}

/* privd ended meanwhile, so that no answer tells what there is of it. */
static void what_an_end_of_privd_has_cut_is_told(void **state)
{
    struct world *w = *state;

    for (int is_whole = 0; is_whole < 2; is_whole++) {
        char id[IDS_SANDBOX_SIZE];
        struct answer a;
        unsigned number;

        fake_set(w->fake, FAKE_HOLD_DUMPS, 1);
        world_create_default(w, id);
        begin_pause(w, id, SANDBOX_TIER_MEMORY, &a);
        while (!object(w, id)->dump_prepared)
            world_run_for(w, 1);
        number = object(w, id)->s.kept;
        fake_down(w->fake);
        fake_end_silently(w->fake, id);
        fake_set_kept(w->fake, number, true);
        fake_set_owner(w->fake, number, id);
        fake_set_memory(w->fake, number, is_whole);
        fake_set(w->fake, FAKE_HOLD_DUMPS, 0);
        fake_restart(w->fake, false);
        while (object(w, id)->s.state != SANDBOX_KEPT)
            world_run_for(w, 1);
        assert_string_equal(core_pause_tier_name(&object(w, id)->s), is_whole ? "memory" : "files");
        assert_event(w, id, EVENT_SANDBOX_PAUSED, is_whole ? "\"tier\":\"memory\"" : "was lost");
        assert_true(resumed(w, id, false).good);
        assert_runs(w, id);
        end(w, id);
    }
}

/* It may be prepared, so that privd's answer decides. */
static void an_agent_that_does_not_answer_is_dumped(void **state)
{
    struct world *w = *state;

    for (int refused = 0; refused < 2; refused++) {
        char id[IDS_SANDBOX_SIZE];
        struct answer a;

        fake_set(w->fake, FAKE_PREPARE, 0);
        fake_set(w->fake, FAKE_FAIL_DUMPS, refused);
        world_create_default(w, id);
        begin_pause(w, id, SANDBOX_TIER_MEMORY, &a);
        world_run_until(w, &a.calls, 1);
        assert_int_equal(a.good, !refused);
        if (refused)
            assert_runs(w, id);
        end(w, id);
    }
}

static void a_kill_meanwhile_ends_it(void **state)
{
    static const enum fake_knob holds[] = {FAKE_AGENT_SILENT, FAKE_HOLD_DUMPS};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(holds); i++) {
        char id[IDS_SANDBOX_SIZE];
        struct answer a;

        fake_set(w->fake, FAKE_HOLD_DUMPS, 1);
        world_create_default(w, id);
        begin_pause(w, id, SANDBOX_TIER_MEMORY, &a);
        while (!(holds[i] == FAKE_HOLD_DUMPS ? object(w, id)->dump_prepared
                                             : object(w, id)->dump_requested))
            world_run_for(w, 1);
        end(w, id);
        world_run_until(w, &a.calls, 1);
        assert_int_equal(a.why.code, ERR_NOT_FOUND);
        fake_set(w->fake, FAKE_HOLD_DUMPS, 0);
        world_run_for(w, 20);
        assert_false(fake_is_kept(w->fake, 1));
    }
}

/* -- one at a time ------------------------------------------------------------------------------ */

static void the_second_waits_for_the_first(void **state)
{
    struct world *w = *state;
    char ids[3][IDS_SANDBOX_SIZE];
    struct answer a[3];

    for (int i = 0; i < 3; i++)
        world_create_default(w, ids[i]);
    fake_set(w->fake, FAKE_HOLD_DUMPS, 1);
    for (int i = 0; i < 3; i++)
        begin_pause(w, ids[i], SANDBOX_TIER_MEMORY, &a[i]);
    world_run_for(w, 300);
    assert_int_equal(fake_counts(w->fake).prepares, 1);
    assert_int_equal(fake_counts(w->fake).dumps, 1);
    fake_set(w->fake, FAKE_HOLD_DUMPS, 0);
    for (int i = 0; i < 3; i++) {
        world_run_until(w, &a[i].calls, 1);
        assert_true(a[i].good);
    }
    assert_int_equal(fake_counts(w->fake).dumps, 3);
    for (int i = 0; i < 3; i++)
        world_stop_core(w), world_start_core(w);
    for (int i = 0; i < 3; i++) {
        struct answer k = {0};

        core_sandbox_kill(w->core, "default", ids[i], world_on_answer, &k);
        world_run_until(w, &k.calls, 1);
    }
}

/* Its agent is prepared anew each time: it goes on by itself after a while. */
static void what_privd_has_no_time_for_is_tried_again(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    fake_set(w->fake, FAKE_MEMORY_ERRNO, EAGAIN);
    fake_set(w->fake, FAKE_FAIL_DUMPS, 3);
    make_kept(w, id);
    assert_int_equal(fake_counts(w->fake).dumps, 4);
    assert_int_equal(fake_counts(w->fake).prepares, 4);
    fake_set(w->fake, FAKE_FAIL_RESTORES, 3);
    assert_true(resumed(w, id, false).good);
    assert_runs(w, id);
    end(w, id);
}

/* A program is being started in it for a moment: its memory is kept afterwards. Where that goes on
 * for longer than one waits, the caller is told to try again, and nothing has changed. */
static void an_agent_that_is_busy_is_asked_again(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct answer a = {0};

    world_create_default(w, id);
    for (int ends = 1; ends >= 0; ends--) {
        const unsigned asked = fake_counts(w->fake).prepares;

        fake_set(w->fake, FAKE_PREPARE, 503);
        a = (struct answer){0};
        core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_MEMORY, world_on_answer, &a);
        world_run_until_counted(w, offsetof(struct fake_counts, prepares), asked + 3);
        if (ends)
            fake_set(w->fake, FAKE_PREPARE, 204);
        else
            object(w, id)->dump_until_ms = clock_mono_ms();
        world_run_until(w, &a.calls, 1);
        assert_int_equal(a.good, ends);
        if (ends)
            assert_true(resumed(w, id, false).good);
    }
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_int_equal(fake_counts(w->fake).dumps, 1);
    assert_runs(w, id);
    end(w, id);
}

/* Forks are being made of it. */
static void one_that_is_being_copied_is_resumed_afterwards(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_kept(w, id);
    fake_set(w->fake, FAKE_MEMORY_ERRNO, EBUSY);
    fake_set(w->fake, FAKE_FAIL_RESTORES, 3);
    assert_true(resumed(w, id, false).good);
    assert_runs(w, id);
    end(w, id);
}

/* The time for all tries is that of the first: each one that is refused gives no more. */
static void a_resume_does_not_wait_for_ever(void **state)
{
    static const struct {
        int status;
        enum err_code code;
    } rows[] = {{EAGAIN, ERR_UNAVAILABLE}, {EBUSY, ERR_UNAVAILABLE}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct world *w = *state;
        char id[IDS_SANDBOX_SIZE];
        struct answer a = {0};
        uint64_t until_ms;

        make_kept(w, id);
        fake_set(w->fake, FAKE_MEMORY_ERRNO, rows[i].status);
        fake_set(w->fake, FAKE_FAIL_RESTORES, 1000);
        core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
        while (!object(w, id)->dump_waits)
            world_run_for(w, 1);
        until_ms = object(w, id)->dump_until_ms;
        while (object(w, id)->dump_waits)
            world_run_for(w, 1);
        while (!object(w, id)->dump_waits)
            world_run_for(w, 1);
        assert_int_equal(object(w, id)->dump_until_ms, until_ms);
        object(w, id)->dump_until_ms = clock_mono_ms();
        world_run_until(w, &a.calls, 1);
        assert_int_equal(a.why.code, rows[i].code);
        assert_string_equal(core_pause_tier_name(&object(w, id)->s), "memory");
        fake_set(w->fake, FAKE_FAIL_RESTORES, 0);
        assert_true(resumed(w, id, false).good);
        end(w, id);
    }
}

static void it_does_not_wait_for_ever(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct answer a;

    fake_set(w->fake, FAKE_MEMORY_ERRNO, EAGAIN);
    fake_set(w->fake, FAKE_FAIL_DUMPS, 1000);
    world_create_default(w, id);
    begin_pause(w, id, SANDBOX_TIER_MEMORY, &a);
    while (!object(w, id)->dump_waits)
        world_run_for(w, 1);
    object(w, id)->dump_until_ms = clock_mono_ms();
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_runs(w, id);
    end(w, id);
}

/* -- what does not come back -------------------------------------------------------------------- */

static void memory_that_is_not_there_is_said_and_it_stays(void **state)
{
    static const struct {
        int status;
        enum err_code code;
        const char *text;
    } rows[] = {{ENOENT, ERR_UNAVAILABLE, "not there"},
                {EBADMSG, ERR_UNAVAILABLE, "damaged"},
                {ESTALE, ERR_UNAVAILABLE, "another kernel"},
                {EOPNOTSUPP, ERR_UNIMPLEMENTED, "program"},
                {ECHILD, ERR_INTERNAL, "could not be restored"}};
    struct world *w = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char id[IDS_SANDBOX_SIZE];
        struct answer a;

        make_kept(w, id);
        fake_set(w->fake, FAKE_MEMORY_ERRNO, rows[i].status);
        fake_set(w->fake, FAKE_FAIL_RESTORES, 1);
        a = resumed(w, id, false);
        assert_int_equal(a.why.code, rows[i].code);
        assert_non_null(strstr(a.why.text, rows[i].text));
        assert_non_null(strstr(a.why.hint, "--files"));
        assert_string_equal(core_pause_tier_name(&object(w, id)->s), "memory");
        assert_true(resumed(w, id, i % 2).good); /* again, or by a boot */
        assert_runs(w, id);
        end(w, id);
    }
}

static void where_files_will_do_it_boots_and_that_is_told(void **state)
{
    struct world *w = *state;

    for (int at_pause = 0; at_pause < 2; at_pause++) {
        unsigned inits;
        char id[IDS_SANDBOX_SIZE];
        struct err e;

        world_create_default(w, id);
        assert_true(
            paused(w, id, at_pause ? SANDBOX_TIER_MEMORY_OR_FILES : SANDBOX_TIER_MEMORY).good);
        if (!at_pause)
            assert_int_equal(core_sandbox_allow_files(w->core, "default", id, &e), ERR_OK);
        fake_set(w->fake, FAKE_MEMORY_ERRNO, EBADMSG);
        fake_set(w->fake, FAKE_FAIL_RESTORES, 1);
        inits = fake_counts(w->fake).inits;
        assert_true(resumed(w, id, false).good);
        assert_runs(w, id);
        assert_int_equal(fake_counts(w->fake).inits, inits + 1);
        assert_non_null(strstr(core_sandbox_fell(&object(w, id)->s), "damaged"));
        assert_event(w, id, EVENT_SANDBOX_RESUMED, "\"memoryError\":\"its memory does not come");
        (void)seen_after_a_restart(w, id, "damaged");
        end(w, id);
    }
    assert_int_equal(core_sandbox_allow_files(w->core, "default", "inone", NULL), ERR_NOT_FOUND);
}

/* A rollback takes neither its files nor its memory until it runs. */
static void its_memory_is_there_after_a_start_that_failed(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_kept(w, id);
    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    assert_false(resumed(w, id, false).good);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "memory");
    assert_true(resumed(w, id, false).good);
    assert_int_equal(fake_counts(w->fake).restores, 1);
    end(w, id);
}

/* -- at the end of its time --------------------------------------------------------------------- */

static void its_time_is_over(struct world *w, const char *id)
{
    struct sandbox_obj *o = object(w, id);

    o->s.end_real_ms = clock_real_ms();
    timers_cancel(&w->core->timers, &o->end);
    o->end.fire(&o->end);
}

static void make_timed(struct world *w, enum sandbox_tier tier, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();

    r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    r.timeout_tier = tier;
    world_create(w, &r, id);
}

static void await_state(struct world *w, const char *id, enum sandbox_state state)
{
    while (object(w, id)->s.state != state)
        world_run_for(w, 10);
}

static void the_end_of_its_time_writes_its_memory(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_timed(w, SANDBOX_TIER_MEMORY, id);
    its_time_is_over(w, id);
    await_state(w, id, SANDBOX_KEPT);
    assert_event(w, id, EVENT_SANDBOX_PAUSED, "\"reason\":\"timeout\",\"tier\":\"memory\"");
    assert_true(resumed(w, id, false).good);
    assert_int_equal(fake_counts(w->fake).restores, 1);
    end(w, id);
}

/* Its time does not go on: it stands still with all that it has, and is told why it is not on the
 * disk. The end of its next life tries it anew. */
static void what_cannot_be_written_at_the_end_is_frozen_and_told(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct sandbox_obj *o;

    fake_set(w->fake, FAKE_MEMORY_ERRNO, EOPNOTSUPP);
    fake_set(w->fake, FAKE_FAIL_DUMPS, 1);
    make_timed(w, SANDBOX_TIER_MEMORY, id);
    its_time_is_over(w, id);
    o = object(w, id);
    await_state(w, id, SANDBOX_PAUSED);
    assert_int_equal(fake_counts(w->fake).dumps, 1);
    assert_int_equal(o->s.pause_reason, SANDBOX_PAUSE_TIMEOUT);
    assert_non_null(strstr(core_sandbox_fell(&o->s), REFUSED));
    assert_event(w, id, EVENT_SANDBOX_PAUSED, "\"tier\":\"frozen\"");
    assert_event(w, id, EVENT_SANDBOX_PAUSED, "\"memoryError\":\"its memory cannot be kept");
    o = seen_after_a_restart(w, id, REFUSED);
    assert_true(resumed(w, id, false).good);
    assert_string_equal(core_sandbox_fell(&o->s), "");
    o = seen_after_a_restart(w, id, "");
    its_time_is_over(w, id);
    await_state(w, id, SANDBOX_KEPT);
    assert_string_equal(core_sandbox_fell(&o->s), "");
    assert_int_equal(fake_counts(w->fake).dumps, 2);
    end(w, id);
}

static void where_files_will_do_at_the_end_they_are_kept(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    fake_set(w->fake, FAKE_FAIL_DUMPS, 1);
    make_timed(w, SANDBOX_TIER_MEMORY_OR_FILES, id);
    its_time_is_over(w, id);
    await_state(w, id, SANDBOX_KEPT);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "files");
    assert_event(w, id, EVENT_SANDBOX_PAUSED, "\"memoryError\":\"its memory cannot be kept");
    (void)seen_after_a_restart(w, id, REFUSED);
    end(w, id);
}

/* The wish is stored. */
static void a_restart_before_the_end_changes_nothing(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    make_timed(w, SANDBOX_TIER_MEMORY, id);
    world_stop_core(w);
    world_start_core(w);
    its_time_is_over(w, id);
    await_state(w, id, SANDBOX_KEPT);
    assert_string_equal(core_pause_tier_name(&object(w, id)->s), "memory");
    end(w, id);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(what_ran_goes_on),
        WORLD(it_outlives_a_restart_of_cayd),
        WORLD(however_many_resume_it_there_is_one_create),
        WORLD(a_boot_anew_gives_its_memory_up),
        WORLD(it_is_not_stopped),
        WORLD(an_agent_that_does_not_prepare_runs_on),
        WORLD(an_agent_that_is_busy_is_asked_again),
        WORLD(what_privd_refuses_runs_on),
        WORLD(where_files_will_do_they_are_kept),
        WORLD(a_dump_that_ended_it_has_kept_its_files),
        WORLD(what_an_end_of_privd_has_cut_is_told),
        WORLD(an_agent_that_does_not_answer_is_dumped),
        WORLD(a_kill_meanwhile_ends_it),
        WORLD(the_second_waits_for_the_first),
        WORLD(what_privd_has_no_time_for_is_tried_again),
        WORLD(one_that_is_being_copied_is_resumed_afterwards),
        WORLD(a_resume_does_not_wait_for_ever),
        WORLD(it_does_not_wait_for_ever),
        WORLD(memory_that_is_not_there_is_said_and_it_stays),
        WORLD(where_files_will_do_it_boots_and_that_is_told),
        WORLD(its_memory_is_there_after_a_start_that_failed),
        WORLD(the_end_of_its_time_writes_its_memory),
        WORLD(what_cannot_be_written_at_the_end_is_frozen_and_told),
        WORLD(where_files_will_do_at_the_end_they_are_kept),
        WORLD(a_restart_before_the_end_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
