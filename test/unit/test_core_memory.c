/* Core while memory is out: the n-th allocation of a call fails, for every n that the call makes, alone or with all
 * after it. Each call is answered once and truthfully, nothing that it began is left, and nothing leaks. */
#include "base/arena.h"
#include "core/build_spec.h"
#include "core/core_internal.h"
#include "core/events.h"
#include "core/exec.h"
#include "core/fork.h"
#include "core/list.h"
#include "core/network.h"
#include "core/reboot.h"
#include "core/resize.h"
#include "core/sandbox.h"
#include "core/snapshot_internal.h"
#include "core/timers.h"
#include "core/volume_obj.h"
#include "core_world.h"
#include "failing_malloc.h"
#include "http/json.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 2000u /* a call makes fewer */
#define PARTS     4u /* the build runs as many of this program beside each other, PART says which */
#define FORKS     3u
#define VOLUME    "data"
#define TEMPLATE  "built"

static json_t *program, *policy;
static unsigned part = PARTS; /* PARTS: all actions */

/* The objects that are there for a call; the ids are "" where there is none. */
struct there {
    char sandbox[IDS_SANDBOX_SIZE], snapshot[IDS_SANDBOX_SIZE];
};

/* A call of core, with an answer; run for each n. */
struct action {
    const char *name;
    void (*prepare)(struct world *w, struct there *t); /* NULL: nothing is there */
    void (*begin)(struct world *w, const struct there *t, struct answer *a);
};

/* -- what is there ----------------------------------------------------------------------------- */

static void a_sandbox(struct world *w, struct there *t)
{
    world_create_default(w, t->sandbox);
}

static void one_paused(struct world *w, struct there *t, enum sandbox_tier tier)
{
    struct answer a = {0};

    a_sandbox(w, t);
    core_sandbox_pause(w->core, "default", t->sandbox, tier, world_on_answer, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

static void one_frozen(struct world *w, struct there *t)
{
    one_paused(w, t, SANDBOX_TIER_FROZEN);
}

static void one_kept(struct world *w, struct there *t)
{
    one_paused(w, t, SANDBOX_TIER_FILES);
}

static void on_snapshot(void *arg, const struct snapshot *s, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = s != NULL;
    if (s)
        memcpy(a->id, s->id, sizeof(a->id));
    if (why)
        a->why = *why;
}

static void with_snapshot(struct world *w, struct there *t)
{
    struct answer a = {0};

    a_sandbox(w, t);
    core_snapshot_create(w->core, "default", t->sandbox, NULL, SNAPSHOT_PLAIN, on_snapshot, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
    memcpy(t->snapshot, a.id, sizeof(t->snapshot));
}

static void on_volume(void *arg, const struct volume *v, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = v != NULL;
    if (why)
        a->why = *why;
}

static void with_volume(struct world *w, struct there *t)
{
    struct answer a = {0};

    core_volume_create(w->core, "default", VOLUME, 0, on_volume, &a);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

/* -- calls ------------------------------------------------------------------------------------- */

static void begin_create(struct world *w, const struct there *t, struct answer *a)
{
    struct sandbox_request r = world_request();

    core_sandbox_create(w->core, &r, world_on_answer, a);
}

static void begin_kill(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_kill(w->core, "default", t->sandbox, world_on_answer, a);
}

/* A policy that allows a name. */
static void begin_network(struct world *w, const struct there *t, struct answer *a)
{
    const struct core_network n = {.allow_internet = true, .policy = policy};

    core_sandbox_set_network(w->core, "default", t->sandbox, &n, world_on_answer, a);
}

static void begin_pause(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_pause(w->core, "default", t->sandbox, SANDBOX_TIER_FROZEN, world_on_answer, a);
}

static void begin_keep(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_pause(w->core, "default", t->sandbox, SANDBOX_TIER_FILES, world_on_answer, a);
}

static void begin_resume(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_resume(w->core, "default", t->sandbox, 0, false, world_on_answer, a);
}

static void begin_reboot(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_resume(w->core, "default", t->sandbox, 0, true, world_on_answer, a);
}

static void begin_rollback(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_rollback(w->core, "default", t->sandbox, t->snapshot, world_on_answer, a);
}

static void begin_snapshot(struct world *w, const struct there *t, struct answer *a)
{
    core_snapshot_create(w->core, "default", t->sandbox, "named", SNAPSHOT_PLAIN, on_snapshot, a);
}

/* A sandbox that begins with the files of a snapshot. */
static void begin_copy(struct world *w, const struct there *t, struct answer *a)
{
    struct sandbox_request r = world_request();

    r.template_name = t->snapshot;
    core_sandbox_create(w->core, &r, world_on_answer, a);
}

static void take(struct answer *a, const struct err *why)
{
    a->calls++;
    a->good = !why;
    if (why)
        a->why = *why;
}

static void on_exec(void *arg, const struct core_exec_result *r, const struct err *why)
{
    take(arg, why);
}

static void begin_exec(struct world *w, const struct there *t, struct answer *a)
{
    const struct core_exec_request r = {.process = program, .max_output_bytes = 1000};

    core_exec(w->core, "default", t->sandbox, &r, on_exec, a);
}

static void on_metrics(void *arg, const struct sandbox_metric *items, size_t n,
                       const struct err *why)
{
    take(arg, why);
}

static void begin_metrics(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_metrics(w->core, "default", t->sandbox, 0, 0, on_metrics, a);
}

static void on_logs(void *arg, const struct sandbox_log *items, size_t n, const struct err *why)
{
    take(arg, why);
}

static void begin_logs(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_logs(w->core, "default", t->sandbox, on_logs, a);
}

static void on_status(void *arg, const struct core_status *s)
{
    take(arg, NULL);
}

static void begin_status(struct world *w, const struct there *t, struct answer *a)
{
    core_status(w->core, on_status, a);
}

static void on_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    take(arg, why);
}

static void begin_sockets(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_sockets(w->core, t->sandbox, 2, on_sockets, a);
}

/* Each fork is made, or says why not. */
static void on_forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct answer *a = arg;

    take(a, why);
    for (size_t i = 0; i < n; i++) {
        if (forks[i].id[0])
            continue;
        a->good = false;
        a->why = forks[i].why;
    }
}

static void begin_fork(struct world *w, const struct there *t, struct answer *a)
{
    core_sandbox_fork(w->core, "default", t->sandbox,
                      &(struct core_fork_request){.count = FORKS, .ttl_ms = 60000}, on_forked, a);
}

static void on_deleted(void *arg, const struct err *why)
{
    take(arg, why);
}

static void begin_delete(struct world *w, const struct there *t, struct answer *a)
{
    core_snapshot_delete(w->core, "default", t->snapshot, on_deleted, a);
}

static void begin_resize(struct world *w, const struct there *t, struct answer *a)
{
    const struct privsep_limits to = {.memory_bytes = 64u << 20, .cpu_milli = 500};

    core_sandbox_resize(w->core, "default", t->sandbox, &to, world_on_answer, a);
}

static void begin_volume(struct world *w, const struct there *t, struct answer *a)
{
    core_volume_create(w->core, "default", VOLUME, 0, on_volume, a);
}

static void begin_volume_removal(struct world *w, const struct there *t, struct answer *a)
{
    core_volume_remove(w->core, "default", VOLUME, on_deleted, a);
}

/* Creates a sandbox that mounts the volume. */
static void begin_mount(struct world *w, const struct there *t, struct answer *a)
{
    const struct volume_mount mount = {.name = VOLUME, .path = "/v"};
    struct sandbox_request r = world_request();

    r.mounts = &mount;
    r.n_mounts = 1;
    core_sandbox_create(w->core, &r, world_on_answer, a);
}

static bool builds_have_ended(struct world *w)
{
    return w->core->reserve.calls == 0 &&
           world_query(w, "SELECT count(*) FROM builds WHERE state = 1") == 0;
}

/* No sandbox of a build is let out without a policy, and each has its build's name. */
static bool bounded_builds_have_ended(struct world *w)
{
    for (size_t i = 0; i < w->core->registry.n; i++) {
        const struct sandbox *s = &w->core->registry.order[i]->s;

        assert_non_null(s->policy);
        assert_string_equal(json_string_value(json_object_get(s->metadata, "cay.build")), TEMPLATE);
    }
    return builds_have_ended(w);
}

/* A build is begun by two calls and goes on without its client: its row says how it ended. */
static void begin_build(struct world *w, const struct there *t, struct answer *a)
{
    const struct core_build_request r = {.tenant = "default", .name = TEMPLATE};
    struct build_spec spec = {.from = "host"};
    const struct build *b = NULL;
    struct err e;

    if (core_build_new(w->core, &r, &b, &e) != ERR_OK ||
        core_build_start(w->core, "default", b->template_id, b->id, &spec, &e) != ERR_OK) {
        take(a, &e);
        return;
    }
    world_run_until_true(w, bounded_builds_have_ended);
    b = core_build_of_template(w->core, "default", TEMPLATE);
    err_set(&e, ERR_INTERNAL, "%s", b ? b->reason : "there is no build");
    take(a, b && b->state == BUILD_READY ? NULL : &e);
}

static const struct action actions[] = {
    {"create", NULL, begin_create},
    {"kill", a_sandbox, begin_kill},
    {"kill of a frozen one", one_frozen, begin_kill},
    {"kill of one whose files are kept", one_kept, begin_kill},
    {"pause", a_sandbox, begin_pause},
    {"resume", one_frozen, begin_resume},
    {"pause with the files", a_sandbox, begin_keep},
    {"resume with the files", one_kept, begin_resume},
    {"reboot", one_frozen, begin_reboot},
    {"snapshot", a_sandbox, begin_snapshot},
    {"create of a snapshot", with_snapshot, begin_copy},
    {"rollback", with_snapshot, begin_rollback},
    {"removal of a snapshot", with_snapshot, begin_delete},
    {"fork", a_sandbox, begin_fork},
    {"network", a_sandbox, begin_network},
    {"exec", a_sandbox, begin_exec},
    {"metrics", a_sandbox, begin_metrics},
    {"logs", a_sandbox, begin_logs},
    {"status", a_sandbox, begin_status},
    {"sockets", a_sandbox, begin_sockets},
    {"resize", a_sandbox, begin_resize},
    {"volume", NULL, begin_volume},
    {"removal of a volume", with_volume, begin_volume_removal},
    {"create with a volume", with_volume, begin_mount},
    {"build of a template", NULL, begin_build},
};

/* -- and after it ------------------------------------------------------------------------------ */

/* A request that could not be sent to privd for want of memory is sent again after seconds: now. */
static void hurry(struct world *w)
{
    for (struct snapshot_obj *o = w->core->snapshots; o; o = o->next)
        if (timer_armed(&o->again))
            timers_set(&w->core->timers, &o->again, 0);
    if (timer_armed(&w->core->kepts.strays_again))
        timers_set(&w->core->timers, &w->core->kepts.strays_again, 0);
}

/* Likewise a KILL. */
static void hurry_ends(struct world *w)
{
    for (size_t i = 0; i < w->core->registry.n; i++) {
        struct sandbox_obj *o = w->core->registry.order[i];

        if (sandbox_life(o)->timer == LIFE_TIMER_KILL)
            timers_set(&w->core->timers, &o->end, 0);
    }
}

static bool keep_snapshot(void *arg, const struct snapshot *s)
{
    memcpy(arg, s->id, sizeof(s->id));
    return false;
}

static void end_snapshots(struct world *w)
{
    char id[IDS_SANDBOX_SIZE] = "";

    core_snapshot_each(w->core, "default", NULL, NULL, keep_snapshot, id);
    while (*id) {
        struct answer a = {0};

        core_snapshot_delete(w->core, "default", id, on_deleted, &a);
        world_run_until(w, &a.calls, 1);
        assert_true(a.good);
        *id = '\0';
        core_snapshot_each(w->core, "default", NULL, NULL, keep_snapshot, id);
    }
}

/* Also one that could not be confirmed. */
static bool end_volumes(struct world *w)
{
    struct answer a = {0};

    for (struct volume_obj *v = w->core->volumes; v; v = v->next)
        if (timer_armed(&v->again))
            timers_set(&w->core->timers, &v->again, 0);
    if (core_volume_find(w->core, "default", VOLUME)) {
        core_volume_remove(w->core, "default", VOLUME, on_deleted, &a);
        world_run_until(w, &a.calls, 1);
    }
    return world_query(w, "SELECT count(*) FROM volumes") == 0;
}

/* A build that was never started has no end of its own. */
static void end_builds(struct world *w)
{
    struct err e;

    world_run_until_true(w, builds_have_ended);
    if (core_build_of_template(w->core, "default", TEMPLATE))
        assert_int_equal(core_build_delete(w->core, "default", TEMPLATE, &e), ERR_OK);
}

/* No file is left of what was kept or copied. */
static bool nothing_is_kept(struct world *w)
{
    hurry(w);
    for (unsigned n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if (fake_is_kept(w->fake, n))
            return false;
    return world_query(w, "SELECT count(*) FROM snapshots") == 0;
}

static void end_all(struct world *w)
{
    end_builds(w);
    for (struct sandbox_filter f = {.tenant = "default", .limit = 1};;) {
        struct arena arena;
        struct sandbox_page page = {0};
        struct answer a = {0};
        char id[IDS_SANDBOX_SIZE];
        struct err e;

        arena_init(&arena, 65536);
        assert_int_equal(core_sandbox_list(w->core, &f, &arena, &page, &e), ERR_OK);
        if (page.count)
            memcpy(id, page.items[0]->id, sizeof(id));
        arena_free(&arena);
        if (!page.count)
            break;
        core_sandbox_kill(w->core, "default", id, world_on_answer, &a);
        world_run_until(w, &a.calls, 1);
    }
    end_snapshots(w);
    world_run_until_true(w, world_nothing_lives);
    world_run_until_true(w, end_volumes);
}

/* An answer for each n: an answer that comes too late, or twice, is seen. */
static struct answer answers[CALLS_MAX + 1];

/* Blocks of the reserve that a call took at most: no more than are set aside for each that is under way. */
static size_t used_most;
#define USED_MAX RESERVE_CALL_BLOCKS

/* false: the call makes fewer allocations than n. */
static bool run_once(struct world *w, const struct action *action, size_t n, bool for_good)
{
    struct answer *a = &answers[n];
    struct there there = {0};
    bool failed;

    if (action->prepare)
        action->prepare(w, &there);
    assert_true(core_admits(w->core));
    failing_malloc_begin(n, for_good);
    *a = (struct answer){0};
    action->begin(w, &there, a);
    world_run_until(w, &a->calls, 1);
    failed = failing_malloc_end();
    used_most = MAX(used_most, RESERVE_BLOCKS + w->core->reserve.calls * RESERVE_CALL_BLOCKS -
                                   w->core->reserve.n);
    hurry_ends(w);
    if (!a->good && !a->why.text[0])
        fail_msg("%s, allocation %zu: an error without a text", action->name, n);
    if (!a->good && !failed)
        fail_msg("%s: failed without a reason: %s", action->name, a->why.text);
    end_all(w);
    world_run_until_true(w, nothing_is_kept);
    world_run_for(w, 3);
    assert_true(core_admits(w->core));
    assert_int_equal(w->core->reserve.calls, 0);
    if (a->calls != 1)
        fail_msg("%s, allocation %zu: answered %u times", action->name, n, a->calls);
    assert_int_equal(world_rows(w), 0);
    return failed;
}

/* The ring of events is full: from then on each new one takes the place of another. */
static void fill_events(struct world *w)
{
    for (unsigned i = 0; i < EVENTS_RING_MAX / 2 + 1; i++) {
        char id[IDS_SANDBOX_SIZE];

        world_create_default(w, id);
        end_all(w);
    }
}

static void sweep(struct world *w, const struct action *action, bool for_good)
{
    size_t n = 0, failures = 0, before;

    (void)run_once(w, action, 0, false); /* memory kept from then on is there */
    before = failing_malloc_held();
    while (run_once(w, action, ++n, for_good) && n < CALLS_MAX)
        failures++;
    print_message("%s%s: %zu allocations; of the reserve, %zu blocks at most until now\n",
                  action->name, for_good ? ", for good" : "", failures, used_most);
    assert_in_range(failures, 1, CALLS_MAX - 1);
    assert_in_range(used_most, 0, USED_MAX);
    if (failing_malloc_held() > before + failures / 8)
        fail_msg("%s: %zu blocks are held after it, %zu before", action->name,
                 failing_malloc_held(), before);
}

static void sweep_actions(struct world *w, bool for_good)
{
    fill_events(w);
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        if (part == PARTS || i % PARTS == part)
            sweep(w, &actions[i], for_good);
    assert_true(used_most > 0);
}

static void each_allocation_may_fail(void **state)
{
    sweep_actions(*state, false);
}

static void memory_may_be_out_for_the_rest_of_a_call(void **state)
{
    sweep_actions(*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {WORLD(each_allocation_may_fail),
                                       WORLD(memory_may_be_out_for_the_rest_of_a_call)};
    const char *wanted = getenv("PART");
    int failed;

    if (wanted) {
        part = (unsigned)strtoul(wanted, NULL, 10);
        assert(part < PARTS);
    }
    failing_malloc_init();
    json_wipe_frees(); /* jansson's calls count as the program's, too */
    program = json_pack("{s:s}", "cmd", "true");
    policy = json_pack("{s:[{s:s,s:[s]}]}", "rules", "action", "allow", "domains", "example.com");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(program);
    json_decref(policy);
    return failed;
}
