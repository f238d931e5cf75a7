/* The routes of the API and of MCP by the roles of keys: every route has its kind, no role may make
 * a call that was not decided. That docs/tenants.md lists all of them is a step of the build
 * (src/mcp/check_routes.c). */
#include "api/api.h"
#include "base/util.h"
#include "core/key.h"
#include "mcp/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void see(void *arg, const struct api_route *r)
{
    if (r->access <= API_NOT_DECIDED || r->access >= API_ACCESS_COUNT)
        fail_msg("%s %s: its kind (API_READ, ...) is not decided", r->method, r->pattern);
    if (r->access == API_READ && strcmp(r->method, "GET") != 0 &&
        strcmp(r->pattern, "/cay/v1/policies/check") != 0 && /* questions with a body */
        strcmp(r->pattern, "/cay/v1/sandboxes/{id}/policy/explain") != 0)
        fail_msg("%s %s: is said to read", r->method, r->pattern);
    ++*(unsigned *)arg;
}

/* The routes of api's dialects, then MCP's, which are below a key as well. */
static void each_route(void (*fn)(void *arg, const struct api_route *r), void *arg)
{
    const struct api_route *const tables[] = {http_mcp_routes, http_metadata_routes};

    api_each_route(fn, arg);
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
        for (const struct api_route *r = tables[i]; r->method; r++)
            fn(arg, r);
}

static void every_route_has_its_kind(void **state)
{
    unsigned n = 0;

    each_route(see, &n);
    assert_true(n > 85);
}

static void what_was_not_decided_is_refused(void **state)
{
    for (int role = -1; role <= CORE_ROLE_COUNT; role++) {
        assert_false(api_role_may((enum core_role)role, API_NOT_DECIDED));
        assert_false(api_role_may((enum core_role)role, API_ACCESS_COUNT));
        assert_false(api_role_may((enum core_role)role, (enum api_access) - 1));
    }
    for (int access = 0; access <= API_ACCESS_COUNT; access++) {
        assert_false(api_role_may(CORE_ROLE_NONE, (enum api_access)access));
        assert_false(api_role_may(CORE_ROLE_COUNT, (enum api_access)access));
        assert_false(api_role_may((enum core_role) - 1, (enum api_access)access));
    }
    assert_true(api_role_may(CORE_ROLE_OPERATOR, API_OPERATE));
    assert_true(api_role_may(CORE_ROLE_OWNER, API_WRITE));
    assert_false(api_role_may(CORE_ROLE_OWNER, API_OPERATE));
    assert_true(api_role_may(CORE_ROLE_READ_ONLY, API_READ));
    assert_false(api_role_may(CORE_ROLE_READ_ONLY, API_WRITE));
    assert_false(api_role_may(CORE_ROLE_READ_ONLY, API_OPERATE));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_has_its_kind),
        cmocka_unit_test(what_was_not_decided_is_refused),
    };

    return cmocka_run_group_tests_name("api_roles", tests, NULL, NULL);
}
