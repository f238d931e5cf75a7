/* The answer to a request for a sandbox while that is being paused, and when it is paused. */
#include "core/core_internal.h"
#include "core/sandbox.h"
#include "core_world.h"
#include "gateway_seen.h"

#include <string.h>

/* GET /health, as the SDKs' is_running; token NULL: without one. */
static struct gateway_answer ask_health_with(struct world *w, const char *id, const char *token)
{
    struct gateway_resolver *r = gateway_resolver_new(w->core);
    struct gateway_query q = {.kind = ROUTE_SANDBOX, .port = AGENT_PORT};
    struct gateway_seen s = {0};

    q.access.exempt = true;
    q.access.has_token = token != NULL;
    snprintf(q.access.token, sizeof(q.access.token), "%s", token ? token : "");
    memcpy(q.id, id, sizeof(q.id));
    gateway_resolve(r, &q, gateway_seen_on, &s);
    world_run_until(w, &s.calls, 1);
    gateway_resolver_free(r);
    return s.answer;
}

static struct gateway_answer ask_health(struct world *w, const char *id)
{
    return ask_health_with(w, id, NULL);
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

/* A stream of the SDKs' that a pause ends has them ask /health, with the token. */
static void health_resumes_nothing(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE], token[CORE_TOKEN_SIZE + 1];
    struct answer pause = {0};
    struct gateway_answer a;

    world_create_default(w, id);
    sandbox_get(w->core, NULL, id)->s.auto_resume = true;
    core_sandbox_token(w->core, id, token);
    core_sandbox_pause(w->core, "default", id, SANDBOX_TIER_FROZEN, world_on_answer, &pause);
    world_run_until(w, &pause.calls, 1);
    assert_true(pause.good);
    a = ask_health_with(w, id, token);
    assert_int_equal(a.status, 502);
    assert_non_null(strstr(a.message, "not /health"));
    assert_int_equal(core_sandbox_find(w->core, "default", id)->state, SANDBOX_PAUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(one_that_is_being_paused_does_not_run),
        WORLD(health_resumes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
