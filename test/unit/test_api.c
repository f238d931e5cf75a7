#include "api/e2b.h"
#include "base/ids.h"

#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_route_match(void **state)
{
    char params[API_PARAMS_MAX][API_PARAM_SIZE];
    char path[API_PARAM_SIZE + 32];

    assert_true(api_route_match("/sandboxes", "/sandboxes", params));
    assert_false(api_route_match("/sandboxes", "/sandboxes/", params));
    assert_false(api_route_match("/sandboxes", "/sandboxe", params));
    assert_true(api_route_match("/sandboxes/{id}", "/sandboxes/iabc", params));
    assert_string_equal(params[0], "iabc");
    assert_false(api_route_match("/sandboxes/{id}", "/sandboxes/", params));
    assert_false(api_route_match("/sandboxes/{id}", "/sandboxes/a/b", params));
    assert_true(api_route_match("/t/{a}/builds/{b}/status", "/t/x%2Fy/builds/z/status", params));
    assert_string_equal(params[0], "x/y");
    assert_string_equal(params[1], "z");
    assert_true(api_route_match("/api/*", "/api/", params));
    assert_true(api_route_match("/api/*", "/api/a/b%zz", params));
    assert_false(api_route_match("/api/*", "/api", params));
    assert_false(api_route_match("/api/*", "/apis/a", params));
    /* Malformed, or longer than any id. */
    assert_false(api_route_match("/t/{a}", "/t/%zz", params));
    assert_false(api_route_match("/t/{a}", "/t/%00", params));
    memset(path, 'a', sizeof(path));
    memcpy(path, "/t/", 3);
    path[sizeof(path) - 1] = '\0';
    assert_false(api_route_match("/t/{a}", path, params));
}

static void test_page_token(void **state)
{
    char id[IDS_SANDBOX_SIZE], back[IDS_SANDBOX_SIZE], token[E2B_PAGE_TOKEN_SIZE];
    int64_t ms = 0;

    ids_sandbox(id);
    e2b_page_token_make(1790000000123, id, false, token);
    assert_int_equal(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                   "0123456789-_="),
                     strlen(token));
    assert_int_equal(e2b_page_token_parse(token, false, &ms, back), 0);
    assert_int_equal(ms, 1790000000123);
    assert_string_equal(back, id);
    /* Of the other order, cut, changed, or made up. */
    assert_true(e2b_page_token_parse(token, true, &ms, back) < 0);
    token[8] = '!';
    assert_true(e2b_page_token_parse(token, false, &ms, back) < 0);
    assert_true(e2b_page_token_parse("", false, &ms, back) < 0);
    assert_true(e2b_page_token_parse("AAAA", false, &ms, back) < 0);
    assert_true(e2b_page_token_parse("MTIz", false, &ms, back) < 0);
}

static void test_metadata_filter(void **state)
{
    struct err e;
    /* The text that JavaScript's SDK sends for {"a b": "c&d"}, after the query was decoded once. */
    json_t *f = e2b_metadata_filter("a%2520b%3Dc%2526d", &e);

    assert_non_null(f);
    assert_int_equal(json_object_size(f), 1);
    assert_string_equal(json_string_value(json_object_get(f, "a b")), "c&d");
    json_decref(f);
    f = e2b_metadata_filter("user=abc&app=prod&empty=", &e);
    assert_int_equal(json_object_size(f), 3);
    assert_string_equal(json_string_value(json_object_get(f, "app")), "prod");
    assert_string_equal(json_string_value(json_object_get(f, "empty")), "");
    json_decref(f);
    assert_null(e2b_metadata_filter("a%zz", &e));
    assert_int_equal(e.code, ERR_INVALID);
    assert_null(e2b_metadata_filter("a%25zz=b", &e));
}

/* -- the network object ------------------------------------------------------------------------- */

static enum err_code check(const char *text, struct err *e)
{
    json_t *n = json_loads(text, 0, NULL);
    enum err_code rc;

    assert_non_null(n);
    rc = e2b_network_check(n, e);
    json_decref(n);
    return rc;
}

static void test_network_check(void **state)
{
    static const char *const good[] = {
        "{}",
        "{\"allowOut\":[\"1.1.1.1\",\"10.0.0.0/8\",\"2001:db8::/32\"]}",
        "{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"example.com\",\"*.example.com\"]}",
        "{\"allowPublicTraffic\":false,\"maskRequestHost\":\"app.local:${PORT}\"}",
        "{\"unknown\":1,\"rules\":{}}",
        "{\"egressProxy\":{\"address\":\"1.1.1.1:1080\",\"username\":\"u\"}}",
        "{\"rules\":{\"a.com\":[{\"transform\":{\"headers\":{\"X\":\"y\"}}}],\"*.b.com\":[]}}",
    };
    static const char *const bad[] = {
        "{\"denyOut\":[\"example.com\"]}",
        "{\"denyOut\":[\"1.2.3.4/33\"]}",
        "{\"denyOut\":[\"1.2.3.4/\"]}",
        "{\"denyOut\":\"1.2.3.4\"}",
        "{\"denyOut\":[1]}",
        "{\"allowOut\":[\"example.com\"]}",
        "{\"allowOut\":[\"exa mple.com\"],\"denyOut\":[\"0.0.0.0/0\"]}",
        "{\"allowOut\":[\"..\"],\"denyOut\":[\"0.0.0.0/0\"]}",
        "{\"allowPublicTraffic\":\"no\"}",
        "{\"maskRequestHost\":\"a\\r\\nb\"}",
        "{\"maskRequestHost\":\"\"}",
        "{\"egressProxy\":{\"address\":\"p:1080\"}}",
        "{\"egressProxy\":{\"address\":\"p\"}}",
        "{\"egressProxy\":{\"address\":\"1.1.1.1:1080x\"}}",
        "{\"egressProxy\":{\"address\":\"10.0.0.1:1080\"}}",
        "{\"egressProxy\":{\"address\":\"1.1.1.1:1080\",\"password\":\"secret\"}}",
        "{\"rules\":{\"a.com\":[{\"transform\":{\"headers\":{\"X\":\"***\"}}}]}}",
        "{\"rules\":{\"*\":[{\"transform\":{\"headers\":{\"X\":\"y\"}}}]}}",
        "{\"rules\":{\"a.com\":{}}}",
    };
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_int_equal(check(good[i], &e), ERR_OK);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(check(bad[i], &e), ERR_INVALID);
        assert_true(strlen(e.text) > 10);
    }
}

static void test_network_kept_and_shown(void **state)
{
    json_t *body = json_loads("{\"allow_internet_access\":false}", 0, NULL);
    json_t *network = json_loads("{\"denyOut\":[\"1.1.1.1\"],\"allowPublicTraffic\":false}", 0,
                                 NULL);
    json_t *update = json_loads("{\"allowOut\":[\"8.8.8.8\"]}", 0, NULL);
    json_t *kept = NULL, *shown, *next = NULL;
    struct err e;

    assert_int_equal(e2b_network_keep(NULL, update, &kept, &e), ERR_OK);
    assert_null(kept);
    assert_int_equal(e2b_network_keep(NULL, body, &kept, &e), ERR_OK);
    assert_true(json_is_false(json_object_get(kept, E2B_INTERNET_KEY)));
    assert_null(e2b_network_shown(kept));
    json_decref(kept);
    assert_int_equal(e2b_network_keep(network, body, &kept, &e), ERR_OK);
    shown = e2b_network_shown(kept);
    assert_true(json_equal(shown, network));
    /* An update clears what it does not name, and leaves the way in alone. */
    assert_int_equal(e2b_network_update(kept, update, &next, &e), ERR_OK);
    assert_null(json_object_get(next, "denyOut"));
    assert_null(json_object_get(next, E2B_INTERNET_KEY));
    assert_non_null(json_object_get(next, "allowOut"));
    assert_true(json_is_false(json_object_get(next, "allowPublicTraffic")));
    json_decref(next);
    json_decref(shown);
    json_decref(kept);
    json_decref(update);
    json_decref(network);
    json_decref(body);
}

/* network as JSON ("" for none), the policy it is. */
static void test_network_as_policy(void **state)
{
    static const struct {
        const char *network;
        bool internet;
        const char *policy;
    } cases[] = {
        {"null", true, "{\"default\":\"public\",\"rules\":[]}"},
        {"null", false, "{\"default\":\"deny\",\"rules\":[],\"refusal\":\"close\"}"},
        {"{\"denyOut\":[\"8.8.8.8\",\"10.1.2.3/8\"]}", true,
         "{\"default\":\"public\",\"rules\":[{\"name\":\"denyOut\",\"action\":\"deny\","
         "\"addresses\":[\"8.8.8.8\",\"10.0.0.0/8\"]}],\"refusal\":\"close\"}"},
        {"{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"1.1.1.1\",\"*.a.example\",\"b.example\"]}",
         true,
         "{\"default\":\"deny\",\"rules\":[{\"name\":\"allowOut\",\"action\":\"allow\",\"domains\":"
         "[\"*.a.example\",\"b.example\"],\"addresses\":[\"1.1.1.1\"]}]}"},
        {"{\"denyOut\":[\"1.1.1.1\"],\"allowOut\":[\"0.0.0.0/0\"]}", true,
         "{\"default\":\"public\",\"rules\":[]}"},
        {"{\"denyOut\":[\"2001:db8::1/32\"],\"allowOut\":[\"2001:db8:1::/48\"]}", false,
         "{\"default\":\"deny\",\"rules\":[{\"name\":\"allowOut\",\"action\":\"allow\","
         "\"addresses\":"
         "[\"2001:db8:1::/48\"]},{\"name\":\"denyOut\",\"action\":\"deny\",\"addresses\":"
         "[\"2001:db8::/32\"]}],\"refusal\":\"close\"}"},
        {"{\"denyOut\":[\"0.0.0.0/0\"],\"allowOut\":[\"1.1.1.1\"]}", true,
         "{\"default\":\"deny\",\"rules\":[{\"name\":\"allowOut\",\"action\":\"allow\","
         "\"addresses\":"
         "[\"1.1.1.1\"]}],\"refusal\":\"close\"}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *network = json_loads(cases[i].network, JSON_DECODE_ANY, NULL);
        json_t *wanted = json_loads(cases[i].policy, 0, NULL);
        json_t *policy = e2b_policy(json_is_null(network) ? NULL : network, cases[i].internet);
        struct policy *read = NULL;
        struct err e;

        if (!json_equal(policy, wanted))
            fail_msg("%s: %s", cases[i].network, json_dumps(policy, 0));
        assert_int_equal(policy_new(policy, &read, &e), ERR_OK);
        policy_free(read);
        json_decref(network);
        json_decref(wanted);
        json_decref(policy);
    }
}

/* Values of headers go to be sealed and nowhere else. */
static void test_network_rules(void **state)
{
    json_t *network = json_loads(
        "{\"rules\":{\"a.com\":[{\"transform\":{\"headers\":{\"X-Key\":\"v1\"}}}],\"b.com\":[],"
        "\"*.c.com\":[{\"transform\":{\"headers\":{\"Authorization\":\"Bearer "
        "${e2b.secrets.TOKEN}\""
        "}}}]}}",
        0, NULL);
    json_t *policy = NULL, *secrets = NULL, *wanted;
    struct network *setting = NULL;
    struct policy *read = NULL;
    char *text;
    struct err e;

    assert_int_equal(e2b_network_check(network, &e), ERR_OK);
    assert_int_equal(e2b_network_split(network, true, &setting, &policy, &secrets, &e), ERR_OK);
    wanted = json_loads("[{\"name\":\"e2b-rule-0\",\"bind\":{\"kind\":\"headers\",\"domains\":"
                        "[\"a.com\"]},\"value\":{\"X-Key\":\"v1\"}},{\"name\":\"e2b-rule-2\","
                        "\"bind\":{\"kind\":\"headers\",\"domains\":[\"*.c.com\"]},\"value\":"
                        "{\"Authorization\":\"Bearer ${e2b.secrets.TOKEN}\"}}]",
                        0, NULL);
    assert_true(json_equal(secrets, wanted));
    assert_int_equal(policy_new(policy, &read, &e), ERR_OK);
    assert_string_equal(policy_credential(read, 0), "e2b-rule-0");
    assert_string_equal(policy_credential(read, 1), "e2b-rule-2");
    assert_string_equal(policy_credential(read, 2), "TOKEN");
    assert_string_equal(policy_request(read, "x.c.com", NULL, 443, "GET", "/").credential,
                        "e2b-rule-2");
    text = json_dumps(network_shown(setting), JSON_COMPACT);
    assert_null(strstr(text, "v1"));
    assert_null(strstr(text, "Bearer"));
    assert_non_null(strstr(text, "{\"X-Key\":\"***\"}"));
    free(text);
    policy_free(read);
    json_decref(wanted);
    json_decref(policy);
    json_decref(secrets);
    network_unref(setting);
    json_decref(network);
}

/* The setting that core reads of a network object, and of its absence. */
static void test_network_setting(void **state)
{
    json_t *full = json_loads("{\"allowPublicTraffic\":false,\"maskRequestHost\":\"a:${PORT}\","
                              "\"egressProxy\":{\"address\":\"1.1.1.1:1\",\"username\":\"u\"}}",
                              0, NULL);
    json_t *plain = json_loads("{\"allowPublicTraffic\":true,\"egressProxy\":null}", 0, NULL);
    struct network *n = NULL;
    struct err e;

    assert_int_equal(e2b_network_setting(NULL, &n, &e), ERR_OK);
    assert_null(n);
    assert_int_equal(e2b_network_setting(full, &n, &e), ERR_OK);
    assert_true(n->f.private_ports && network_shown(n) == full);
    assert_string_equal(n->f.masked_host, "a:${PORT}");
    assert_string_equal(n->f.proxy_address, "1.1.1.1:1");
    assert_string_equal(n->f.proxy_user, "u");
    network_unref(n);
    assert_int_equal(e2b_network_setting(plain, &n, &e), ERR_OK);
    assert_false(n->f.private_ports || n->f.masked_host || n->f.proxy_address || n->f.proxy_user);
    network_unref(n);
    json_decref(full);
    json_decref(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route_match),
        cmocka_unit_test(test_page_token),
        cmocka_unit_test(test_metadata_filter),
        cmocka_unit_test(test_network_check),
        cmocka_unit_test(test_network_kept_and_shown),
        cmocka_unit_test(test_network_as_policy),
        cmocka_unit_test(test_network_rules),
        cmocka_unit_test(test_network_setting),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
