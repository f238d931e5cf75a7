/* The end of a sandbox that lives as long as it is used: what callers are shown of it, and who may move it. */
#include "base/clock.h"
#include "core/core.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core_world.h"

#define MINUTE_MS INT64_C(60000)

static struct sandbox_obj *make(struct world *w, int64_t idle_ms, int64_t ttl_ms)
{
    struct sandbox_request r = world_request();
    char id[IDS_SANDBOX_SIZE];

    r.ttl_ms = ttl_ms;
    r.idle_ms = idle_ms;
    world_create(w, &r, id);
    return sandbox_get(w->core, NULL, id);
}

/* As it is 50 s after the last look at it. */
static void let_time_pass(struct sandbox_obj *o)
{
    o->s.end_real_ms -= 50000;
    o->used_ms -= 50000;
    lifecycle_arm(o);
}

static void a_use_moves_the_end_that_is_shown(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, MINUTE_MS, 0);
    int64_t before_ms;

    let_time_pass(o);
    before_ms = clock_real_ms();
    assert_true(o->s.end_real_ms < before_ms + MINUTE_MS - 40000);
    core_sandbox_used(w->core, o->s.id);
    assert_true(core_sandbox_find(w->core, NULL, o->s.id)->end_real_ms >=
                before_ms + MINUTE_MS - 1);
}

static void no_use_moves_it_beyond_the_last_end(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, MINUTE_MS, MINUTE_MS + 1000);
    int64_t last_ms = o->s.last_end_real_ms;

    o->s.last_end_real_ms -= 30000;
    let_time_pass(o);
    core_sandbox_used(w->core, o->s.id);
    assert_int_equal(o->s.end_real_ms, last_ms - 30000);
}

static void a_use_moves_no_end_that_was_named(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, 0, MINUTE_MS);
    int64_t end_ms = o->s.end_real_ms;

    core_sandbox_used(w->core, o->s.id);
    assert_int_equal(o->s.end_real_ms, end_ms);
}

/* E2B's connect with 30 s, ten seconds before the end that its last use has moved on by 50. */
static void a_connect_does_not_shorten_it(void **state)
{
    struct world *w = *state;
    struct sandbox_obj *o = make(w, MINUTE_MS, 0);
    const struct sandbox *s = NULL;
    struct err e;
    int64_t end_ms;

    let_time_pass(o);
    core_sandbox_used(w->core, o->s.id);
    end_ms = o->s.end_real_ms;
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", o->s.id, 30000, true, &s, &e),
                     ERR_OK);
    assert_int_equal(s->end_real_ms, end_ms);
    assert_int_equal(s->idle_ms, MINUTE_MS);
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", o->s.id, 2 * MINUTE_MS, true, &s, &e),
                     ERR_OK);
    assert_true(s->end_real_ms > end_ms);
    assert_int_equal(s->idle_ms, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_use_moves_the_end_that_is_shown),
        WORLD(no_use_moves_it_beyond_the_last_end),
        WORLD(a_use_moves_no_end_that_was_named),
        WORLD(a_connect_does_not_shorten_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
