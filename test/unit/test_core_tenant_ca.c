/* Units of src/core: sandboxes get the certificate of their tenant's CA, sooner or later and once. */
#include "core_proxy.h"

#include <string.h>

static void sandboxes_get_their_tenants_ca(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE], body[PROXY_TEXT_MAX];

    proxy_start(&p, w);
    proxy_known_to(w, NULL);
    world_run_until(w, &p.lives, 1);
    for (int i = 0; i < 3; i++) {
        world_create_default(w, id);
        fake_init_body(w->fake, body, sizeof(body));
        assert_non_null(strstr(body, "\"caBundle\":\"-----BEGIN CERTIFICATE-----\\nfor default"));
    }
    assert_int_equal(p.tenant_cas, 1);
    world_stop_core(w);
    p.no_tenant_ca = true; /* then they are made without */
    world_start_core(w);
    world_run_until(w, &p.lives, 2);
    world_create_default(w, id);
    world_create_default(w, id);
    fake_init_body(w->fake, body, sizeof(body));
    assert_null(strstr(body, "caBundle"));
    assert_int_equal(p.tenant_cas, 2);
    world_stop_core(w);
    proxy_stop(&p);
}

/* Those that were made while it was away. */
static void a_tenant_ca_comes_later(void **state)
{
    enum { MANY = 20 }; /* more than are given theirs at a time */
    struct world *w = *state;
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE], body[PROXY_TEXT_MAX];
    unsigned before;

    proxy_known_to(w, NULL);
    for (int i = 0; i < MANY; i++)
        world_create_default(w, id);
    fake_init_body(w->fake, body, sizeof(body));
    assert_null(strstr(body, "caBundle"));
    assert_int_equal(fake_counts(w->fake).inits, MANY);
    proxy_start(&p, w);
    for (int i = 0; i < 200 && fake_counts(w->fake).inits < 2 * MANY; i++)
        world_run_for(w, 20);
    assert_int_equal(fake_counts(w->fake).inits, 2 * MANY);
    fake_init_body(w->fake, body, sizeof(body));
    assert_string_equal(body, "{\"caBundle\":\"-----BEGIN CERTIFICATE-----\\nfor default\\n\"}");
    assert_int_equal(p.tenant_cas, 1);
    before = p.lives;
    proxy_stop(&p); /* no sandbox lacks it any more */
    proxy_start(&p, w);
    world_run_until(w, &p.lives, before + 1);
    world_run_for(w, 50);
    assert_int_equal(fake_counts(w->fake).inits, 2 * MANY);
    world_stop_core(w);
    proxy_stop(&p);
}

static void run_until_inits(struct world *w, unsigned wanted)
{
    for (int i = 0; i < 400 && fake_counts(w->fake).inits < wanted; i++)
        world_run_for(w, 10);
    assert_int_equal(fake_counts(w->fake).inits, wanted);
}

static bool all_have_a_tenant_ca(struct world *w)
{
    return world_query(w, "SELECT count(*) FROM sandboxes WHERE flags & 16 = 0") == 0;
}

/* cayd ended before it could be given; then each agent has it once, however often cayd is restarted. */
static void a_tenant_ca_comes_after_a_restart(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE], body[PROXY_TEXT_MAX];

    proxy_known_to(w, NULL);
    world_create_default(w, id);
    world_create_default(w, id);
    world_stop_core(w);
    proxy_start(&p, w);
    world_start_core(w);
    run_until_inits(w, 4);
    fake_init_body(w->fake, body, sizeof(body));
    assert_string_equal(body, "{\"caBundle\":\"-----BEGIN CERTIFICATE-----\\nfor default\\n\"}");
    world_create_default(w, id); /* has it from its start */
    world_run_until_true(w, all_have_a_tenant_ca);
    world_stop_core(w);
    world_start_core(w);
    world_run_until(w, &p.lives, 2);
    world_run_for(w, 100);
    assert_int_equal(fake_counts(w->fake).inits, 5);
    world_stop_core(w);
    proxy_stop(&p);
}

/* A CA that failed is not forgotten: cay-egress had none, or an agent did not take it. */
static void a_tenant_ca_is_tried_again(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204, .no_tenant_ca = true};
    char id[IDS_SANDBOX_SIZE];
    unsigned before;

    w->config.tenant_ca_retry_ms = 50;
    proxy_start(&p, w);
    proxy_known_to(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create_default(w, id);
    before = p.tenant_cas;
    world_run_until(w, &p.tenant_cas, before + 2);
    fake_set(w->fake, FAKE_AGENT_STATUS, 500);
    p.no_tenant_ca = false;
    assert_false(all_have_a_tenant_ca(w));
    run_until_inits(w, 3); /* its start, and twice in vain */
    fake_set(w->fake, FAKE_AGENT_STATUS, 204);
    world_run_until_true(w, all_have_a_tenant_ca);
    before = fake_counts(w->fake).inits;
    world_run_for(w, 200);
    assert_int_equal(fake_counts(w->fake).inits, before);
    world_stop_core(w);
    proxy_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(sandboxes_get_their_tenants_ca),
        WORLD(a_tenant_ca_comes_later),
        WORLD(a_tenant_ca_comes_after_a_restart),
        WORLD(a_tenant_ca_is_tried_again),
    };

    return cmocka_run_group_tests_name("core_tenant_ca", tests, NULL, NULL);
}
