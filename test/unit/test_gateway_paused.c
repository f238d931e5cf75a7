/* The answer to a request for a sandbox while that is being paused, and when it is paused. */
#include "core_world.h"
#include "gateway_seen.h"

#include <string.h>

/* GET /health without a token, as the SDKs' is_running. */
static struct gateway_answer ask_health(struct world *w, const char *id)
{
    struct gateway_resolver *r = gateway_resolver_new(w->core);
    struct gateway_query q = {.kind = ROUTE_SANDBOX, .port = AGENT_PORT};
    struct gateway_seen s = {0};

    q.access.exempt = true;
    memcpy(q.id, id, sizeof(q.id));
    gateway_resolve(r, &q, gateway_seen_on, &s);
    world_run_until(w, &s.calls, 1);
    gateway_resolver_free(r);
    return s.answer;
}

static void check_not_running(struct world *w, const char *id)
{
    struct gateway_answer a = ask_health(w, id);

    assert_int_equal(a.status, 502);
    assert_true(a.shaped);
    assert_non_null(strstr(a.message, "paused"));
}

static void one_that_is_being_paused_does_not_run(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct answer pause = {0}, resume = {0};

    world_create_default(w, id);
    assert_int_equal(ask_health(w, id).status, 0);
    fake_set(w->fake, FAKE_HOLD_FREEZES, 1);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &pause);
    check_not_running(w, id);
    assert_int_equal(pause.calls, 0);
    fake_set(w->fake, FAKE_HOLD_FREEZES, 0);
    world_run_until(w, &pause.calls, 1);
    assert_true(pause.good);
    check_not_running(w, id);
    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &resume);
    world_run_until(w, &resume.calls, 1);
    assert_int_equal(ask_health(w, id).status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(one_that_is_being_paused_does_not_run),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
