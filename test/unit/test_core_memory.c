/* Core while memory is out: the n-th allocation of a call fails, for every n that the call makes, alone or with all
 * after it. Each call is answered once and truthfully, nothing that it began is left, and nothing leaks. */
#include "base/arena.h"
#include "core/events.h"
#include "core/exec.h"
#include "core_world.h"
#include "failing_malloc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 2000u /* a call makes fewer */

/* One call of core, with an answer; run for each n. id is a sandbox that is there for it, or "". */
struct action {
    const char *name;
    bool needs_sandbox;
    void (*begin)(struct world *w, const char *id, struct answer *a);
};

static void begin_create(struct world *w, const char *id, struct answer *a)
{
    struct sandbox_request r = world_request();

    core_sandbox_create(w->core, &r, world_on_answer, a);
}

static void begin_kill(struct world *w, const char *id, struct answer *a)
{
    core_sandbox_kill(w->core, "default", id, world_on_answer, a);
}

static void begin_network(struct world *w, const char *id, struct answer *a)
{
    static const struct core_network none = {.allow_internet = true};

    core_sandbox_set_network(w->core, "default", id, &none, world_on_answer, a);
}

/* Both wait: for the pause, and for the resume after it. */
static void begin_pause(struct world *w, const char *id, struct answer *a)
{
    static struct answer paused;

    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &paused);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, a);
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

static json_t *program;

static void begin_exec(struct world *w, const char *id, struct answer *a)
{
    const struct core_exec_request r = {.process = program, .max_output_bytes = 1000};

    core_exec(w->core, "default", id, &r, on_exec, a);
}

static void on_metrics(void *arg, const struct sandbox_metric *items, size_t n,
                       const struct err *why)
{
    take(arg, why);
}

static void begin_metrics(struct world *w, const char *id, struct answer *a)
{
    core_sandbox_metrics(w->core, "default", id, 0, 0, on_metrics, a);
}

static void on_logs(void *arg, const struct sandbox_log *items, size_t n, const struct err *why)
{
    take(arg, why);
}

static void begin_logs(struct world *w, const char *id, struct answer *a)
{
    core_sandbox_logs(w->core, "default", id, on_logs, a);
}

static void on_status(void *arg, const struct core_status *s)
{
    take(arg, NULL);
}

static void begin_status(struct world *w, const char *id, struct answer *a)
{
    core_status(w->core, on_status, a);
}

static void on_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    take(arg, why);
}

static void begin_sockets(struct world *w, const char *id, struct answer *a)
{
    core_sandbox_sockets(w->core, id, 2, on_sockets, a);
}

static const struct action actions[] = {
    {"create", false, begin_create},  {"kill", true, begin_kill},
    {"pause", true, begin_pause},     {"network", true, begin_network},
    {"exec", true, begin_exec},       {"metrics", true, begin_metrics},
    {"logs", true, begin_logs},       {"status", true, begin_status},
    {"sockets", true, begin_sockets},
};

static void end_all(struct world *w)
{
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
    world_run_until_true(w, world_nothing_lives);
}

/* One for each n: an answer that comes too late, or twice, is seen. */
static struct answer answers[CALLS_MAX + 1];

/* false: the call makes fewer allocations than n. */
static bool run_once(struct world *w, const struct action *action, size_t n, bool for_good)
{
    struct answer *a = &answers[n];
    char id[IDS_SANDBOX_SIZE] = "";
    bool failed;

    if (action->needs_sandbox)
        world_create_default(w, id);
    assert_true(core_admits(w->core));
    failing_malloc_begin(n, for_good);
    *a = (struct answer){0};
    action->begin(w, id, a);
    world_run_until(w, &a->calls, 1);
    failed = failing_malloc_end();
    if (!a->good && !a->why.text[0])
        fail_msg("%s, allocation %zu: an error without a text", action->name, n);
    if (!a->good && !failed)
        fail_msg("%s: failed without a reason: %s", action->name, a->why.text);
    end_all(w);
    world_run_for(w, 3);
    assert_true(core_admits(w->core));
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

    (void)run_once(w, action, 0, false); /* what is kept from then on is there */
    before = failing_malloc_held();
    while (run_once(w, action, ++n, for_good) && n < CALLS_MAX)
        failures++;
    print_message("%s%s: %zu allocations\n", action->name, for_good ? ", for good" : "", failures);
    assert_in_range(failures, 1, CALLS_MAX - 1);
    if (failing_malloc_held() > before + failures / 8)
        fail_msg("%s: %zu blocks are held after it, %zu before", action->name,
                 failing_malloc_held(), before);
}

static void each_allocation_may_fail(void **state)
{
    fill_events(*state);
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        sweep(*state, &actions[i], false);
}

static void memory_may_be_out_for_the_rest_of_a_call(void **state)
{
    fill_events(*state);
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
        sweep(*state, &actions[i], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {WORLD(each_allocation_may_fail),
                                       WORLD(memory_may_be_out_for_the_rest_of_a_call)};
    int failed;

    failing_malloc_init();
    program = json_pack("{s:s}", "cmd", "true");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(program);
    return failed;
}
