/* Every state of a sandbox, every event, with and without a restart: core/life.h says what has to happen, and
 * these look whether it does. */
#include "base/arena.h"
#include "base/clock.h"
#include "core/events.h"
#include "core/internal.h"
#include "core_world.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 10000u

/* One sandbox in the state that is looked at. */
struct case_of {
    enum sandbox_state state;
    bool known; /* privd has told its slot */
    char id[IDS_SANDBOX_SIZE];
    struct answer create, change; /* what begin_change asked for last */
};

/* -- arranging --------------------------------------------------------------------------------- */

static struct sandbox_obj *object(struct world *w, const struct case_of *k)
{
    return sandbox_get(w->core, NULL, k->id);
}

static void run_until_known(struct world *w, const struct case_of *k)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (!object(w, k)->known_to_privd && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_true(object(w, k)->known_to_privd);
}

static void run_until_gone(struct world *w, const struct case_of *k)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while ((object(w, k) || fake_lives(w->fake, k->id)) && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_null(object(w, k));
    assert_false(fake_lives(w->fake, k->id));
    assert_int_equal(world_rows(w), 0);
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], 0);
}

/* One whose create is under way: held by privd, or (known) by its agent. */
static void begin_one(struct world *w, struct case_of *k)
{
    struct sandbox_request r = world_request();

    fake_set(w->fake, k->known ? FAKE_AGENT_SILENT : FAKE_HOLD_CREATES, 1);
    core_sandbox_create(w->core, &r, world_on_answer, &k->create);
    assert_int_equal(w->core->registry.n, 1);
    memcpy(k->id, w->core->registry.order[0]->s.id, sizeof(k->id));
    if (k->known)
        run_until_known(w, k);
}

/* Privd may answer again what it held back. */
static void release(struct world *w)
{
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    fake_set(w->fake, FAKE_HOLD_KILLS, 0);
    fake_set(w->fake, FAKE_HOLD_FREEZES, 0);
    fake_set(w->fake, FAKE_HOLD_THAWS, 0);
    fake_set(w->fake, FAKE_AGENT_SILENT, 0);
}

/* To its first or second step towards paused, or further back to running. */
static void begin_change(struct world *w, struct case_of *k)
{
    k->change = (struct answer){0};
    fake_set(w->fake, FAKE_HOLD_FREEZES, k->state == SANDBOX_PAUSING);
    core_sandbox_pause(w->core, "default", k->id, world_on_answer, &k->change);
    if (k->state == SANDBOX_PAUSING)
        return;
    world_run_until(w, &k->change.calls, 1);
    assert_true(k->change.good);
    if (k->state == SANDBOX_PAUSED)
        return;
    k->change = (struct answer){0};
    fake_set(w->fake, FAKE_HOLD_THAWS, 1);
    core_sandbox_resume(w->core, "default", k->id, 0, world_on_answer, &k->change);
}

static struct sandbox_obj *arrange(struct world *w, struct case_of *k)
{
    k->create = (struct answer){0};
    if (k->state == SANDBOX_CREATING) {
        begin_one(w, k);
        return object(w, k);
    }
    world_create_default(w, k->id);
    if (k->state == SANDBOX_ENDING) {
        fake_set(w->fake, FAKE_HOLD_KILLS, 1);
        lifecycle_end(object(w, k), "the test wants it");
    } else if (k->state != SANDBOX_RUNNING) {
        begin_change(w, k);
    }
    assert_int_equal(object(w, k)->s.state, k->state);
    return object(w, k);
}

static void clear(struct world *w, struct case_of *k)
{
    struct answer a = {0};

    if (object(w, k) && sandbox_life(object(w, k))->kill == LIFE_CALL_END)
        core_sandbox_kill(w->core, NULL, k->id, world_on_answer, &a);
    release(w);
    run_until_gone(w, k);
    assert_true(k->change.calls <= 1);
}

/* The reason of its sandbox.ended; "": none was told. */
static void ended_reason(struct world *w, const char *id, char out[static 32])
{
    struct core_events_filter f = {.types = 1u << EVENT_SANDBOX_ENDED, .sandbox = id};
    char line[EVENTS_LINE_MAX] = "";
    struct err e;
    json_t *event;
    int fd;

    out[0] = '\0';
    if (core_events_follow(w->core, "default", "e2b_key", &f, &fd, &e) != ERR_OK)
        return;
    world_run_for(w, 5);
    if (read(fd, line, sizeof(line) - 1) < 0)
        line[0] = '\0';
    close(fd);
    event = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    if (event)
        (void)snprintf(out, 32, "%s", json_string_value(json_object_get(event, "reason")));
    json_decref(event);
}

static void assert_reason(struct world *w, const char *id, const char *reason)
{
    char got[32];

    ended_reason(w, id, got);
    assert_string_equal(got, reason);
}

/* Calls fn for each state that an object can have, and for a create in both its stages. */
static void each(struct world *w, void (*fn)(struct world *w, struct case_of *k))
{
    for (int state = 0; state < SANDBOX_STATE_COUNT; state++) {
        struct case_of k = {.state = (enum sandbox_state)state, .known = true};

        if (life_of(k.state)->at_start == LIFE_START_DELETE)
            continue; /* its object is freed at once */
        fn(w, &k);
        if (life_of(k.state)->awaits_create) {
            k.known = false;
            fn(w, &k);
        }
    }
}

/* -- what holds in a state ---------------------------------------------------------------------- */

struct sockets {
    unsigned calls;
    bool good;
};

static void on_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    struct sockets *s = arg;

    s->calls++;
    s->good = !why;
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

static size_t listed(struct world *w, bool running, bool paused)
{
    struct sandbox_filter f = {.running = running, .paused = paused, .limit = 10};
    CLEANUP_ARENA struct arena arena;
    struct sandbox_page page;
    struct err e;

    arena_init(&arena, 4096);
    assert_int_equal(core_sandbox_list(w->core, &f, &arena, &page, &e), ERR_OK);
    return page.count;
}

static void look(struct world *w, struct case_of *k)
{
    const struct life *life = life_of(k->state);
    struct sandbox_request r = world_request();
    struct sockets s = {0};

    arrange(w, k);
    assert_int_equal(core_sandbox_find(w->core, "default", k->id) != NULL, life->visible);
    assert_int_equal(listed(w, true, false), life->group == LIFE_GROUP_RUNNING);
    assert_int_equal(listed(w, false, true), life->group == LIFE_GROUP_PAUSED);
    core_sandbox_sockets(w->core, k->id, 1, on_sockets, &s);
    world_run_until(w, &s.calls, 1);
    assert_int_equal(s.good, life->reachable);
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], life->place);
    w->core->config.max_sandboxes = 1;
    if (life->place)
        assert_int_equal(world_create_fails(w, &r).why.code, ERR_UNAVAILABLE);
    w->core->config.max_sandboxes = w->config.max_sandboxes;
    clear(w, k);
}

static void a_state_grants_what_its_row_says(void **state)
{
    each(*state, look);
}

/* -- events ------------------------------------------------------------------------------------- */

static void run_until_state(struct world *w, const struct case_of *k, enum sandbox_state state)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (object(w, k) && object(w, k)->s.state != state && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_non_null(object(w, k));
    assert_int_equal(object(w, k)->s.state, state);
}

static void fire(struct world *w, struct sandbox_obj *o)
{
    timers_cancel(&w->core->timers, &o->end);
    o->end.fire(&o->end);
}

static void expect_timeout(struct world *w, struct case_of *k, enum sandbox_timeout_action action)
{
    struct sandbox_obj *o = arrange(w, k);
    enum life_timer timer = life_of(k->state)->timer;
    unsigned kills = fake_counts(w->fake).kills;

    o->s.on_timeout = action;
    o->kill_done = NULL;
    fire(w, o);
    world_run_for(w, 20);
    if (timer == LIFE_TIMER_NONE) {
        assert_int_equal(object(w, k)->s.state, k->state);
    } else if (timer == LIFE_TIMER_CREATE) {
        assert_int_equal(k->create.calls, 1);
        assert_int_equal(k->create.why.code, ERR_TIMEOUT);
        release(w);
        run_until_gone(w, k);
        assert_reason(w, k->id, "");
    } else if (timer == LIFE_TIMER_LIFETIME &&
               life_of(k->state)->timeout[action] == LIFE_TIMEOUT_PAUSE) {
        run_until_state(w, k, SANDBOX_PAUSED);
        assert_int_equal(object(w, k)->s.pause_reason, SANDBOX_PAUSE_TIMEOUT);
        assert_true(fake_is_frozen(w->fake, k->id));
    } else if (timer == LIFE_TIMER_LIFETIME) {
        run_until_gone(w, k);
        assert_reason(w, k->id, "timeout");
    } else if (timer == LIFE_TIMER_CHANGE) {
        /* The channel began anew, the fake forgot what it held: nothing of it was done. */
        run_until_state(w, k,
                        life_of(k->state)->change == LIFE_CHANGE_PAUSE ? SANDBOX_RUNNING
                                                                       : SANDBOX_PAUSED);
        world_run_until(w, &k->change.calls, 1);
        assert_int_equal(k->change.why.code, ERR_UNAVAILABLE);
        world_run_until_true(w, world_is_ready);
    } else {
        assert_int_equal(object(w, k)->s.state, k->state);
        assert_true(fake_counts(w->fake).kills > kills);
    }
    clear(w, k);
}

static void expect_timer(struct world *w, struct case_of *k)
{
    for (int a = 0; a < SANDBOX_TIMEOUT_ACTION_COUNT; a++)
        expect_timeout(w, k, (enum sandbox_timeout_action)a);
}

static void the_timer_does_what_the_row_says(void **state)
{
    each(*state, expect_timer);
}

/* LIST does not have it: privd's own is forgotten by hand, so that nothing else answers. */
static void expect_missing(struct world *w, struct case_of *k)
{
    enum life_missing missing = life_of(k->state)->missing;
    struct sandbox_obj *o = arrange(w, k);

    lifecycle_on_missing(o);
    if (missing == LIFE_MISSING_WAIT) {
        assert_int_equal(object(w, k)->s.state, k->state);
        clear(w, k);
        return;
    }
    assert_null(object(w, k));
    assert_int_equal(world_rows(w), 0);
    assert_reason(w, k->id, missing == LIFE_MISSING_LOST ? "lost" : "unknown");
    release(w);
    fake_end(w->fake, k->id, PRIVSEP_CAUSE_ASKED);
    run_until_gone(w, k);
}

static void what_privd_does_not_know_goes_as_the_row_says(void **state)
{
    each(*state, expect_missing);
}

/* What is under way is not disturbed; what LIST says besides is so. */
static void expect_settled(struct world *w, struct case_of *k)
{
    struct sandbox_obj *o = object(w, k);
    uint32_t slot = o->s.slot, gen = o->s.gen;

    if (o->change_asked) {
        lifecycle_on_listed(o, slot, gen, false);
        lifecycle_on_listed(o, slot, gen, true);
        assert_int_equal(o->s.state, k->state);
        assert_int_equal(k->change.calls, 0);
        return;
    }
    lifecycle_on_listed(o, slot, gen, true);
    assert_int_equal(o->s.state, SANDBOX_PAUSED);
    lifecycle_on_listed(o, slot, gen, false);
    assert_int_equal(object(w, k)->s.state, SANDBOX_RUNNING);
}

static void expect_listed(struct world *w, struct case_of *k)
{
    struct sandbox_obj *o = arrange(w, k);
    uint32_t slot = o->s.slot, gen = o->s.gen;
    unsigned kills = fake_counts(w->fake).kills, thaws = fake_counts(w->fake).thaws;

    switch (life_of(k->state)->listed) {
    case LIFE_LISTED_WAIT:
        lifecycle_on_listed(o, slot + 1, gen + 1, false);
        assert_int_equal(o->s.slot, slot);
        assert_int_equal(o->s.state, k->state);
        break;
    case LIFE_LISTED_KEEP:
        lifecycle_on_listed(o, slot + 1, gen + 1, false);
        assert_int_equal(o->s.state, k->state);
        assert_int_equal(world_query(w, "SELECT slot FROM sandboxes"), slot + 1);
        lifecycle_on_listed(o, slot, gen, true);
        world_run_for(w, 20);
        assert_int_equal(fake_counts(w->fake).thaws, thaws + 1);
        break;
    case LIFE_LISTED_KILL:
        lifecycle_on_listed(o, slot, gen, false);
        world_run_for(w, 20);
        assert_true(fake_counts(w->fake).kills > kills);
        break;
    case LIFE_LISTED_SETTLE: expect_settled(w, k); break;
    case LIFE_LISTED_END: fail_msg("no state is left open"); break;
    }
    clear(w, k);
}

static void what_privd_knows_goes_on_as_the_row_says(void **state)
{
    each(*state, expect_listed);
}

static void expect_exit(struct world *w, struct case_of *k)
{
    enum life_exit what = life_of(k->state)->exit;
    struct privsep_msg m = {.op = PRIVSEP_ENDED};
    struct sandbox_obj *o;

    if (!k->known)
        return; /* privd has not made it: there is no PID 1 */
    o = arrange(w, k);
    if (what == LIFE_EXIT_WAIT) {
        m.slot = o->s.slot;
        m.gen = o->s.gen;
        memcpy(m.u.ended.id, k->id, sizeof(m.u.ended.id));
        lifecycle_on_ended(w->core, &m);
        assert_int_equal(object(w, k)->s.state, k->state);
        clear(w, k);
        return;
    }
    fake_end(w->fake, k->id, PRIVSEP_CAUSE_OOM);
    run_until_gone(w, k);
    if (k->state == SANDBOX_CREATING)
        assert_int_equal(k->create.why.code, ERR_UNAVAILABLE);
    else
        assert_reason(w, k->id, "out_of_memory");
    release(w);
}

static void the_end_of_its_first_process_is_handled_as_the_row_says(void **state)
{
    each(*state, expect_exit);
}

static void expect_kill(struct world *w, struct case_of *k)
{
    bool ends = life_of(k->state)->kill == LIFE_CALL_END;
    struct answer a = {0};

    arrange(w, k);
    core_sandbox_kill(w->core, "default", k->id, world_on_answer, &a);
    if (ends)
        release(w);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.good, ends);
    if (!ends) {
        assert_int_equal(a.why.code, ERR_NOT_FOUND);
        assert_int_equal(object(w, k)->s.state, k->state);
    }
    clear(w, k);
    if (k->state == SANDBOX_CREATING)
        assert_int_equal(k->create.why.code, ERR_CANCELED);
}

static void a_kill_does_what_the_row_says(void **state)
{
    each(*state, expect_kill);
}

static void expect_pause(struct world *w, struct case_of *k)
{
    enum life_call what = life_of(k->state)->pause;
    struct answer a = {0};

    arrange(w, k);
    core_sandbox_pause(w->core, "default", k->id, world_on_answer, &a);
    assert_int_equal(a.calls, 0);
    if (what == LIFE_CALL_DO || what == LIFE_CALL_WAIT) {
        release(w);
        world_run_until(w, &a.calls, 1);
        assert_true(a.good && fake_is_frozen(w->fake, k->id));
        assert_int_equal(object(w, k)->s.state, SANDBOX_PAUSED);
        assert_int_equal(object(w, k)->s.pause_reason, SANDBOX_PAUSE_API);
    } else {
        world_run_until(w, &a.calls, 1);
        assert_int_equal(a.why.code, what == LIFE_CALL_ALREADY ? ERR_EXISTS : ERR_NOT_FOUND);
        assert_int_equal(object(w, k)->s.state, k->state);
    }
    clear(w, k);
}

static void a_pause_does_what_the_row_says(void **state)
{
    each(*state, expect_pause);
}

static void expect_resume(struct world *w, struct case_of *k)
{
    enum life_call what = life_of(k->state)->resume;
    struct answer a = {0}, b = {0};

    arrange(w, k);
    core_sandbox_resume(w->core, "default", k->id, 50000, world_on_answer, &a);
    core_sandbox_resume(w->core, NULL, k->id, 0, world_on_answer, &b);
    assert_int_equal(a.calls + b.calls, 0);
    if (what == LIFE_CALL_DO || what == LIFE_CALL_WAIT) {
        release(w);
        world_run_until(w, &a.calls, 1);
        world_run_until(w, &b.calls, 1);
        assert_true(a.good && b.good && !fake_is_frozen(w->fake, k->id));
        assert_int_equal(object(w, k)->s.state, SANDBOX_RUNNING);
        assert_int_equal(object(w, k)->s.pause_reason, SANDBOX_PAUSE_NONE);
        assert_int_equal(object(w, k)->s.end_real_ms - object(w, k)->s.started_real_ms, 50000);
    } else {
        world_run_until(w, &a.calls, 1);
        assert_int_equal(a.why.code, what == LIFE_CALL_ALREADY ? ERR_EXISTS : ERR_NOT_FOUND);
        assert_int_equal(object(w, k)->s.state, k->state);
    }
    clear(w, k);
}

static void a_resume_does_what_the_row_says(void **state)
{
    each(*state, expect_resume);
}

/* -- what does not work ------------------------------------------------------------------------- */

static void what_cannot_be_frozen_runs_on(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_RUNNING};
    struct sandbox_obj *o = arrange(w, &k);
    int64_t end_ms = o->s.end_real_ms;
    struct answer a = {0};

    fake_set(w->fake, FAKE_FAIL_FREEZES, 1);
    core_sandbox_pause(w->core, "default", k.id, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_TIMEOUT);
    assert_int_equal(o->s.state, SANDBOX_RUNNING);
    assert_int_equal(o->s.end_real_ms, end_ms);
    assert_true(timer_armed(&o->end));
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_RUNNING);
    clear(w, &k);
}

/* It is neither ended nor forgotten. */
static void what_cannot_be_frozen_at_the_end_of_its_time_is_tried_again(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_RUNNING};
    struct sandbox_obj *o = arrange(w, &k);

    fake_set(w->fake, FAKE_FAIL_FREEZES, 1);
    o->s.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    o->s.end_real_ms = clock_real_ms();
    fire(w, o);
    run_until_state(w, &k, SANDBOX_PAUSED);
    assert_int_equal(fake_counts(w->fake).freezes, 2);
    clear(w, &k);
}

static void what_cannot_go_on_stays_paused(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_PAUSED};
    struct answer a = {0};

    arrange(w, &k);
    fake_set(w->fake, FAKE_FAIL_THAWS, 1);
    core_sandbox_resume(w->core, "default", k.id, 0, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    assert_int_equal(object(w, &k)->s.state, SANDBOX_PAUSED);
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_PAUSED);
    clear(w, &k);
}

/* privd goes away with the answer, and is another: frozen or not, it goes on from what is so, and who waited is told. */
static void break_off(struct world *w, enum sandbox_state state, bool done)
{
    struct case_of k = {.state = state};
    bool frozen = state == SANDBOX_PAUSING ? done : !done;

    arrange(w, &k);
    fake_set_frozen(w->fake, k.id, frozen);
    fake_restart(w->fake, false);
    world_run_until(w, &k.change.calls, 1);
    assert_int_equal(k.change.why.code, ERR_UNAVAILABLE);
    run_until_state(w, &k, frozen ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"),
                     frozen ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    world_run_until_true(w, world_is_ready);
    clear(w, &k);
}

static void a_change_that_is_broken_off_ends_in_what_is_so(void **state)
{
    for (int done = 0; done < 2; done++) {
        break_off(*state, SANDBOX_PAUSING, done);
        break_off(*state, SANDBOX_RESUMING, done);
    }
}

/* -- restarts ----------------------------------------------------------------------------------- */

/* One row in each state; then cayd starts anew, and privd has all of them or none. */
static void make_rows(struct world *w, bool known, bool frozen, int action,
                      char ids[static SANDBOX_STATE_COUNT][IDS_SANDBOX_SIZE])
{
    char sql[300];

    for (int state = 0; state < SANDBOX_STATE_COUNT; state++)
        world_create_default(w, ids[state]);
    world_stop_core(w);
    for (int state = 0; state < SANDBOX_STATE_COUNT; state++) {
        (void)snprintf(sql, sizeof(sql),
                       "UPDATE sandboxes SET state = %d, on_timeout = %d WHERE id = '%s'", state,
                       action, ids[state]);
        world_query(w, sql);
        fake_set_frozen(w->fake, ids[state], frozen);
    }
    if (!known)
        fake_restart(w->fake, true);
}

static void expect_after_start(struct world *w, const char *id, const struct life *life, bool known,
                               bool frozen)
{
    bool lives = life->at_start == LIFE_START_RUN && known;
    const struct sandbox *s = core_sandbox_find(w->core, NULL, id);

    assert_int_equal(s != NULL, lives);
    assert_int_equal(fake_lives(w->fake, id), lives);
    if (s && life->listed == LIFE_LISTED_SETTLE)
        assert_int_equal(s->state, frozen ? SANDBOX_PAUSED : SANDBOX_RUNNING);
    else if (s)
        assert_int_equal(s->state, SANDBOX_RUNNING);
    if (s)
        assert_int_equal(fake_is_frozen(w->fake, id), s->state == SANDBOX_PAUSED);
    switch (life->at_start) {
    case LIFE_START_RUN: assert_reason(w, id, known ? "" : "lost"); break;
    case LIFE_START_REFUSE: fail_msg("no state is left open"); break;
    case LIFE_START_END: assert_reason(w, id, "unknown"); break;
    case LIFE_START_UNDO:
    case LIFE_START_DELETE: assert_reason(w, id, ""); break;
    }
}

static size_t running_states(void)
{
    size_t n = 0;

    for (int state = 0; state < SANDBOX_STATE_COUNT; state++)
        n += life_of((enum sandbox_state)state)->at_start == LIFE_START_RUN;
    return n;
}

static void restart(struct world *w, bool known, bool frozen, int action)
{
    char ids[SANDBOX_STATE_COUNT][IDS_SANDBOX_SIZE];
    size_t left = known ? running_states() : 0;
    uint64_t end = clock_mono_ms() + WAIT_MS;

    make_rows(w, known, frozen, action, ids);
    world_start_core(w);
    while ((fake_counts(w->fake).live > left || w->core->registry.n > left) &&
           clock_mono_ms() < end)
        world_run_for(w, 5);
    world_run_for(w, 20); /* for what is told to go on */
    assert_int_equal(world_rows(w), left);
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], left);
    for (int state = 0; state < SANDBOX_STATE_COUNT; state++)
        expect_after_start(w, ids[state], life_of((enum sandbox_state)state), known, frozen);
    while (w->core->registry.n > 0 && clock_mono_ms() < end) {
        struct answer a = {0};

        core_sandbox_kill(w->core, NULL, w->core->registry.order[0]->s.id, world_on_answer, &a);
        world_run_until(w, &a.calls, 1);
    }
}

static void a_start_does_with_each_row_what_the_table_says(void **state)
{
    for (int known = 0; known < 2; known++)
        for (int frozen = 0; frozen < 2; frozen++)
            for (int action = 0; action < SANDBOX_TIMEOUT_ACTION_COUNT; action++)
                restart(*state, known, frozen, action);
}

/* What the core did at each start with a row that was pausing and that privd did not have. */
static void to_end_a_pausing_one_at_once_ends_the_program(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_PAUSING};
    struct sandbox_obj *o = arrange(w, &k);
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        close(STDERR_FILENO);
        sandbox_move(o, SANDBOX_ENDED);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    clear(w, &k);
}

/* A create may stay under way as long as a test needs it to. */
static int patient_setup(void **state)
{
    struct world *w;

    if (world_setup(state) != 0)
        return -1;
    w = *state;
    world_stop_core(w);
    w->config.agent_timeout_ms = 60000;
    world_start_core(w);
    return 0;
}

#define PATIENT(test) cmocka_unit_test_setup_teardown(test, patient_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PATIENT(a_state_grants_what_its_row_says),
        PATIENT(the_timer_does_what_the_row_says),
        PATIENT(what_privd_does_not_know_goes_as_the_row_says),
        PATIENT(what_privd_knows_goes_on_as_the_row_says),
        PATIENT(the_end_of_its_first_process_is_handled_as_the_row_says),
        PATIENT(a_kill_does_what_the_row_says),
        PATIENT(a_pause_does_what_the_row_says),
        PATIENT(a_resume_does_what_the_row_says),
        PATIENT(what_cannot_be_frozen_runs_on),
        PATIENT(what_cannot_be_frozen_at_the_end_of_its_time_is_tried_again),
        PATIENT(what_cannot_go_on_stays_paused),
        PATIENT(a_change_that_is_broken_off_ends_in_what_is_so),
        PATIENT(a_start_does_with_each_row_what_the_table_says),
        PATIENT(to_end_a_pausing_one_at_once_ends_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
