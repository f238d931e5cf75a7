/* Every state of a sandbox, every event, with and without a restart: core/life.h says what has to happen, and
 * these look whether it does. */
#include "base/arena.h"
#include "base/clock.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/egress.h"
#include "core/events.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/list.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "core/timers.h"
#include "core_proxy.h"
#include "core_world.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 10000u

/* A sandbox in the state that is looked at. */
struct case_of {
    enum sandbox_state state;
    bool known;  /* privd has told its slot */
    bool memory; /* its memory is kept, or being kept or restored, beside its files */
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

static bool any_is_kept(struct world *w)
{
    for (unsigned n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if (fake_is_kept(w->fake, n))
            return true;
    return false;
}

/* The files that it has kept are dropped after it is gone, by a request of its own. */
static void run_until_gone(struct world *w, const struct case_of *k)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while ((object(w, k) || fake_lives(w->fake, k->id) || any_is_kept(w)) && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_null(object(w, k));
    assert_false(fake_lives(w->fake, k->id));
    assert_int_equal(world_rows(w), 0);
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], 0);
    assert_false(any_is_kept(w));
}

/* A sandbox whose create is under way: held by privd, or (known) by its agent. */
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
    fake_set(w->fake, FAKE_HOLD_KEEPS, 0);
    fake_set(w->fake, FAKE_HOLD_DUMPS, 0);
    fake_set(w->fake, FAKE_HOLD_DROPS, 0);
    fake_set(w->fake, FAKE_AGENT_SILENT, 0);
}

static enum sandbox_tier tier_of(const struct case_of *k)
{
    if (k->memory)
        return SANDBOX_TIER_MEMORY;
    return life_of(k->state)->files ? SANDBOX_TIER_FILES : SANDBOX_TIER_FROZEN;
}

static bool is_asked(const struct sandbox_obj *o)
{
    return o->hooks_requested || o->env_requested || (o->dump_requested && !o->dump_prepared);
}

/* Its agent is asked first, of a pause with the files twice, and where its memory is kept three times. */
static void run_until_asked(struct world *w, const struct case_of *k)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (is_asked(object(w, k)) && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_false(is_asked(object(w, k)));
    assert_int_equal(object(w, k)->dump_prepared, k->memory);
}

/* To its first or second step towards paused, or further back to running. */
static void begin_change(struct world *w, struct case_of *k)
{
    k->change = (struct answer){0};
    fake_set(w->fake, FAKE_HOLD_FREEZES, k->state == SANDBOX_PAUSING);
    fake_set(w->fake, FAKE_HOLD_KEEPS, k->state == SANDBOX_KEEPING);
    fake_set(w->fake, FAKE_HOLD_DUMPS, k->state == SANDBOX_KEEPING);
    core_sandbox_pause(w->core, "default", k->id, tier_of(k), world_on_answer, &k->change);
    if (life_of(k->state)->change == LIFE_CHANGE_PAUSE) {
        run_until_asked(w, k);
        return;
    }
    world_run_until(w, &k->change.calls, 1);
    assert_true(k->change.good);
    if (life_of(k->state)->change == LIFE_CHANGE_NONE)
        return;
    k->change = (struct answer){0};
    fake_set(w->fake, FAKE_HOLD_THAWS, 1);
    if (life_of(k->state)->files)
        fake_set(w->fake, k->known ? FAKE_AGENT_SILENT : FAKE_HOLD_CREATES, 1);
    core_sandbox_resume(w->core, "default", k->id, 0, false, world_on_answer, &k->change);
    if (life_of(k->state)->files && k->known)
        run_until_known(w, k);
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
    if (object(w, k)->s.state != k->state)
        fail_msg("arrange does not bring a sandbox into the state %s, but into %s",
                 life_of(k->state)->name, sandbox_life(object(w, k))->name);
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

static void run_until_state(struct world *w, const struct case_of *k, enum sandbox_state state)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (object(w, k) && object(w, k)->s.state != state && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_non_null(object(w, k));
    assert_int_equal(object(w, k)->s.state, state);
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

/* Calls fn for each state that an object can have, for a create in both its stages, and, where there are its files, with its memory
 * too: a create on that has but one stage. */
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
        k.memory = true;
        if (life_of(k.state)->files)
            fn(w, &k);
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
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], !life->gone);
    w->core->config.max_sandboxes = 1;
    if (!life->gone)
        assert_int_equal(world_create_fails(w, &r).why.code, ERR_UNAVAILABLE);
    w->core->config.max_sandboxes = w->config.max_sandboxes;
    clear(w, k);
}

static void a_state_grants_what_its_row_says(void **state)
{
    each(*state, look);
}

static struct proxy proxy; /* of cay-egress */

/* A policy that is to be sent is sent, or not, in the next turns. */
static void look_at_policy(struct world *w, struct case_of *k)
{
    struct sandbox_obj *o = arrange(w, k);
    unsigned puts;

    world_run_for(w, 20); /* that of its create */
    puts = proxy.puts;
    egress_touch(o);
    world_run_for(w, 20);
    if (proxy.puts - puts != (life_of(k->state)->policy && o->known_to_privd))
        fail_msg("in state %s, %s to cay-privd, its policy was sent %u times",
                 life_of(k->state)->name, o->known_to_privd ? "known" : "unknown",
                 proxy.puts - puts);
    clear(w, k);
}

static void a_policy_is_in_force_where_its_row_says_so(void **state)
{
    struct world *w = *state;

    proxy = (struct proxy){.status = 204};
    proxy_start(&proxy, w);
    proxy_known_to(w, NULL);
    world_run_until(w, &proxy.lives, 1);
    each(w, look_at_policy);
    world_stop_core(w);
    proxy_stop(&proxy);
}

/* -- events ------------------------------------------------------------------------------------- */

static void fire(struct world *w, struct sandbox_obj *o)
{
    timers_cancel(&w->core->timers, &o->end);
    o->end.fire(&o->end);
}

/* Where a change that was not done leads. An agent that is prepared for a dump is dumped. */
static enum sandbox_state undone(const struct case_of *k)
{
    if (life_of(k->state)->change == LIFE_CHANGE_PAUSE && !k->memory)
        return SANDBOX_RUNNING;
    return life_of(k->state)->files ? SANDBOX_KEPT : SANDBOX_PAUSED;
}

static void expect_timeout(struct world *w, struct case_of *k, enum sandbox_timeout_action action,
                           enum sandbox_tier tier)
{
    enum sandbox_state paused = tier == SANDBOX_TIER_FROZEN ? SANDBOX_PAUSED : SANDBOX_KEPT;
    struct sandbox_obj *o = arrange(w, k);
    enum life_timer timer = life_of(k->state)->timer;
    unsigned kills = fake_counts(w->fake).kills;

    o->s.on_timeout = action;
    o->s.timeout_tier = tier;
    o->kill_done = NULL;
    fire(w, o);
    world_run_for(w, 20);
    if (timer == LIFE_TIMER_NONE || timer == LIFE_TIMER_REST) { /* no such time is set */
        assert_int_equal(object(w, k)->s.state, k->state);
    } else if (timer == LIFE_TIMER_CREATE) {
        world_run_until(w, &k->create.calls, 1);
        assert_int_equal(k->create.why.code, ERR_TIMEOUT);
        release(w);
        run_until_gone(w, k);
        assert_reason(w, k->id, "");
    } else if (timer == LIFE_TIMER_LIFETIME &&
               life_of(k->state)->timeout[action] == LIFE_TIMEOUT_PAUSE) {
        run_until_state(w, k, paused);
        assert_int_equal(object(w, k)->s.pause_reason, SANDBOX_PAUSE_TIMEOUT);
        assert_int_equal(fake_is_frozen(w->fake, k->id), tier == SANDBOX_TIER_FROZEN);
        assert_int_equal(fake_lives(w->fake, k->id), tier == SANDBOX_TIER_FROZEN);
        assert_int_equal(object(w, k)->s.kept_memory,
                         tier == SANDBOX_TIER_MEMORY || tier == SANDBOX_TIER_MEMORY_OR_FILES);
    } else if (timer == LIFE_TIMER_LIFETIME) {
        run_until_gone(w, k);
        assert_reason(w, k->id, "timeout");
    } else if (timer == LIFE_TIMER_CHANGE) {
        /* The channel began anew, the fake forgot what it held: nothing of it was done. */
        fake_set(w->fake, FAKE_HOLD_DUMPS, 0);
        run_until_state(w, k, undone(k));
        world_run_until(w, &k->change.calls, 1);
        assert_true(k->change.why.code == ERR_UNAVAILABLE || k->change.why.code == ERR_TIMEOUT);
        world_run_until_true(w, world_is_ready);
    } else {
        assert_int_equal(object(w, k)->s.state, k->state);
        WORLD_RUN_UNTIL_COUNTED(w, kills, kills + 1);
    }
    clear(w, k);
}

static void expect_timer(struct world *w, struct case_of *k)
{
    for (int a = 0; a < SANDBOX_TIMEOUT_ACTION_COUNT; a++)
        for (int t = 0; t < SANDBOX_TIER_COUNT; t++)
            expect_timeout(w, k, (enum sandbox_timeout_action)a, (enum sandbox_tier)t);
}

static void the_timer_does_what_the_row_says(void **state)
{
    each(*state, expect_timer);
}

/* KEPTS says what there is of it. A change that is under way is not disturbed; then as after a restart, where no
 * answer is owed. The fake's own goes, or is kept, by hand. */
static void expect_files_seen(struct world *w, struct case_of *k, enum kept_seen seen)
{
    struct sandbox_obj *o = arrange(w, k);
    uint32_t number = o->s.kept;

    w->core->kepts.listed[number] = (struct kept_listed){.seen = seen};
    if (o->change_requested) {
        lifecycle_on_missing(o);
        assert_int_equal(object(w, k)->s.state, k->state);
        o->change_requested = false;
    }
    lifecycle_on_missing(o);
    assert_int_equal(object(w, k) == NULL, seen == KEPT_SEEN_NONE);
    if (seen == KEPT_SEEN_WHOLE)
        assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_KEPT);
    if (seen == KEPT_SEEN_NONE)
        assert_reason(w, k->id, "error");
    fake_end(w->fake, k->id, PRIVSEP_CAUSE_REQUESTED);
    fake_set_kept(w->fake, number, seen != KEPT_SEEN_NONE);
    fake_set(w->fake, FAKE_FAIL_CREATES, 1); /* one that is held: it would take them */
    release(w);
    if (seen != KEPT_SEEN_NONE)
        run_until_state(w, k, SANDBOX_KEPT);
    world_run_for(w, 20);
    fake_set(w->fake, FAKE_FAIL_CREATES, 0);
    clear(w, k);
}

static void expect_files(struct world *w, struct case_of *k)
{
    expect_files_seen(w, k, KEPT_SEEN_NONE);
    expect_files_seen(w, k, KEPT_SEEN_BUSY);
    expect_files_seen(w, k, KEPT_SEEN_WHOLE);
}

/* LIST does not have it: privd's own is forgotten by hand, so that nothing else answers. */
static void expect_missing(struct world *w, struct case_of *k)
{
    enum life_missing missing = life_of(k->state)->missing;

    if (missing == LIFE_MISSING_FILES) {
        expect_files(w, k);
        return;
    }
    lifecycle_on_missing(arrange(w, k));
    if (missing == LIFE_MISSING_WAIT) {
        assert_int_equal(object(w, k)->s.state, k->state);
        clear(w, k);
        return;
    }
    assert_null(object(w, k));
    assert_int_equal(world_rows(w), 0);
    assert_reason(w, k->id, missing == LIFE_MISSING_LOST ? "lost" : "unknown");
    release(w);
    fake_end(w->fake, k->id, PRIVSEP_CAUSE_REQUESTED);
    run_until_gone(w, k);
}

static void what_privd_does_not_know_goes_as_the_row_says(void **state)
{
    each(*state, expect_missing);
}

/* A change that is under way is not disturbed; what LIST says besides is so. */
static void expect_settled(struct world *w, struct case_of *k)
{
    struct sandbox_obj *o = object(w, k);
    uint32_t slot = o->s.slot, gen = o->s.gen;

    if (o->change_requested) {
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

/* Its agent is prepared, which only a dump ends. */
static void expect_dumped_again(struct world *w, struct case_of *k)
{
    struct sandbox_obj *o = object(w, k);
    unsigned dumps = fake_counts(w->fake).dumps;

    lifecycle_on_listed(o, o->s.slot, o->s.gen, false);
    assert_int_equal(o->s.state, SANDBOX_KEEPING);
    WORLD_RUN_UNTIL_COUNTED(w, dumps, dumps + 1);
    release(w);
    run_until_state(w, k, SANDBOX_KEPT);
    assert_true(o->s.kept_memory && fake_has_memory(w->fake, o->s.kept));
}

/* It was not kept: it runs, and one that is frozen is let go on. */
static void expect_listed_running(struct world *w, struct case_of *k)
{
    struct sandbox_obj *o = object(w, k);
    unsigned thaws = fake_counts(w->fake).thaws;

    lifecycle_on_listed(o, o->s.slot, o->s.gen, false);
    assert_int_equal(o->s.state, k->state);
    o->change_requested = false;
    if (k->memory) {
        expect_dumped_again(w, k);
        return;
    }
    fake_set(w->fake, FAKE_FAIL_KEEPS, 1); /* the one that is held */
    lifecycle_on_listed(o, o->s.slot, o->s.gen, true);
    assert_int_equal(o->s.state, SANDBOX_RUNNING);
    assert_int_equal(world_query(w, "SELECT kept FROM sandboxes"), 0);
    assert_int_equal(world_query(w, "SELECT count(*) FROM sandboxes WHERE env IS NOT NULL"), 0);
    release(w);
    world_run_for(w, 20); /* the one that was held has failed */
    WORLD_RUN_UNTIL_COUNTED(w, thaws, thaws + 1);
    assert_int_equal(fake_counts(w->fake).thaws, thaws + 1);
    fake_set(w->fake, FAKE_FAIL_KEEPS, 0);
}

/* No caller waits for what runs there: its files are kept again, by the same number. With its memory it is no boot, and runs. */
static void expect_listed_again(struct world *w, struct case_of *k)
{
    struct sandbox_obj *o = object(w, k);
    uint32_t number = o->s.kept;
    unsigned keeps;

    if (o->change_requested) {
        lifecycle_on_listed(o, o->s.slot, o->s.gen, false);
        assert_int_equal(o->s.state, k->state);
        if (!k->known)
            return;
        o->change_requested = false;
    } else {
        fake_set_kept(w->fake, number, false);
        fake_add_stray(w->fake, k->id);
    }
    if (k->memory) { /* its programs do */
        fake_restart(w->fake, false);
        run_until_state(w, k, SANDBOX_RUNNING);
        assert_int_equal(o->s.kept, 0);
        world_run_until_true(w, world_is_ready);
        return;
    }
    keeps = fake_counts(w->fake).keeps;
    fake_restart(w->fake, false); /* another LIST */
    while (fake_counts(w->fake).keeps == keeps)
        world_run_for(w, 2);
    run_until_state(w, k, SANDBOX_KEPT);
    assert_true(fake_is_kept(w->fake, number) && !fake_lives(w->fake, k->id));
    world_run_until_true(w, world_is_ready);
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
        WORLD_RUN_UNTIL_COUNTED(w, thaws, thaws + 1);
        assert_int_equal(fake_counts(w->fake).thaws, thaws + 1);
        break;
    case LIFE_LISTED_KILL:
        lifecycle_on_listed(o, slot, gen, false);
        WORLD_RUN_UNTIL_COUNTED(w, kills, kills + 1);
        break;
    case LIFE_LISTED_SETTLE: expect_settled(w, k); break;
    case LIFE_LISTED_RUNS: expect_listed_running(w, k); break;
    case LIFE_LISTED_AGAIN: expect_listed_again(w, k); break;
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

/* Its agent was silent, and so will not answer any more. */
static bool hangs(const struct case_of *k)
{
    return life_of(k->state)->files && life_of(k->state)->awaits_create && k->known;
}

static void expect_pause_tier(struct world *w, struct case_of *k, enum sandbox_tier tier)
{
    enum sandbox_state paused = tier == SANDBOX_TIER_FROZEN ? SANDBOX_PAUSED : SANDBOX_KEPT;
    enum life_call what = life_of(k->state)->pause;
    struct answer a = {0};

    if (hangs(k))
        return;
    arrange(w, k);
    core_sandbox_pause(w->core, "default", k->id, tier, world_on_answer, &a);
    assert_int_equal(a.calls, 0);
    if (what == LIFE_CALL_DO || what == LIFE_CALL_WAIT) {
        release(w);
        world_run_until(w, &a.calls, 1);
        assert_true(a.good);
        assert_int_equal(fake_is_frozen(w->fake, k->id), tier == SANDBOX_TIER_FROZEN);
        assert_int_equal(object(w, k)->s.state, paused);
        assert_int_equal(object(w, k)->s.kept_memory, tier == SANDBOX_TIER_MEMORY);
        assert_int_equal(object(w, k)->s.pause_reason, SANDBOX_PAUSE_API);
    } else {
        world_run_until(w, &a.calls, 1);
        assert_int_equal(a.why.code, what == LIFE_CALL_ALREADY ? ERR_EXISTS : ERR_NOT_FOUND);
        assert_int_equal(object(w, k)->s.state, k->state);
    }
    clear(w, k);
}

static void expect_pause(struct world *w, struct case_of *k)
{
    expect_pause_tier(w, k, SANDBOX_TIER_FROZEN);
    expect_pause_tier(w, k, SANDBOX_TIER_FILES);
    expect_pause_tier(w, k, SANDBOX_TIER_MEMORY);
}

static void a_pause_does_what_the_row_says(void **state)
{
    each(*state, expect_pause);
}

static void expect_resume_by(struct world *w, struct case_of *k, bool reboot)
{
    enum life_call what = life_of(k->state)->resume;
    unsigned inits = fake_counts(w->fake).inits + 1; /* that of its create comes to it */
    struct answer a = {0}, b = {0};

    if (hangs(k))
        return;
    arrange(w, k);
    core_sandbox_resume(w->core, "default", k->id, 50000, reboot, world_on_answer, &a);
    core_sandbox_resume(w->core, NULL, k->id, 0, false, world_on_answer, &b);
    assert_int_equal(a.calls + b.calls, 0);
    if (what == LIFE_CALL_DO || what == LIFE_CALL_WAIT) {
        release(w);
        world_run_until(w, &a.calls, 1);
        world_run_until(w, &b.calls, 1);
        assert_true(a.good && b.good && !fake_is_frozen(w->fake, k->id));
        assert_true(fake_lives(w->fake, k->id));
        assert_int_equal(fake_counts(w->fake).inits - inits,
                         reboot || (life_of(k->state)->files && !k->memory) ? 1 : 0);
        assert_int_equal(world_query(w, "SELECT kept FROM sandboxes"), 0);
        assert_int_equal(world_query(w, "SELECT count(*) FROM sandboxes WHERE env IS NOT NULL"), 0);
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

static void expect_resume(struct world *w, struct case_of *k)
{
    expect_resume_by(w, k, false);
    expect_resume_by(w, k, true);
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
    core_sandbox_pause(w->core, "default", k.id, SANDBOX_TIER_FROZEN, world_on_answer, &a);
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
    core_sandbox_resume(w->core, "default", k.id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    assert_int_equal(object(w, &k)->s.state, SANDBOX_PAUSED);
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_PAUSED);
    clear(w, &k);
}

static unsigned resumed_events(struct world *w, const char *id)
{
    char lines[EVENTS_LINE_MAX];
    unsigned n = 0;

    world_events(w, id, 1u << EVENT_SANDBOX_RESUMED, lines);
    for (const char *at = lines; (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

/* It runs, with the processes that it had: that is told, and who wants it paused has his turn. */
static void what_cannot_boot_anew_is_resumed_and_may_be_paused(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_PAUSED};
    struct sandbox_obj *o = arrange(w, &k);
    struct answer a = {0}, b = {0};

    fake_set(w->fake, FAKE_HOLD_THAWS, 1);
    core_sandbox_resume(w->core, "default", k.id, 50000, true, world_on_answer, &a);
    core_sandbox_pause(w->core, "default", k.id, SANDBOX_TIER_FROZEN, world_on_answer, &b);
    assert_int_equal(o->s.state, SANDBOX_RESUMING);
    w->core->kepts.can = false; /* as where the share is used up meanwhile */
    fake_set(w->fake, FAKE_HOLD_THAWS, 0);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNIMPLEMENTED);
    world_run_until(w, &b.calls, 1);
    assert_true(b.good);
    assert_int_equal(o->s.state, SANDBOX_PAUSED);
    assert_int_equal(resumed_events(w, k.id), 1);
    assert_true(!o->reboot && o->resume_ttl_ms == 0);
    w->core->kepts.can = true;
    clear(w, &k);
}

static void what_cannot_be_kept_runs_on(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_RUNNING};
    struct sandbox_obj *o = arrange(w, &k);
    struct answer a = {0}, b = {0};

    fake_set(w->fake, FAKE_FAIL_KEEPS, 1);
    core_sandbox_pause(w->core, "default", k.id, SANDBOX_TIER_FILES, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    fake_set(w->fake, FAKE_AGENT_SILENT, 1);
    core_sandbox_pause(w->core, "default", k.id, SANDBOX_TIER_FILES, world_on_answer, &b);
    world_run_until(w, &b.calls, 1); /* within the time of its hooks */
    assert_int_equal(b.why.code, ERR_UNAVAILABLE);
    assert_int_equal(o->s.state, SANDBOX_RUNNING);
    assert_true(timer_armed(&o->end) && o->s.kept == 0 && !o->s.env);
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_RUNNING);
    clear(w, &k);
}

/* Its agent answers when it ends already. */
static void a_kill_while_its_agent_is_asked_ends_it(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_RUNNING};
    struct answer a = {0}, b = {0};

    arrange(w, &k);
    fake_set(w->fake, FAKE_HOLD_KILLS, 1);
    core_sandbox_pause(w->core, "default", k.id, SANDBOX_TIER_FILES, world_on_answer, &a);
    assert_true(object(w, &k)->hooks_requested);
    core_sandbox_kill(w->core, "default", k.id, world_on_answer, &b);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_NOT_FOUND);
    world_run_for(w, 100); /* for that answer */
    release(w);
    world_run_until(w, &b.calls, 1);
    assert_true(b.good);
    run_until_gone(w, &k);
}

/* Its create is refused, its agent fails: it is where it was, and can be tried again. */
static void what_cannot_be_restarted_stays_kept(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_KEPT};
    struct answer a = {0}, b = {0}, d = {0};
    char body[1024];

    arrange(w, &k);
    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    core_sandbox_resume(w->core, "default", k.id, 0, false, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    assert_int_equal(object(w, &k)->s.state, SANDBOX_KEPT);
    fake_set(w->fake, FAKE_AGENT_STATUS, 500);
    core_sandbox_resume(w->core, "default", k.id, 0, false, world_on_answer, &b);
    world_run_until(w, &b.calls, 1);
    assert_false(b.good);
    run_until_state(w, &k, SANDBOX_KEPT);
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), SANDBOX_KEPT);
    fake_set(w->fake, FAKE_AGENT_STATUS, 204);
    core_sandbox_resume(w->core, "default", k.id, 0, false, world_on_answer, &d);
    world_run_until(w, &d.calls, 1);
    assert_true(d.good);
    fake_init_body(w->fake, body, sizeof(body));
    assert_non_null(strstr(body, "\"A\":\"b\"")); /* what its agent had before (core_fake.c) */
    clear(w, &k);
}

static void where_files_are_in_memory_they_are_not_kept(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = world_request();
    struct case_of k = {.state = SANDBOX_RUNNING};
    struct answer a = {0}, b = {0};

    fake_set(w->fake, FAKE_KEEPS_NOTHING, 1);
    world_restart_privd(w, false);
    arrange(w, &k);
    core_sandbox_pause(w->core, "default", k.id, SANDBOX_TIER_FILES, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNIMPLEMENTED);
    assert_int_equal(object(w, &k)->s.state, SANDBOX_RUNNING);
    core_sandbox_resume(w->core, "default", k.id, 0, true, world_on_answer, &b);
    world_run_until(w, &b.calls, 1);
    assert_int_equal(b.why.code, ERR_UNIMPLEMENTED);
    r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
    r.timeout_tier = SANDBOX_TIER_FILES;
    assert_int_equal(world_create_fails(w, &r).why.code, ERR_UNIMPLEMENTED);
    clear(w, &k);
}

/* Kept files of no row go, and their number is free meanwhile. */
static void kept_files_that_no_row_names_are_dropped(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_KEPT};
    uint32_t number;

    fake_set_kept(w->fake, 1, true);
    fake_set_kept(w->fake, 700, true);
    fake_set_owner(w->fake, 700, "isandbox-of-past");
    world_restart_privd(w, false);
    number = arrange(w, &k)->s.kept;
    world_restart_privd(w, false);
    world_run_for(w, 50);
    assert_true(fake_is_kept(w->fake, number));
    assert_false(fake_is_kept(w->fake, 700) || (number != 1 && fake_is_kept(w->fake, 1)));
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

/* A sandbox that was kept with its memory goes on once privd has made it, and is dumped once its
 * agent is prepared. */
static enum sandbox_state broken_off_as(enum sandbox_state state, bool done, bool memory)
{
    if (state == SANDBOX_RESTARTING)
        return done && memory ? SANDBOX_RUNNING : SANDBOX_KEPT;
    return done || memory ? SANDBOX_KEPT : SANDBOX_RUNNING;
}

static void break_off_files(struct world *w, enum sandbox_state state, bool done, bool memory)
{
    struct case_of k = {.state = state, .memory = memory};
    struct sandbox_obj *o = arrange(w, &k);
    enum sandbox_state expected = broken_off_as(state, done, memory);

    if (done && state == SANDBOX_KEEPING) {
        fake_set_kept(w->fake, o->s.kept, true);
        fake_end_silently(w->fake, k.id);
    } else if (done) {
        fake_set_kept(w->fake, o->s.kept, false);
        fake_add_stray(w->fake, k.id);
    }
    fake_restart(w->fake, false);
    fake_set(w->fake, FAKE_HOLD_DUMPS, 0);
    world_run_until(w, &k.change.calls, 1);
    assert_int_equal(k.change.why.code, ERR_UNAVAILABLE);
    run_until_state(w, &k, expected);
    assert_int_equal(world_query(w, "SELECT state FROM sandboxes"), expected);
    world_run_until_true(w, world_is_ready);
    clear(w, &k);
}

static void a_change_that_is_broken_off_ends_in_what_is_so(void **state)
{
    for (int done = 0; done < 2; done++) {
        break_off(*state, SANDBOX_PAUSING, done);
        break_off(*state, SANDBOX_RESUMING, done);
        for (int memory = 0; memory < 2; memory++) {
            break_off_files(*state, SANDBOX_KEEPING, done, memory);
            break_off_files(*state, SANDBOX_RESTARTING, done, memory);
        }
    }
}

/* The one that was told that it broke wanted it for long, and booted anew. */
static void a_resume_that_is_broken_off_leaves_nothing_to_the_next(void **state)
{
    struct world *w = *state;
    struct case_of k = {.state = SANDBOX_PAUSING};
    struct sandbox_obj *o = arrange(w, &k);
    struct answer a = {0}, b = {0};

    core_sandbox_resume(w->core, "default", k.id, 600000, true, world_on_answer, &a);
    assert_true(o->reboot && o->resume_ttl_ms == 600000);
    fake_set_frozen(w->fake, k.id, true);
    fake_restart(w->fake, false);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    run_until_state(w, &k, SANDBOX_PAUSED);
    world_run_until_true(w, world_is_ready);
    release(w);
    core_sandbox_resume(w->core, "default", k.id, 60000, false, world_on_answer, &b);
    world_run_until(w, &b.calls, 1);
    assert_true(b.good);
    assert_int_equal(o->s.end_real_ms - o->s.started_real_ms, 60000);
    assert_int_equal(fake_counts(w->fake).keeps, 0);
    clear(w, &k);
}

/* -- restarts ----------------------------------------------------------------------------------- */

/* The sandboxes that privd has after the start. */
enum had { HAD_NONE, HAD_KEPT, HAD_ALL };

#define FLAG_KEPT_MEMORY 1024 /* store_sandbox.c */

/* A row in each state; then cayd starts anew, and privd has all of them, those that may be kept, or
 * none. */
static void make_rows(struct world *w, enum had had, bool frozen, bool memory, int action,
                      char ids[static SANDBOX_STATE_COUNT][IDS_SANDBOX_SIZE])
{
    char sql[400];

    for (int state = 0; state < SANDBOX_STATE_COUNT; state++)
        world_create_default(w, ids[state]);
    world_stop_core(w);
    for (int state = 0; state < SANDBOX_STATE_COUNT; state++) {
        bool kept = life_of((enum sandbox_state)state)->files || state == SANDBOX_ENDING;

        (void)snprintf(sql, sizeof(sql),
                       "UPDATE sandboxes SET state = %d, on_timeout = %d, kept = %d, env = %s, "
                       "flags = flags | %d WHERE id = '%s'",
                       state, action, kept ? 1 + state : 0, kept ? "'{\"A\":\"b\"}'" : "NULL",
                       kept && memory ? FLAG_KEPT_MEMORY : 0, ids[state]);
        world_query(w, sql);
        fake_set_frozen(w->fake, ids[state], frozen);
        fake_set_kept(w->fake, 1 + (unsigned)state, had == HAD_KEPT && kept);
        fake_set_memory(w->fake, 1 + (unsigned)state, had == HAD_KEPT && kept && memory);
    }
    if (had != HAD_ALL)
        fake_restart(w->fake, true);
}

/* Which state a row is in then; SANDBOX_ENDED: it is gone. A sandbox with its memory runs, but one
 * that was being kept is dumped. */
static enum sandbox_state state_after_start(const struct life *life, enum had had, bool frozen,
                                            bool memory)
{
    if (life->at_start == LIFE_START_FILES && had == HAD_ALL &&
        (life->listed == LIFE_LISTED_RUNS) != memory)
        return SANDBOX_RUNNING;
    if (life->at_start == LIFE_START_FILES)
        return had == HAD_NONE ? SANDBOX_ENDED : SANDBOX_KEPT;
    if (life->at_start != LIFE_START_RUN || had != HAD_ALL)
        return SANDBOX_ENDED;
    return life->listed == LIFE_LISTED_SETTLE && frozen ? SANDBOX_PAUSED : SANDBOX_RUNNING;
}

static const char *reason_after_start(const struct life *life, enum sandbox_state now)
{
    if (now != SANDBOX_ENDED)
        return "";
    switch (life->at_start) {
    case LIFE_START_RUN: return "lost";
    case LIFE_START_FILES: return "error";
    case LIFE_START_END: return "unknown";
    case LIFE_START_REFUSE: fail_msg("no state is left open"); break;
    case LIFE_START_UNDO:
    case LIFE_START_DELETE: break;
    }
    return "";
}

static void expect_after_start(struct world *w, const char *id, const struct life *life,
                               enum had had, bool frozen, bool memory)
{
    enum sandbox_state expected = state_after_start(life, had, frozen, memory);
    const struct sandbox *s = core_sandbox_find(w->core, NULL, id);

    assert_int_equal(s ? s->state : SANDBOX_ENDED, expected);
    assert_int_equal(fake_lives(w->fake, id),
                     expected == SANDBOX_RUNNING || expected == SANDBOX_PAUSED);
    if (s)
        assert_int_equal(fake_is_frozen(w->fake, id), s->state == SANDBOX_PAUSED);
    if (s)
        assert_int_equal(s->state == SANDBOX_KEPT, s->kept && fake_is_kept(w->fake, s->kept));
    if (s && s->state == SANDBOX_KEPT)
        assert_string_equal(core_pause_tier_name(s), memory ? "memory" : "files");
    assert_reason(w, id, reason_after_start(life, expected));
}

/* Nothing is under way any more. */
static bool is_settled(struct world *w, size_t left)
{
    for (size_t i = 0; i < w->core->registry.n; i++)
        if (sandbox_life(w->core->registry.order[i])->change != LIFE_CHANGE_NONE)
            return false;
    return w->core->registry.n == left;
}

static void restart(struct world *w, enum had had, bool frozen, bool memory, int action)
{
    char ids[SANDBOX_STATE_COUNT][IDS_SANDBOX_SIZE];
    uint64_t end = clock_mono_ms() + WAIT_MS;
    size_t left = 0;

    for (int state = 0; state < SANDBOX_STATE_COUNT; state++)
        left += state_after_start(life_of((enum sandbox_state)state), had, frozen, memory) !=
                SANDBOX_ENDED;
    make_rows(w, had, frozen, memory, action, ids);
    world_start_core(w);
    while (!is_settled(w, left) && clock_mono_ms() < end)
        world_run_for(w, 5);
    world_run_for(w, 20); /* for what is told to go on */
    assert_int_equal(world_rows(w), left);
    assert_int_equal(w->core->tenants.charged[TENANT_SANDBOXES], left);
    for (int state = 0; state < SANDBOX_STATE_COUNT; state++)
        expect_after_start(w, ids[state], life_of((enum sandbox_state)state), had, frozen, memory);
    while (w->core->registry.n > 0 && clock_mono_ms() < end) {
        struct answer a = {0};

        core_sandbox_kill(w->core, NULL, w->core->registry.order[0]->s.id, world_on_answer, &a);
        world_run_until(w, &a.calls, 1);
    }
    for (unsigned n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        assert_false(fake_is_kept(w->fake, n));
}

static void a_start_does_with_each_row_what_the_table_says(void **state)
{
    for (int had = 0; had <= HAD_ALL; had++)
        for (int frozen = 0; frozen < 2; frozen++)
            for (int action = 0; action < SANDBOX_TIMEOUT_ACTION_COUNT; action++)
                for (int memory = 0; memory < 2; memory++)
                    restart(*state, (enum had)had, frozen, memory, action);
}

/* The core's act at each start with a row that was pausing and that privd did not have. */
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
        PATIENT(a_policy_is_in_force_where_its_row_says_so),
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
        PATIENT(what_cannot_boot_anew_is_resumed_and_may_be_paused),
        PATIENT(what_cannot_be_kept_runs_on),
        PATIENT(a_kill_while_its_agent_is_asked_ends_it),
        PATIENT(what_cannot_be_restarted_stays_kept),
        PATIENT(where_files_are_in_memory_they_are_not_kept),
        PATIENT(kept_files_that_no_row_names_are_dropped),
        PATIENT(a_change_that_is_broken_off_ends_in_what_is_so),
        PATIENT(a_resume_that_is_broken_off_leaves_nothing_to_the_next),
        PATIENT(a_start_does_with_each_row_what_the_table_says),
        PATIENT(to_end_a_pausing_one_at_once_ends_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
