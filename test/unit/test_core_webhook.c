/* Webhooks: their owners, the message of an event, and the fate of a delivery that fails. */
#include "base/clock.h"
#include "core/webhook_internal.h"
#include "core_proxy.h"

#include <stdio.h>
#include <string.h>

#define URL  "https://hooks.example:8443/cay?x=1"
#define GOOD "{\"status\":204}"

struct made {
    unsigned calls;
    bool good;
    char id[CORE_WEBHOOK_ID_SIZE], secret[64];
    struct err why;
};

static void on_made(void *arg, const struct core_webhook *w, const char *secret,
                    const struct err *why)
{
    struct made *m = arg;

    m->calls++;
    m->good = w != NULL;
    if (w) {
        memcpy(m->id, w->id, sizeof(m->id));
        (void)snprintf(m->secret, sizeof(m->secret), "%s", secret);
    }
    if (why)
        m->why = *why;
}

static struct made add(struct world *w, const char *tenant, const char *url, unsigned types)
{
    struct made m = {0};

    core_webhook_add(w->core, tenant, url, types, on_made, &m);
    assert_int_equal(m.calls, 0);
    world_run_until(w, &m.calls, 1);
    return m;
}

static void copy_last(void *arg, const struct core_webhook *w)
{
    *(struct core_webhook *)arg = *w;
}

static struct core_webhook last_of(struct world *w, const char *tenant)
{
    struct core_webhook one = {0};

    core_webhook_each(w->core, tenant, copy_last, &one);
    return one;
}

static void with_proxy(struct world *w, struct proxy *p)
{
    *p = (struct proxy){.status = 204, .delivered = GOOD};
    proxy_known_to(w, NULL);
    proxy_start(p, w);
    world_run_until(w, &p->lives, 1);
}

/* Made anew on what is stored: nothing is under way, and due deliveries are looked for. */
static void restart(struct world *w, struct proxy *p)
{
    unsigned lives = p->lives;

    world_stop_core(w);
    world_start_core(w);
    if (p->server)
        world_run_until(w, &p->lives, lives + 1);
}

static bool all_settled(struct world *w)
{
    return last_of(w, "default").waiting == 0;
}

/* A webhook with a ping that cay-egress was asked to send, and has not answered. */
static struct made with_one_under_way(struct world *w, struct proxy *p)
{
    struct made m;
    struct err e;

    with_proxy(w, p);
    m = add(w, "default", URL, 1u << EVENT_SANDBOX_CREATED);
    p->delivered = NULL;
    assert_int_equal(core_webhook_ping(w->core, "default", m.id, &e), ERR_OK);
    world_run_until(w, &p->deliveries, 1);
    return m;
}

static char *text_of(const struct proxy *p, const char *key)
{
    json_t *o = json_loads(p->body, 0, NULL);
    const char *text = json_string_value(json_object_get(o, key));
    char *copy = strdup(text ? text : "");

    json_decref(o);
    return copy;
}

static void one_is_made_and_its_secret_shown_once(void **state)
{
    struct world *w = *state;
    struct core_webhook one;
    struct proxy p;
    struct made m;

    with_proxy(w, &p);
    m = add(w, "default", URL, core_webhook_default_types());
    assert_true(m.good);
    assert_int_equal(m.id[0], 'w');
    assert_int_equal(strncmp(m.secret, "whsec_", 6), 0);
    assert_int_equal(strlen(m.secret), 6 + 32);
    one = last_of(w, "default");
    assert_string_equal(one.url, URL);
    assert_int_equal(one.types, core_webhook_default_types());
    assert_int_equal(one.types & 1u << EVENT_DROPPED, 0);
    restart(w, &p);
    one = last_of(w, "default");
    assert_string_equal(one.id, m.id);
    assert_int_equal(one.types, core_webhook_default_types());
    proxy_stop(&p);
}

static void what_is_no_https_name_is_refused(void **state)
{
    static const char *const bad[] = {"http://hooks.example/",
                                      "https://127.0.0.1/",
                                      "https://[::1]/",
                                      "https://user@hooks.example/",
                                      "https://h.example/#x",
                                      "https://h.example:0/",
                                      "https:///x",
                                      ""};
    struct world *w = *state;
    struct proxy p;

    with_proxy(w, &p);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct made m = add(w, "default", bad[i], 1);

        if (m.good || m.why.code != ERR_INVALID)
            fail_msg("\"%s\" was taken", bad[i]);
    }
    assert_int_equal(p.seals, 0);
    for (unsigned i = 0; i < WEBHOOKS_OF_A_TENANT; i++)
        assert_true(add(w, "default", URL, 1).good);
    assert_int_equal(add(w, "default", URL, 1).why.code, ERR_EXHAUSTED);
    assert_true(add(w, "alice", URL, 1).good);
    proxy_stop(&p);
}

static void an_event_is_sent_as_it_was_told(void **state)
{
    struct world *w = *state;
    char box[IDS_SANDBOX_SIZE], lines[EVENTS_LINE_MAX];
    CLEANUP_FREE char *body = NULL, *url = NULL, *message = NULL;
    struct proxy p;
    struct made m;

    with_proxy(w, &p);
    m = add(w, "default", URL, 1u << EVENT_SANDBOX_CREATED);
    assert_true(add(w, "alice", URL, 1u << EVENT_SANDBOX_CREATED).good);
    world_create_default(w, box);
    world_run_until(w, &p.deliveries, 1);
    body = text_of(&p, "body");
    url = text_of(&p, "url");
    message = text_of(&p, "message");
    world_run_until_true(w, all_settled);
    world_events(w, box, 1u << EVENT_SANDBOX_CREATED, lines);
    assert_int_equal(strncmp(lines, body, strlen(body)), 0);
    assert_string_equal(lines + strlen(body), "\n");
    assert_string_equal(url, URL);
    assert_int_equal(strncmp(message, m.id, strlen(m.id)), 0);
    assert_int_equal(world_query(w, "SELECT count(*) FROM deliveries"), 0);
    assert_int_equal(last_of(w, "default").delivered, 1);
    assert_int_equal(last_of(w, "alice").delivered, 0);
    assert_int_equal(p.deliveries, 1);
    proxy_stop(&p);
}

static bool one_failed(struct world *w)
{
    return last_of(w, "default").last_why[0] != '\0';
}

/* Nine attempts, each after its wait; then it is dead, and alive again when its owner says so. */
static void what_fails_is_tried_again_and_then_dead(void **state)
{
    struct world *w = *state;
    CLEANUP_FREE char *first = NULL;
    uint64_t count = 0;
    struct proxy p;
    struct made m;
    struct err e;

    with_proxy(w, &p);
    m = add(w, "default", URL, 1u << EVENT_SANDBOX_CREATED);
    p.delivered = "{\"status\":500}";
    assert_int_equal(core_webhook_ping(w->core, "default", m.id, &e), ERR_OK);
    for (unsigned i = 1; i <= WEBHOOK_ATTEMPTS; i++) {
        CLEANUP_FREE char *message = NULL;

        world_run_until(w, &p.deliveries, i);
        world_run_until_true(w, one_failed);
        message = text_of(&p, "message");
        if (!first)
            first = TAKE_PTR(message);
        else
            assert_string_equal(message, first);
        if (i == WEBHOOK_ATTEMPTS)
            break;
        assert_int_equal(world_query(w, "SELECT attempts FROM deliveries"), i);
        assert_true(world_query(w, "SELECT due_ms FROM deliveries") > clock_real_ms());
        world_query(w, "UPDATE deliveries SET due_ms = 0");
        restart(w, &p);
    }
    assert_int_equal(last_of(w, "default").dead, 1);
    assert_int_equal(last_of(w, "default").waiting, 0);
    restart(w, &p);
    assert_int_equal(last_of(w, "default").dead, 1);
    p.delivered = GOOD;
    assert_int_equal(core_webhook_retry(w->core, "default", m.id, &count, &e), ERR_OK);
    assert_int_equal(count, 1);
    world_run_until_true(w, all_settled);
    assert_int_equal(world_query(w, "SELECT count(*) FROM deliveries"), 0);
    assert_int_equal(p.deliveries, WEBHOOK_ATTEMPTS + 1);
    proxy_stop(&p);
}

static void waits_grow_to_half_a_day(void **state)
{
    uint64_t before = 0;

    for (unsigned i = 1; i < WEBHOOK_ATTEMPTS; i++) {
        assert_true(webhook_delay_ms(i) > before);
        before = webhook_delay_ms(i);
    }
    assert_int_equal(before, WEBHOOK_DELAY_MAX_MS);
    assert_int_equal(webhook_delay_ms(0), webhook_delay_ms(1));
    assert_int_equal(webhook_delay_ms(1000), WEBHOOK_DELAY_MAX_MS);
}

/* cayd ends while one is under way: the next one sends it, under the same name. */
static void one_under_way_is_sent_again_after_a_restart(void **state)
{
    struct world *w = *state;
    CLEANUP_FREE char *first = NULL, *second = NULL;
    struct proxy p;

    (void)with_one_under_way(w, &p);
    first = text_of(&p, "message");
    p.delivered = GOOD;
    restart(w, &p);
    world_run_until(w, &p.deliveries, 2);
    second = text_of(&p, "message");
    assert_string_equal(first, second);
    world_run_until_true(w, all_settled);
    proxy_stop(&p);
}

/* The absence of cay-egress is no attempt. */
static void nothing_is_counted_while_cay_egress_is_away(void **state)
{
    struct world *w = *state;
    struct proxy p;
    struct made m;
    struct err e;

    with_proxy(w, &p);
    m = add(w, "default", URL, 1u << EVENT_SANDBOX_CREATED);
    proxy_stop(&p);
    assert_int_equal(core_webhook_ping(w->core, "default", m.id, &e), ERR_OK);
    world_run_until_true(w, one_failed);
    assert_int_equal(world_query(w, "SELECT attempts FROM deliveries"), 0);
    proxy_start(&p, w);
    restart(w, &p);
    world_run_until_true(w, all_settled);
    assert_int_equal(p.deliveries, 1);
    proxy_stop(&p);
}

static void one_can_be_removed_while_it_is_asked(void **state)
{
    struct world *w = *state;
    struct proxy p;
    struct made m;
    struct err e;

    m = with_one_under_way(w, &p);
    assert_int_equal(tenant_held(w->core, "default", TENANT_WEBHOOKS), 1);
    assert_int_equal(tenant_held(w->core, "default", TENANT_DELIVERIES), 1);
    assert_int_equal(core_webhook_remove(w->core, "alice", m.id, &e), ERR_NOT_FOUND);
    assert_int_equal(core_webhook_remove(w->core, "default", m.id, &e), ERR_OK);
    assert_int_equal(core_webhook_remove(w->core, "default", m.id, &e), ERR_NOT_FOUND);
    assert_int_equal(core_webhook_ping(w->core, "default", m.id, &e), ERR_NOT_FOUND);
    assert_null(last_of(w, "default").id);
    assert_int_equal(world_query(w, "SELECT count(*) FROM webhooks"), 0);
    assert_int_equal(world_query(w, "SELECT count(*) FROM deliveries"), 0);
    assert_int_equal(tenant_held(w->core, "default", TENANT_WEBHOOKS), 0);
    assert_int_equal(tenant_held(w->core, "default", TENANT_DELIVERIES), 0);
    proxy_stop(&p); /* its answer: the connection ends */
}

#define FILL                                                                                       \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1024)"               \
    " INSERT INTO deliveries (webhook, message, type, body, attempts, due_ms, dead, why, made_ms)" \
    " SELECT (SELECT id FROM webhooks), 'm', 'ping', '{}', 1, 9e15, 0, '', 0 FROM n"

static void beyond_the_limit_an_event_is_counted_and_not_sent(void **state)
{
    struct world *w = *state;
    char box[IDS_SANDBOX_SIZE];
    struct proxy p;
    struct made m;
    struct err e;

    with_proxy(w, &p);
    m = add(w, "default", URL, 1u << EVENT_SANDBOX_CREATED);
    world_query(w, FILL);
    p.delivered = NULL;
    restart(w, &p);
    assert_int_equal(last_of(w, "default").waiting, WEBHOOK_WAITING_EACH);
    assert_int_equal(tenant_held(w->core, "default", TENANT_DELIVERIES), WEBHOOK_WAITING_EACH);
    world_create_default(w, box);
    assert_int_equal(last_of(w, "default").dropped, 1);
    assert_int_equal(core_webhook_ping(w->core, "default", m.id, &e), ERR_EXHAUSTED);
    assert_int_equal(world_query(w, "SELECT count(*) FROM deliveries"), WEBHOOK_WAITING_EACH);
    proxy_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(one_is_made_and_its_secret_shown_once),
        WORLD(what_is_no_https_name_is_refused),
        WORLD(an_event_is_sent_as_it_was_told),
        WORLD(what_fails_is_tried_again_and_then_dead),
        cmocka_unit_test(waits_grow_to_half_a_day),
        WORLD(one_under_way_is_sent_again_after_a_restart),
        WORLD(nothing_is_counted_while_cay_egress_is_away),
        WORLD(one_can_be_removed_while_it_is_asked),
        WORLD(beyond_the_limit_an_event_is_counted_and_not_sent),
    };

    return cmocka_run_group_tests_name("core_webhook", tests, NULL, NULL);
}
