/* Units of src/core: what cay-egress is told, when, and what happens while it is away. The other end is
 * a real server on the same loop. */
#include "base/io.h"
#include "core/credential.h"
#include "core_world.h"
#include "http/server.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT_MAX 4096

/* What the other end was told, and what it shall answer. */
struct proxy {
    struct world *w;
    struct http_server *server;
    struct http_exchange *events; /* held open while it lives */
    int status;
    bool silent; /* takes requests and says nothing */
    unsigned puts, lives, stopped, seals, authorities;
    bool no_authority;
    char target[TEXT_MAX], body[TEXT_MAX];
};

static void events_closed(struct http_exchange *x, void *data)
{
    ((struct proxy *)data)->events = NULL;
}

static void on_body(struct http_exchange *x, char *body, size_t len)
{
    struct proxy *p = http_exchange_get(x);

    p->puts++;
    snprintf(p->target, sizeof(p->target), "%s", http_exchange_head(x)->target);
    snprintf(p->body, sizeof(p->body), "%s", body);
    if (!p->silent)
        http_respond(x, p->status, NULL, 0, "no", p->status == 204 ? 0 : 2);
}

/* "Seals" by saying which value it was, in capitals. */
static void on_seal(struct http_exchange *x, char *body, size_t len)
{
    struct proxy *p = http_exchange_get(x);
    json_t *o = json_loadb(body, len, 0, NULL);
    const char *value = json_string_value(json_object_get(o, "value"));
    char text[TEXT_MAX];

    p->seals++;
    if (value && strcmp(value, "bad") == 0) {
        http_respond_error(x, 400, "value: is bad");
    } else {
        snprintf(text, sizeof(text), "{\"sealed\":\"SEALED-%s-%s\"}",
                 json_string_value(json_object_get(o, "tenant")), value ? value : "object");
        http_respond(x, 200, NULL, 0, text, strlen(text));
    }
    json_decref(o);
}

static void handle(struct http_exchange *x, void *ctx)
{
    static const char pem[] = "-----BEGIN CERTIFICATE-----\nfor default\n";
    struct proxy *p = ctx;

    http_exchange_set(x, p, NULL);
    if (strcmp(http_exchange_head(x)->target, "/v1/ca/default") == 0) {
        p->authorities++;
        if (p->no_authority)
            http_respond_error(x, 501, "none here");
        else
            http_respond(x, 200, NULL, 0, pem, strlen(pem));
        return;
    }
    if (strcmp(http_exchange_head(x)->target, "/v1/seal") == 0) {
        http_body_collect(x, TEXT_MAX - 1, on_seal);
        return;
    }

    if (strcmp(http_exchange_head(x)->target, "/v1/events") == 0) {
        p->events = x;
        p->lives++;
        http_exchange_set(x, p, events_closed);
        http_response_begin(x, 200, NULL, 0, -1);
        http_response_write(x, "{}\n", 3);
        return;
    }
    assert_string_equal(http_exchange_head(x)->method, "PUT");
    http_body_collect(x, TEXT_MAX - 1, on_body);
}

static void proxy_start(struct proxy *p, struct world *w)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct http_server_config config;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    p->w = w;
    snprintf(at.sun_path, sizeof(at.sun_path), "%s/egress-0.ctl", w->dir);
    unlink(at.sun_path);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 64), 0);
    http_server_config_default(&config);
    assert_int_equal(http_server_new(&w->loop, &config, handle, p, &p->server), 0);
    assert_int_equal(http_server_listen(p->server, fd), 0);
}

static void on_stopped(void *ctx)
{
    ((struct proxy *)ctx)->stopped++;
}

static void proxy_stop(struct proxy *p)
{
    unsigned before = p->stopped;

    http_server_stop(p->server, 0, on_stopped, p);
    p->server = NULL;
    world_run_until(p->w, &p->stopped, before + 1);
}

/* A core that knows of a proxy, which need not be there. */
static void with_proxy(struct world *w, const char *ceiling)
{
    world_stop_core(w);
    w->config.egress_dir = w->dir;
    w->config.egress_processes = 1;
    w->config.egress_ceiling = ceiling;
    world_start_core(w);
}

static struct sandbox_request with_policy(json_t *policy)
{
    struct sandbox_request r = world_request();

    r.policy = policy;
    return r;
}

static void set_policy(struct world *w, const char *id, json_t *policy, struct answer *a)
{
    const struct core_network n = {.policy = policy, .allow_internet = true};

    core_sandbox_set_network(w->core, "default", id, &n, world_on_answer, a);
}

static void check_told(const struct proxy *p, struct world *w, const char *id, const char *policy)
{
    const struct sandbox *s = core_sandbox_find(w->core, NULL, id);
    json_t *body = json_loads(p->body, 0, NULL),
           *wanted = json_loads(policy, JSON_DECODE_ANY, NULL);
    char target[64];

    snprintf(target, sizeof(target), "/v1/sandboxes/%u/%u", s->slot, s->gen);
    assert_string_equal(p->target, target);
    assert_string_equal(json_string_value(json_object_get(body, "id")), id);
    assert_string_equal(json_string_value(json_object_get(body, "tenant")), "default");
    assert_true(json_equal(json_object_get(body, "policy"), wanted));
    json_decref(body);
    json_decref(wanted);
}

static void a_policy_is_sent_with_the_create(void **state)
{
    struct world *w = *state;
    json_t *policy = json_pack("{s:s}", "default", "public");
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    proxy_start(&p, w);
    with_proxy(w, "public");
    world_run_until(w, &p.lives, 1);
    world_create(w, &r, id);
    world_run_until(w, &p.puts, 1);
    check_told(&p, w, id, "{\"default\":\"public\"}");
    assert_non_null(strstr(p.body, "\"ceilings\":[{\"default\":\"public\"}]"));
    world_run_for(w, 30);
    assert_int_equal(p.puts, 1);
    json_decref(policy);
    world_stop_core(w);
    proxy_stop(&p);
}

static void a_create_does_not_wait_for_it_and_a_restart_is_told_all(void **state)
{
    struct world *w = *state;
    json_t *policy = json_pack("{s:s}", "default", "deny");
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    with_proxy(w, NULL);
    world_create(w, &r, id); /* nobody is there */
    proxy_start(&p, w);
    world_run_until(w, &p.puts, 1);
    check_told(&p, w, id, "{\"default\":\"deny\"}");
    proxy_stop(&p);
    world_run_for(w, 50);
    proxy_start(&p, w);
    world_run_until(w, &p.puts, 2);
    check_told(&p, w, id, "{\"default\":\"deny\"}");
    world_stop_core(w);
    world_start_core(w); /* cayd, too */
    world_run_until(w, &p.puts, 3);
    json_decref(policy);
    world_stop_core(w);
    proxy_stop(&p);
}

/* A store that lost a tenant: what its sandboxes may do is known to nobody. */
static void nothing_leaves_a_sandbox_without_a_tenant(void **state)
{
    struct world *w = *state;
    json_t *policy = json_pack("{s:s}", "default", "public");
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    proxy_start(&p, w);
    with_proxy(w, "public");
    world_run_until(w, &p.lives, 1);
    world_create(w, &r, id);
    world_run_until(w, &p.puts, 1);
    assert_non_null(strstr(p.body, "\"ceilings\":[{\"default\":\"public\"}]"));
    world_query(w, "DELETE FROM api_keys");
    world_query(w, "DELETE FROM tenants");
    world_create(w, &r, id);
    world_run_until(w, &p.puts, 2);
    check_told(&p, w, id, "{\"default\":\"public\"}");
    assert_non_null(
        strstr(p.body, "\"ceilings\":[{\"default\":\"public\"},{\"default\":\"deny\"}]"));
    json_decref(policy);
    world_stop_core(w);
    proxy_stop(&p);
}

static void an_update_is_told_when_it_is_in_force(void **state)
{
    struct world *w = *state;
    json_t *policy = json_pack("{s:s}", "default", "public");
    struct proxy p = {.status = 204, .silent = true};
    struct answer a = {0}, b = {0}, c = {0}, d = {0};
    char id[IDS_SANDBOX_SIZE];

    proxy_start(&p, w);
    with_proxy(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create_default(w, id);
    world_run_until(w, &p.puts, 1);
    set_policy(w, id, policy, &a);
    world_run_for(w, 50);
    assert_int_equal(a.calls, 0);
    proxy_stop(&p); /* the answers that it owes never come */
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    set_policy(w, id, NULL, &b);
    world_run_until(w, &b.calls, 1);
    assert_int_equal(b.why.code, ERR_UNAVAILABLE);
    p.silent = false;
    p.puts = 0;
    proxy_start(&p, w);
    world_run_until(w, &p.puts, 1);
    check_told(&p, w, id, "null"); /* the last word */
    set_policy(w, id, policy, &c);
    world_run_until(w, &c.calls, 1);
    assert_true(c.good);
    check_told(&p, w, id, "{\"default\":\"public\"}");
    p.status = 400;
    set_policy(w, id, NULL, &d);
    world_run_until(w, &d.calls, 1);
    assert_int_equal(d.why.code, ERR_INVALID);
    json_decref(policy);
    world_stop_core(w);
    proxy_stop(&p);
}

static void many_are_sent_in_turn_and_those_that_end_are_forgotten(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204};
    struct answer ended = {0};
    char ids[80][IDS_SANDBOX_SIZE];

    with_proxy(w, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        world_create_default(w, ids[i]);
    for (size_t i = 0; i < ARRAY_SIZE(ids); i += 2)
        core_sandbox_kill(w->core, NULL, ids[i], world_on_answer, &ended);
    world_run_until(w, &ended.calls, ARRAY_SIZE(ids) / 2);
    proxy_start(&p, w);
    world_run_until(w, &p.puts, ARRAY_SIZE(ids) / 2);
    world_run_for(w, 50);
    assert_int_equal(p.puts, ARRAY_SIZE(ids) / 2);
    world_stop_core(w);
    proxy_stop(&p);
}

static void a_stop_answers_who_waits(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204, .silent = true};
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    proxy_start(&p, w);
    with_proxy(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create_default(w, id);
    set_policy(w, id, NULL, &a);
    world_run_for(w, 30);
    world_stop_core(w);
    assert_int_equal(a.calls, 1);
    assert_false(a.good);
    proxy_stop(&p);
}

/* -- credentials ------------------------------------------------------------------------------- */

static struct err set_credential(struct world *w, const char *name, const char *value)
{
    json_t *bind = json_pack("{s:s, s:[s]}", "kind", "bearer", "domains", "api.example.com");
    json_t *text = json_string(value);
    struct answer a = {0};

    core_credential_set(w->core, "default", name, bind, text, world_on_answer, &a);
    assert_int_equal(a.calls, 0);
    world_run_until(w, &a.calls, 1);
    json_decref(bind);
    json_decref(text);
    return a.why;
}

static json_t *injecting(const char *name)
{
    return json_pack("{s:s, s:[{s:s, s:[s]}]}", "default", "public", "inject", "credential", name,
                     "domains", "api.example.com");
}

static void a_credential_is_kept_sealed_and_sent_to_those_that_name_it(void **state)
{
    struct world *w = *state;
    json_t *policy = injecting("KEY");
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    struct answer refused;
    struct err e;
    char id[IDS_SANDBOX_SIZE];

    proxy_start(&p, w);
    with_proxy(w, NULL);
    world_run_until(w, &p.lives, 1);
    refused = world_create_fails(w, &r);
    assert_int_equal(refused.why.code, ERR_INVALID);
    assert_non_null(strstr(refused.why.text, "\"KEY\""));
    assert_int_equal(set_credential(w, "KEY", "first-value").code, ERR_OK);
    assert_int_equal(world_query(w, "SELECT count(*) FROM credentials WHERE sealed = "
                                    "CAST('SEALED-default-first-value' AS BLOB)"),
                     1);
    world_create(w, &r, id);
    world_run_until(w, &p.puts, 1);
    assert_non_null(strstr(p.body, "SEALED-default-first-value"));
    assert_non_null(strstr(p.body, "\"bind\":{\"kind\""));
    assert_int_equal(set_credential(w, "OTHER", "not-used-by-it").code, ERR_OK);
    assert_int_equal(set_credential(w, "KEY", "second-value").code,
                     ERR_OK); /* it is told at once */
    world_run_until(w, &p.puts, 2);
    assert_non_null(strstr(p.body, "SEALED-default-second-value"));
    assert_null(strstr(p.body, "not-used-by-it"));
    e = set_credential(w, "KEY", "bad");
    assert_int_equal(e.code, ERR_INVALID);
    assert_non_null(strstr(e.text, "value: is bad"));
    assert_int_equal(set_credential(w, "e2b-rule-0", "whatever").code, ERR_INVALID);
    world_stop_core(w);
    world_start_core(w);
    world_run_until(w, &p.puts, 3); /* it outlives cayd */
    assert_non_null(strstr(p.body, "SEALED-default-second-value"));
    assert_int_equal(core_credential_remove(w->core, "other", "KEY", &e), ERR_NOT_FOUND);
    assert_int_equal(core_credential_remove(w->core, "default", "KEY", &e), ERR_OK);
    world_run_until(w, &p.puts, 4);
    assert_null(strstr(p.body, "SEALED"));
    assert_int_equal(core_credential_remove(w->core, "default", "KEY", &e), ERR_NOT_FOUND);
    json_decref(policy);
    world_stop_core(w);
    proxy_stop(&p);
}

static void without_a_proxy_nothing_is_kept(void **state)
{
    struct world *w = *state;

    with_proxy(w, NULL);
    assert_int_equal(set_credential(w, "KEY", "first-value").code, ERR_UNAVAILABLE);
    assert_int_equal(world_query(w, "SELECT count(*) FROM credentials"), 0);
}

static void a_sandbox_has_credentials_of_its_own(void **state)
{
    struct world *w = *state;
    json_t *policy = injecting("e2b-rule-0"), *own;
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    own = json_pack("[{s:s, s:{}, s:s}]", "name", "e2b-rule-0", "bind", "sealed", "MINE");
    r.credentials = own;
    proxy_start(&p, w);
    with_proxy(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create(w, &r, id);
    world_run_until(w, &p.puts, 1);
    assert_non_null(strstr(p.body, "\"sealed\":\"MINE\""));
    world_stop_core(w);
    world_start_core(w);
    world_run_until(w, &p.puts, 2);
    assert_non_null(strstr(p.body, "\"sealed\":\"MINE\""));
    json_decref(policy);
    json_decref(own);
    world_stop_core(w);
    proxy_stop(&p);
}

static void sandboxes_get_their_tenants_authority(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE], body[TEXT_MAX];

    proxy_start(&p, w);
    with_proxy(w, NULL);
    world_run_until(w, &p.lives, 1);
    for (int i = 0; i < 3; i++) {
        world_create_default(w, id);
        fake_init_body(w->fake, body, sizeof(body));
        assert_non_null(strstr(body, "\"caBundle\":\"-----BEGIN CERTIFICATE-----\\nfor default"));
    }
    assert_int_equal(p.authorities, 1);
    world_stop_core(w);
    p.no_authority = true; /* then they are made without */
    world_start_core(w);
    world_run_until(w, &p.lives, 2);
    world_create_default(w, id);
    world_create_default(w, id);
    fake_init_body(w->fake, body, sizeof(body));
    assert_null(strstr(body, "caBundle"));
    assert_int_equal(p.authorities, 2);
    world_stop_core(w);
    proxy_stop(&p);
}

/* Those that were made while it was away. */
static void an_authority_comes_later(void **state)
{
    enum { MANY = 20 }; /* more than are given theirs at a time */
    struct world *w = *state;
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE], body[TEXT_MAX];
    unsigned before;

    with_proxy(w, NULL);
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
    assert_int_equal(p.authorities, 1);
    before = p.lives;
    proxy_stop(&p); /* nobody lacks it any more */
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

static bool everybody_has_an_authority(struct world *w)
{
    return world_query(w, "SELECT count(*) FROM sandboxes WHERE flags & 16 = 0") == 0;
}

/* cayd ended before it could be given; then each agent has it once, however often cayd is restarted. */
static void an_authority_comes_after_a_restart(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE], body[TEXT_MAX];

    with_proxy(w, NULL);
    world_create_default(w, id);
    world_create_default(w, id);
    world_stop_core(w);
    proxy_start(&p, w);
    world_start_core(w);
    run_until_inits(w, 4);
    fake_init_body(w->fake, body, sizeof(body));
    assert_string_equal(body, "{\"caBundle\":\"-----BEGIN CERTIFICATE-----\\nfor default\\n\"}");
    world_create_default(w, id); /* has it from its start */
    world_run_until_true(w, everybody_has_an_authority);
    world_stop_core(w);
    world_start_core(w);
    world_run_until(w, &p.lives, 2);
    world_run_for(w, 100);
    assert_int_equal(fake_counts(w->fake).inits, 5);
    world_stop_core(w);
    proxy_stop(&p);
}

/* What failed is not forgotten: cay-egress had none, or an agent did not take it. */
static void an_authority_is_tried_again(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204, .no_authority = true};
    char id[IDS_SANDBOX_SIZE];
    unsigned before;

    w->config.authority_again_ms = 50;
    proxy_start(&p, w);
    with_proxy(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create_default(w, id);
    before = p.authorities;
    world_run_until(w, &p.authorities, before + 2);
    fake_set(w->fake, FAKE_AGENT_STATUS, 500);
    p.no_authority = false;
    assert_false(everybody_has_an_authority(w));
    run_until_inits(w, 3); /* its start, and twice in vain */
    fake_set(w->fake, FAKE_AGENT_STATUS, 204);
    world_run_until_true(w, everybody_has_an_authority);
    before = fake_counts(w->fake).inits;
    world_run_for(w, 200);
    assert_int_equal(fake_counts(w->fake).inits, before);
    world_stop_core(w);
    proxy_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_policy_is_sent_with_the_create),
        WORLD(a_create_does_not_wait_for_it_and_a_restart_is_told_all),
        WORLD(nothing_leaves_a_sandbox_without_a_tenant),
        WORLD(an_update_is_told_when_it_is_in_force),
        WORLD(many_are_sent_in_turn_and_those_that_end_are_forgotten),
        WORLD(a_stop_answers_who_waits),
        WORLD(a_credential_is_kept_sealed_and_sent_to_those_that_name_it),
        WORLD(without_a_proxy_nothing_is_kept),
        WORLD(a_sandbox_has_credentials_of_its_own),
        WORLD(sandboxes_get_their_tenants_authority),
        WORLD(an_authority_comes_later),
        WORLD(an_authority_comes_after_a_restart),
        WORLD(an_authority_is_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
