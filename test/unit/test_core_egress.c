/* Units of src/core: what cay-egress is told, when, and what happens while it is away. The other end is
 * a real server on the same loop. */
#include "base/err.h"
#include "base/ids.h"
#include "base/util.h"
#include "core/core.h"
#include "core/credential.h"
#include "core/egress.h"
#include "core/egress_query.h"
#include "core/renewal.h"
#include "core/sandbox.h"
#include "core_proxy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Policies that were written: in this half of a turn of the loop (its sockets, or what was deferred), in any, and in all. */
static struct {
    unsigned now, most, all;
} written;

char *__real_egress_policy_body(struct sandbox_obj *o, struct err *e);
char *__wrap_egress_policy_body(struct sandbox_obj *o, struct err *e);

char *__wrap_egress_policy_body(struct sandbox_obj *o, struct err *e)
{
    written.now++;
    written.all++;
    written.most = MAX(written.most, written.now);
    return __real_egress_policy_body(o, e);
}

static void before_sockets(uv_prepare_t *h)
{
    written.now = 0;
}

static void after_sockets(uv_check_t *h)
{
    written.now = 0;
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

    snprintf(target, sizeof(target), "/v1/sandboxes/%u/%u?tenant=%s", s->slot, s->gen, s->tenant);
    assert_string_equal(p->target, target);
    assert_string_equal(json_string_value(json_object_get(body, "id")), id);
    assert_string_equal(json_string_value(json_object_get(body, "tenant")), "default");
    assert_true(json_equal(json_object_get(body, "policy"), wanted));
    json_decref(body);
    json_decref(wanted);
}

/* Below a ceiling of the operator's; its policy has come. */
static void create_below_public(struct world *w, struct proxy *p, const struct sandbox_request *r,
                                char id[static IDS_SANDBOX_SIZE])
{
    proxy_start(p, w);
    proxy_known_to(w, "public");
    world_run_until(w, &p->lives, 1);
    world_create(w, r, id);
    world_run_until(w, &p->puts, 1);
}

static void a_policy_is_sent_with_the_create(void **state)
{
    struct world *w = *state;
    json_t *policy = json_pack("{s:s}", "default", "public");
    const struct network_fields fields = {.proxy_address = "203.0.113.7:1080", .proxy_user = "u"};
    struct network *network = network_new(&fields);
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    r.network = network;
    create_below_public(w, &p, &r, id);
    network_unref(network);
    check_told(&p, w, id, "{\"default\":\"public\"}");
    assert_non_null(strstr(p.body, "{\"address\":\"203.0.113.7:1080\",\"username\":\"u\"}"));
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

    proxy_known_to(w, NULL);
    world_create(w, &r, id); /* cay-egress is not there */
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

static json_t *long_policy(void)
{
    json_t *names = json_array();
    char name[64];

    for (unsigned i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "%016u.example.com", i);
        json_array_append_new(names, json_string(name));
    }
    return json_pack("{s:[{s:s, s:o}]}", "rules", "action", "allow", "domains", names);
}

static void long_policies_are_written_in_several_turns(void **state)
{
    const unsigned count = 12;
    struct world *w = *state;
    json_t *policy = long_policy(); /* of 31 KiB */
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];
    uv_prepare_t before;
    uv_check_t after;

    proxy_known_to(w, NULL);
    for (unsigned i = 0; i < count; i++)
        world_create(w, &r, id); /* cay-egress is not there */
    uv_prepare_init(&w->loop, &before);
    uv_prepare_start(&before, before_sockets);
    uv_check_init(&w->loop, &after);
    uv_check_start(&after, after_sockets);
    memset(&written, 0, sizeof(written));
    proxy_start(&p, w);
    world_run_until(w, &p.puts, count);
    assert_int_equal(written.all, count);
    assert_in_range(written.most, 2, 3);
    uv_close((uv_handle_t *)&before, NULL);
    uv_close((uv_handle_t *)&after, NULL);
    json_decref(policy);
    world_stop_core(w);
    proxy_stop(&p);
}

/* A store that lost a tenant while cayd was down: what its sandboxes may do is unknown. */
static void nothing_leaves_a_sandbox_without_a_tenant(void **state)
{
    struct world *w = *state;
    json_t *policy = json_pack("{s:s}", "default", "public");
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    create_below_public(w, &p, &r, id);
    assert_non_null(strstr(p.body, "\"ceilings\":[{\"default\":\"public\"}]"));
    world_query(w, "DELETE FROM api_keys");
    world_query(w, "DELETE FROM tenants");
    world_stop_core(w);
    world_start_core(w);
    world_run_until(w, &p.puts, 2);
    check_told(&p, w, id, "{\"default\":\"public\"}");
    assert_non_null(
        strstr(p.body, "\"ceilings\":[{\"default\":\"public\"},{\"default\":\"deny\"}]"));
    world_create(w, &r, id);
    world_run_until(w, &p.puts, 3);
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
    proxy_known_to(w, NULL);
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
    p.status = 409; /* it has ended, as the proxy was told first */
    d = (struct answer){0};
    set_policy(w, id, NULL, &d);
    world_run_until(w, &d.calls, 1);
    assert_int_equal(d.why.code, ERR_UNAVAILABLE);
    json_decref(policy);
    world_stop_core(w);
    proxy_stop(&p);
}

/* 503: it has the policy of before, so that this one must not be forgotten. */
static void a_policy_that_it_has_no_memory_for_is_sent_again(void **state)
{
    struct world *w = *state;
    json_t *policy = json_pack("{s:s}", "default", "public");
    struct proxy p = {.status = 204};
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];
    unsigned puts;

    proxy_start(&p, w);
    proxy_known_to(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create_default(w, id);
    world_run_until(w, &p.puts, 1);
    p.status = 503;
    set_policy(w, id, policy, &a);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    p.status = 204;
    puts = p.puts;
    world_run_until(w, &p.puts, puts + 1);
    check_told(&p, w, id, "{\"default\":\"public\"}");
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

    proxy_known_to(w, NULL);
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

/* Before, its turn in the queue went by, and with it the answer to whom it was owed. */
static void one_that_is_not_to_be_told_is_answered(void **state)
{
    struct world *w = *state;
    struct proxy p = {.status = 204};
    struct answer a = {0}, b = {0};
    struct sandbox_obj *o;
    char id[IDS_SANDBOX_SIZE];

    proxy_start(&p, w);
    proxy_known_to(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create_default(w, id);
    world_run_until(w, &p.puts, 1);
    o = sandbox_get(w->core, NULL, id);
    o->known_to_privd = false;
    set_policy(w, id, NULL, &a);
    world_run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_int_equal(p.puts, 1);
    o->known_to_privd = true;
    set_policy(w, id, NULL, &b); /* the control */
    world_run_until(w, &b.calls, 1);
    assert_true(b.good);
    assert_int_equal(p.puts, 2);
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
    proxy_known_to(w, NULL);
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

static struct err set_kind(struct world *w, const char *name, const char *kind, const char *value)
{
    json_t *bind = json_pack("{s:s, s:[s]}", "kind", kind, "domains", "api.example.com");
    json_t *text = json_string(value);
    struct answer a = {0};

    core_credential_set(w->core, "default",
                        &(struct core_credential_value){.name = name, .bind = bind, .value = text},
                        world_on_answer, &a);
    assert_int_equal(a.calls, 0);
    world_run_until(w, &a.calls, 1);
    json_decref(bind);
    json_decref(text);
    return a.why;
}

static struct err set_credential(struct world *w, const char *name, const char *value)
{
    return set_kind(w, name, "bearer", value);
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
    proxy_known_to(w, NULL);
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
    assert_int_equal(set_credential(w, "own-0", "whatever").code, ERR_INVALID);
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

/* How often text stands in what was written to standard error since begin (a file of its own). */
static unsigned count_in(FILE *f, const char *text)
{
    char line[1024];
    unsigned n = 0;

    rewind(f);
    while (fgets(line, sizeof(line), f))
        n += strstr(line, text) != NULL;
    return n;
}

/* Asks 100 times each, as sandboxes in a loop do; how many lines of the log say that nothing is renewed. */
static unsigned lines_of_renewals(struct world *w, const char *id, const char *const *names,
                                  size_t n)
{
    const struct sandbox *s = core_sandbox_find(w->core, NULL, id);
    FILE *f = tmpfile();
    int before = dup(STDERR_FILENO);
    unsigned lines;

    assert_non_null(f);
    assert_return_code(dup2(fileno(f), STDERR_FILENO), 0);
    for (unsigned i = 0; i < 100; i++)
        for (size_t k = 0; k < n; k++)
            renewals_wanted(w->core, s, names[k], 0, false);
    assert_return_code(dup2(before, STDERR_FILENO), 0);
    close(before);
    lines = count_in(f, "/egress-0.ctl) is not up: OAuth credentials of its share are not renewed");
    assert_int_equal(count_in(f, "FIRST of tenant default among them"), lines);
    fclose(f);
    return lines;
}

/* Before, its share of the credentials stood still without a line. */
static void a_process_that_is_away_renews_nothing_and_the_log_says_so(void **state)
{
    static const char *const names[] = {"FIRST", "SECOND", "THIRD"};
    struct world *w = *state;
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    proxy_start(&p, w);
    proxy_known_to(w, NULL);
    world_run_until(w, &p.lives, 1);
    world_create_default(w, id);
    world_run_until(w, &p.puts, 1);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(set_kind(w, names[i], "oauth2", "a-value").code, ERR_OK);
    assert_int_equal(lines_of_renewals(w, id, &names[2], 1), 0); /* the control: it is up */
    world_run_until(w, &p.renewals, 1);
    proxy_stop(&p);
    while (egress_any_path(w->core))
        world_run_for(w, 5);
    assert_int_equal(lines_of_renewals(w, id, names, 2), 1); /* of 200 */
    assert_int_equal(lines_of_renewals(w, id, names, 2), 0);
    world_stop_core(w);
}

static void without_a_proxy_nothing_is_kept(void **state)
{
    struct world *w = *state;

    proxy_known_to(w, NULL);
    assert_int_equal(set_credential(w, "KEY", "first-value").code, ERR_UNAVAILABLE);
    assert_int_equal(world_query(w, "SELECT count(*) FROM credentials"), 0);
}

static void a_sandbox_has_credentials_of_its_own(void **state)
{
    struct world *w = *state;
    json_t *policy = injecting("own-0"), *own;
    struct sandbox_request r = with_policy(policy);
    struct proxy p = {.status = 204};
    char id[IDS_SANDBOX_SIZE];

    own = json_pack("[{s:s, s:{}, s:s}]", "name", "own-0", "bind", "sealed", "MINE");
    r.credentials = own;
    proxy_start(&p, w);
    proxy_known_to(w, NULL);
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

struct asked {
    unsigned answers;
    enum err_code code;
};

static void on_text(void *arg, const char *json, size_t len, const struct err *why)
{
    struct asked *a = arg;

    a->answers++;
    a->code = why ? why->code : ERR_OK;
}

/* A tenant has two questions about the log at a time, and another's are not among them. When its caller goes
 * a question ends at once, in cay-egress too, and its place is free; at a stop all are answered. */
static void a_question_about_the_log_ends_with_its_caller(void **state)
{
    const struct core_audit_filter f = {.limit = 10};
    struct asked first = {0}, others = {0}, refused = {0}, last = {0};
    atomic_bool gone = false, stays = false;
    struct world *w = *state;
    struct proxy p = {.status = 204};

    proxy_known_to(w, NULL);
    proxy_start(&p, w);
    core_audit(w->core, "default", &f, &gone, on_text, &first);
    core_audit(w->core, "default", &f, &stays, on_text, &others);
    core_audit(w->core, "default", &f, &stays, on_text, &refused);
    core_audit(w->core, "another", &f, &stays, on_text, &others);
    world_run_until(w, &p.audits, 3);
    world_run_until(w, &refused.answers, 1);
    assert_int_equal(refused.code, ERR_EXHAUSTED);
    assert_int_equal(first.answers, 0);
    atomic_store(&gone, true);
    world_run_until(w, &first.answers, 1);
    assert_int_equal(first.code, ERR_CANCELED);
    world_run_until(w, &p.audits_left, 1);
    core_audit(w->core, "default", &f, &stays, on_text, &last);
    world_run_until(w, &p.audits, 4);
    world_stop_core(w);
    assert_int_equal(others.answers, 2);
    assert_int_equal(last.answers, 1);
    proxy_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(a_policy_is_sent_with_the_create),
        WORLD(a_create_does_not_wait_for_it_and_a_restart_is_told_all),
        WORLD(long_policies_are_written_in_several_turns),
        WORLD(nothing_leaves_a_sandbox_without_a_tenant),
        WORLD(an_update_is_told_when_it_is_in_force),
        WORLD(a_policy_that_it_has_no_memory_for_is_sent_again),
        WORLD(many_are_sent_in_turn_and_those_that_end_are_forgotten),
        WORLD(one_that_is_not_to_be_told_is_answered),
        WORLD(a_stop_answers_who_waits),
        WORLD(a_credential_is_kept_sealed_and_sent_to_those_that_name_it),
        WORLD(a_process_that_is_away_renews_nothing_and_the_log_says_so),
        WORLD(without_a_proxy_nothing_is_kept),
        WORLD(a_sandbox_has_credentials_of_its_own),
        WORLD(a_question_about_the_log_ends_with_its_caller),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
