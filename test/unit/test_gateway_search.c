/* A signed URL that names no sandbox, among more sandboxes than one page of a listing has. */
#include "core_world.h"
#include "gateway_seen.h"

#include <stdio.h>
#include <string.h>

#define PAGE    1000u /* of core_sandbox_list */
#define COUNT   (PAGE + 2)
#define BATCH   50u
#define SUBJECT "/home/user/a:read:user"

static struct gateway_answer resolve(struct world *w, struct gateway_resolver *r, const char *token)
{
    struct gateway_query q = {.kind = ROUTE_SIGNED, .port = AGENT_PORT};
    struct gateway_seen s = {0};

    q.access = (struct access){.may_sign = true, .has_signature = true, .subject = strdup(SUBJECT)};
    assert_int_equal(access_sign(SUBJECT, token, false, 0, q.access.signature), 0);
    gateway_resolve(r, &q, gateway_seen_on, &s);
    world_run_until(w, &s.calls, 1);
    access_free(&q.access);
    return s.answer;
}

static void create_all(struct world *w, char oldest[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();
    struct answer a = {0};

    world_create_default(w, oldest);
    for (unsigned made = 1; made < COUNT; made++) {
        core_sandbox_create(w->core, &r, world_on_answer, &a);
        if (made % BATCH == 0)
            world_run_until(w, &a.calls, made);
    }
    world_run_until(w, &a.calls, COUNT - 1);
    assert_true(a.good);
}

static void the_oldest_of_more_than_a_page_is_found(void **state)
{
    struct world *w = *state;
    struct gateway_resolver *r = gateway_resolver_new(w->core);
    char oldest[IDS_SANDBOX_SIZE], token[CORE_TOKEN_SIZE + 1];
    struct gateway_answer a;

    create_all(w, oldest);
    core_sandbox_token(w->core, oldest, token);
    a = resolve(w, r, token);
    assert_int_equal(a.status, 0);
    assert_string_equal(a.id, oldest);
    core_sandbox_token(w->core, "inobody", token);
    assert_int_equal(resolve(w, r, token).status, 401);
    gateway_resolver_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(the_oldest_of_more_than_a_page_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
