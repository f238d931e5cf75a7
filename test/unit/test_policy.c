/* Policies: refusals when they are read, and their decisions. Cases of classes 1, 10, 11 and 13 of
 * the known ways around such rules. */
#include "policy/internal.h"
#include "policy/pattern.h"
#include "policy/policy.h"
#include "policy/stack.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct policy *policy(const char *text)
{
    json_error_t why;
    json_t *json = json_loads(text, 0, &why);
    struct policy *p = NULL;
    struct err e = {.text = ""};

    assert_non_null(json);
    if (policy_new(json, &p, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.text);
    json_decref(json);
    return p;
}

static struct policy_address address(const char *text)
{
    struct policy_address a;

    assert_int_equal(policy_address_parse(text, &a), 0);
    return a;
}

static enum policy_action at_name(const struct policy *p, const char *name, uint16_t port)
{
    return policy_name(p, name, port).action;
}

static enum policy_action at_address(const struct policy *p, const char *name, const char *text,
                                     uint16_t port)
{
    struct policy_address a = address(text);

    return policy_address(p, name, &a, port).action;
}

static enum policy_action at_request(const struct policy *p, const char *name, const char *method,
                                     const char *path)
{
    struct policy_address a = address("93.184.216.34");

    return policy_request(p, name, &a, 443, method, path).action;
}

/* -- reading ----------------------------------------------------------------------------------- */

static void test_bad_policies_name_the_place(void **state)
{
    static const struct {
        const char *json, *place;
    } cases[] = {
        {"[]", "the whole"},
        {"{\"rules\": [{\"action\": \"deny\"}], \"preset\": []}", "the whole"},
        {"{\"fallback\": \"deny\"}", "fallback"},
        {"{\"default\": \"none\"}", "default"},
        {"{\"default\": true}", "default"},
        {"{\"presets\": [\"nonesuch\"]}", "presets[0]"},
        {"{\"rules\": {}}", "rules"},
        {"{\"rules\": [1]}", "rules[0]"},
        {"{\"rules\": [{\"domains\": [\"a.example\"]}]}", "rules[0]"}, /* no action */
        {"{\"rules\": [{\"action\": \"permit\"}]}", "rules[0].action"},
        {"{\"rules\": [{\"action\": \"allow\", \"domain\": \"a.example\"}]}", "\"domain\""},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": []}]}", "rules[0].domains"},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": \"a.example\"}]}", "rules[0].domains"},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": [\"a.example\", \"*\"]}]}",
         "rules[0].domains[1]"},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": [\"a*.example\"]}]}",
         "rules[0].domains[0]"},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": [\"https://a.example\"]}]}",
         "rules[0].domains[0]"},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": [\"a.example:443\"]}]}",
         "rules[0].domains[0]"},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": [\"b\\u00fccher.example\"]}]}",
         "rules[0].domains[0]"},
        {"{\"rules\": [{\"action\": \"allow\", \"domains\": [\"1.2.3.4\"]}]}",
         "rules[0].domains[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"addresses\": [\"10.0.0.1/8\"]}]}",
         "rules[0].addresses[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"addresses\": [\"10.0.0.0/33\"]}]}",
         "rules[0].addresses[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"addresses\": [\"010.0.0.0/8\"]}]}",
         "rules[0].addresses[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"ports\": [0]}]}", "rules[0].ports[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"ports\": [\"90-80\"]}]}", "rules[0].ports[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"ports\": [\"80-\"]}]}", "rules[0].ports[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"ports\": [\"65536\"]}]}", "rules[0].ports[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"methods\": [\"get\"]}]}", "rules[0].methods[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"paths\": [\"v1\"]}]}", "rules[0].paths[0]"},
        {"{\"rules\": [{\"action\": \"deny\", \"paths\": [\"/a/../b\"]}]}", "rules[0].paths[0]"},
        {"{\"rules\": [{\"action\": \"allow\", \"credential\": \"K\"}]}", "rules[0]"},
        {"{\"inject\": [{\"domains\": [\"a.example\"]}]}", "inject[0]"},
        {"{\"inject\": [{\"credential\": \"K\"}]}", "inject[0]"},
        {"{\"inject\": [{\"credential\": \"K\", \"action\": \"allow\"}]}", "inject[0]"},
        {"{\"inject\": [{\"credential\": \"K\", \"domains\": [\"a.example\"], \"addresses\": "
         "[\"8.8.8.8\"]}]}",
         "inject[0]"},
        {"{\"rules\": [{\"action\": \"allow\", \"name\": \"a\\u0007b\"}]}", "rules[0].name"},
        {"{\"limits\": {\"connections\": 0}}", "limits.connections"},
        {"{\"limits\": {\"speed\": 1}}", "limits.speed"},
        {"{\"limits\": {\"bytes\": \"1\"}}", "limits.bytes"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *json = json_loads(cases[i].json, 0, NULL);
        struct policy *p = NULL;
        struct err e;

        assert_non_null(json);
        if (policy_new(json, &p, &e) != ERR_INVALID)
            fail_msg("taken: %s", cases[i].json);
        assert_null(p);
        if (!strstr(e.text, cases[i].place))
            fail_msg("%s: \"%s\" does not name %s", cases[i].json, e.text, cases[i].place);
        json_decref(json);
    }
}

static void test_too_large_is_refused_not_cut(void **state)
{
    json_t *rules = json_array(), *json = json_pack("{s:o}", "rules", rules),
           *domains = json_array();
    struct policy *p = NULL;
    struct err e;

    for (size_t i = 0; i < POLICY_RULES_MAX; i++)
        json_array_append_new(rules, json_pack("{s:s}", "action", "deny"));
    assert_int_equal(policy_new(json, &p, &e), ERR_OK);
    policy_free(p);
    json_array_append_new(rules, json_pack("{s:s}", "action", "deny"));
    assert_int_equal(policy_new(json, &p, &e), ERR_INVALID);
    json_array_clear(rules);
    for (size_t i = 0; i < POLICY_PATTERNS_MAX; i++)
        json_array_append_new(domains, json_string("a.example"));
    json_array_append_new(rules, json_pack("{s:s, s:o}", "action", "deny", "domains", domains));
    assert_int_equal(policy_new(json, &p, &e), ERR_OK);
    policy_free(p);
    json_array_append_new(domains, json_string("a.example"));
    assert_int_equal(policy_new(json, &p, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "patterns"));
    json_decref(json);
}

/* A path that is denied: as what is allowed, but without case and with a '/' more at the end. */
static bool denied_plainly(const char *pattern, const char *path)
{
    char p[8], q[8];
    size_t n = strlen(path);

    for (size_t i = 0; i <= strlen(pattern); i++)
        p[i] = (char)tolower((unsigned char)pattern[i]);
    for (size_t i = 0; i <= n; i++)
        q[i] = (char)tolower((unsigned char)path[i]);
    if (pattern_path(p, q))
        return true;
    if (n < 2 || q[n - 1] != '/')
        return false;
    q[n - 1] = '\0';
    return pattern_path(p, q);
}

/* "/" and up to four characters of those, in the order of their number. False: there are no more. */
static bool numbered(unsigned i, const char characters[static 4], char out[static 8])
{
    unsigned n = 0;

    out[n++] = '/';
    for (; i > 0 && n < 6; i = (i - 1) / 4)
        out[n++] = characters[(i - 1) % 4];
    out[n] = '\0';
    return n < 6;
}

/* Denied paths are compared in steps, cheap ones first: with the same outcome for all short patterns and paths. */
static void test_denied_paths(void **state)
{
    char pattern[8], path[8];
    unsigned denied = 0, all = 0;

    for (unsigned i = 0; numbered(i, "/aB*", pattern); i++)
        for (unsigned k = 0; numbered(k, "/abA", path); k++) {
            all++;
            denied += pattern_path_denied(pattern, path);
            if (pattern_path_denied(pattern, path) != denied_plainly(pattern, path))
                fail_msg("%s against %s", pattern, path);
        }
    assert_int_equal(all, 341 * 341);
    assert_in_range(denied, 341, all / 2);
}

/* Paths are compared with all patterns, of which those with something behind a star cost most (POLICY_STARS_MAX). */
static void test_stars_are_bounded(void **state)
{
    json_t *paths = json_array(),
           *json = json_pack("{s:[{s:s, s:o}]}", "rules", "action", "allow", "paths", paths);
    struct policy *p = NULL;
    struct err e;

    for (size_t i = 0; i < POLICY_STARS_MAX; i++) {
        json_array_append_new(paths, json_string("/a/*/b"));
        json_array_append_new(paths, json_string("/a/b*")); /* those are not counted */
        json_array_append_new(paths, json_string("/a/b"));
    }
    assert_int_equal(policy_new(json, &p, &e), ERR_OK);
    policy_free(p);
    json_array_append_new(paths, json_string("/a/*/b"));
    assert_int_equal(policy_new(json, &p, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "something follows"));
    json_decref(json);
}

/* It is read again with each change, and compared with its ceilings, on loops that all share. */
static void test_text_is_bounded(void **state)
{
    json_t *names = json_array(), *json = json_pack("{s:[{s:s, s:s, s:o}]}", "rules", "name", "api",
                                                    "action", "allow", "domains", names);
    size_t bytes = strlen("api");
    struct policy *p = NULL;
    struct err e;
    char name[65];

    for (unsigned i = 0; bytes + 64 <= POLICY_TEXT_MAX; i++, bytes += 64) {
        (void)snprintf(name, sizeof(name), "%056u.example", i);
        json_array_append_new(names, json_string(name));
    }
    assert_int_equal(policy_new(json, &p, &e), ERR_OK);
    policy_free(p);
    json_array_append_new(names, json_string(name));
    assert_int_equal(policy_new(json, &p, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "131072 bytes"));
    json_decref(json);
}

/* -- deciding ---------------------------------------------------------------------------------- */

static void test_nothing_said_is_nothing_allowed(void **state)
{
    struct policy *p = policy("{}"), *absent = NULL;

    assert_int_equal(policy_new(NULL, &absent, NULL), ERR_OK);
    assert_int_equal(at_name(p, "example.com", 443), POLICY_DENY);
    assert_int_equal(at_name(absent, "example.com", 443), POLICY_DENY);
    assert_int_equal(at_address(p, NULL, "93.184.216.34", 443), POLICY_DENY);
    policy_free(p);
    policy_free(absent);
    p = policy("{\"rules\": []}"); /* an empty allow list, too */
    assert_int_equal(at_name(p, "example.com", 443), POLICY_DENY);
    policy_free(p);
}

static void test_domains(void **state)
{
    struct policy *p = policy("{\"rules\": [{\"action\": \"allow\", \"ports\": [443], \"domains\": "
                              "[\"Allowed.Example.\", \"*.sub.example\"]}]}");
    static const struct {
        const char *name;
        enum policy_action action;
    } cases[] = {
        {"allowed.example", POLICY_ALLOW},
        {"evilallowed.example", POLICY_DENY},
        {"allowed.example.evil", POLICY_DENY},
        {"a.allowed.example", POLICY_DENY},
        {"x.sub.example", POLICY_ALLOW},
        {"x.y.sub.example", POLICY_ALLOW},
        {"sub.example", POLICY_DENY},
        {"xsub.example", POLICY_DENY},
        {"x.sub.example.evil.com", POLICY_DENY},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(at_name(p, cases[i].name, 443), cases[i].action);
    assert_int_equal(at_name(p, "allowed.example", 80), POLICY_DENY);
    /* the same address without its name */
    assert_int_equal(at_address(p, NULL, "93.184.216.34", 443), POLICY_DENY);
    assert_int_equal(at_address(p, "allowed.example", "93.184.216.34", 443), POLICY_ALLOW);
    policy_free(p);
}

static void test_first_rule_decides(void **state)
{
    struct policy *p = policy("{\"default\": \"public\", \"rules\": ["
                              "{\"action\": \"allow\", \"domains\": [\"good.bad.example\"]},"
                              "{\"action\": \"deny\", \"domains\": [\"*.bad.example\"]},"
                              "{\"action\": \"deny\", \"addresses\": [\"93.184.0.0/16\"]}]}");

    assert_int_equal(at_name(p, "good.bad.example", 443), POLICY_ALLOW);
    assert_int_equal(at_name(p, "other.bad.example", 443), POLICY_DENY);
    assert_int_equal(at_name(p, "example.com", 443), POLICY_ALLOW);
    assert_int_equal(at_address(p, "example.com", "93.184.216.34", 443), POLICY_DENY);
    assert_int_equal(at_address(p, "good.bad.example", "93.184.216.34", 443), POLICY_ALLOW);
    assert_int_equal(at_address(p, "example.com", "8.8.8.8", 443), POLICY_ALLOW);
    policy_free(p);
}

/* An address that is allowed opens no name: a name that no rule names is not even asked for. */
static void test_addresses_open_no_names(void **state)
{
    struct policy *p = policy(
        "{\"rules\": [{\"action\": \"allow\", \"addresses\": [\"8.8.8.0/24\"]}]}");

    assert_int_equal(at_name(p, "secret.dns.example", 443), POLICY_DENY);
    assert_int_equal(at_address(p, NULL, "8.8.8.8", 443), POLICY_ALLOW);
    assert_int_equal(at_address(p, NULL, "8.8.4.4", 443), POLICY_DENY);
    policy_free(p);
}

static void test_name_into_private_network(void **state)
{
    struct policy *p = policy(
        "{\"rules\": [{\"action\": \"allow\", \"domains\": [\"rebind.example\"]}]}");
    struct policy *both = policy(
        "{\"rules\": [{\"action\": \"allow\", \"domains\": [\"in.example\"], "
        "\"addresses\": [\"10.1.0.0/16\"]}]}");

    assert_int_equal(at_address(p, "rebind.example", "10.0.0.5", 80), POLICY_DENY);
    assert_int_equal(at_address(p, "rebind.example", "::ffff:192.168.1.1", 80), POLICY_DENY);
    assert_int_equal(at_address(p, "rebind.example", "8.8.8.8", 80), POLICY_ALLOW);
    assert_int_equal(at_address(both, "in.example", "10.1.2.3", 80), POLICY_ALLOW);
    assert_int_equal(at_address(both, "in.example", "10.2.2.3", 80), POLICY_DENY);
    policy_free(p);
    policy_free(both);
}

static void test_never(void **state)
{
    static const char *const never[] = {"169.254.169.254",
                                        "::ffff:169.254.169.254",
                                        "100.100.100.200",
                                        "168.63.129.16",
                                        "192.0.0.192",
                                        "fd00:ec2::254",
                                        "fd20:ce::254",
                                        "127.0.0.1",
                                        "127.9.9.9",
                                        "0.0.0.0",
                                        "0.1.2.3",
                                        "::1",
                                        "::",
                                        "fe80::1",
                                        "224.0.0.1",
                                        "255.255.255.255",
                                        "ff02::1",
                                        "64:ff9b::a9fe:a9fe",
                                        "2002:7f00:1::",
                                        "::7f00:1",
                                        "2001:0:0:0:0:0:80ff:fffe" /* Teredo client 127.0.0.1 */};
    struct policy *all = policy("{\"default\": \"allow\", \"rules\": [{\"action\": \"allow\", "
                                "\"addresses\": [\"0.0.0.0/0\", \"::/0\"]}]}");

    for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
        struct policy_address a = address(never[i]);
        struct policy_verdict v = policy_address(all, NULL, &a, 80);

        if (v.action != POLICY_DENY || v.source != POLICY_BY_NEVER)
            fail_msg("%s is reached", never[i]);
        v = policy_request(all, "x.example", &a, 80, "GET", "/");
        assert_int_equal(v.action, POLICY_DENY);
    }
    assert_int_equal(at_address(all, NULL, "10.0.0.5", 80), POLICY_ALLOW);
    assert_int_equal(at_address(all, NULL, "8.8.8.8", 80), POLICY_ALLOW);
    policy_free(all);
}

static void test_public(void **state)
{
    static const char *const not_public[] = {
        "10.0.0.1",   "172.16.0.1",        "172.31.255.255", "192.168.0.1", "100.64.0.1",
        "198.18.0.1", "192.0.2.1",         "203.0.113.9",    "240.0.0.1",   "fd00::1",
        "fec0::1",    "2002:a00:1::1",     "64:ff9b::a00:1", "2001:db8::1", "::ffff:10.0.0.1",
        "100::1",     "64:ff9b:1::8.8.8.8"};
    static const char *const is_public[] = {"8.8.8.8",         "172.32.0.1", "172.15.255.255",
                                            "100.63.0.1",      "198.20.0.1", "2606:4700::1",
                                            "64:ff9b::808:808"};
    const struct policy *p = policy_preset("public");

    for (size_t i = 0; i < ARRAY_SIZE(not_public); i++)
        if (at_address(p, "x.example", not_public[i], 443) != POLICY_DENY)
            fail_msg("%s is taken for public", not_public[i]);
    for (size_t i = 0; i < ARRAY_SIZE(is_public); i++)
        if (at_address(p, "x.example", is_public[i], 443) != POLICY_ALLOW)
            fail_msg("%s is not taken for public", is_public[i]);
}

static void test_own_addresses(void **state)
{
    struct policy_address own = address("8.8.4.4"), other = address("8.8.4.5");
    const struct policy *p = policy_preset("allow");

    assert_int_equal(policy_address(p, NULL, &own, 80).action, POLICY_ALLOW);
    assert_false(policy_never_add(&own, 128));
    assert_int_equal(policy_address(p, NULL, &own, 80).action, POLICY_DENY);
    assert_int_equal(policy_address(p, NULL, &other, 80).action, POLICY_ALLOW);
}

/* More than are kept one by one: each of them is refused all the same, and forgotten when it went. */
static void test_many_own_addresses(void **state)
{
    struct policy_address far = address("2a00::1"), near = address("93.184.216.34");
    bool widened = false;

    policy_never_clear();
    for (unsigned i = 0; i < 3 * POLICY_NEVER_OWN_MAX; i++) {
        struct policy_address a = address("11.0.0.0");

        a.in6.s6_addr[14] = (uint8_t)(i >> 8);
        a.in6.s6_addr[15] = (uint8_t)i;
        assert_int_equal(policy_never_add(&a, 128), i >= POLICY_NEVER_OWN_MAX);
        widened |= i >= POLICY_NEVER_OWN_MAX;
        assert_true(policy_address_is_never(&a));
    }
    assert_true(widened);
    for (unsigned i = 0; i < 3 * POLICY_NEVER_OWN_MAX; i++) {
        struct policy_address a = address("11.0.0.0");

        a.in6.s6_addr[14] = (uint8_t)(i >> 8);
        a.in6.s6_addr[15] = (uint8_t)i;
        assert_true(policy_address_is_never(&a));
    }
    assert_false(policy_address_is_never(&far));
    assert_false(policy_address_is_never(&near));
    assert_true(policy_never_add(&far, 128)); /* and one that is near to none */
    assert_true(policy_address_is_never(&far));
    policy_never_clear();
    assert_false(policy_address_is_never(&far));
}

static void test_requests(void **state)
{
    struct policy *p = policy(
        "{\"rules\": ["
        "{\"action\": \"deny\", \"domains\": [\"api.example\"], \"paths\": [\"/v1/admin*\"]},"
        "{\"action\": \"allow\", \"domains\": [\"api.example\"], \"methods\": [\"GET\"], "
        "\"paths\": [\"/v1/*\", \"/users/*/keys\"]},"
        "{\"action\": \"allow\", \"domains\": [\"api.example\"], \"methods\": [\"POST\"], "
        "\"paths\": [\"/v1/chat\"]}]}");
    static const struct {
        const char *method, *path;
        enum policy_action action;
    } cases[] = {
        {"GET", "/v1/", POLICY_ALLOW},
        {"GET", "/v1/a/b", POLICY_ALLOW},
        {"GET", "/v1", POLICY_DENY},
        {"get", "/v1/a", POLICY_DENY},
        {"DELETE", "/v1/a", POLICY_DENY},
        {"GET", "/v1/admin", POLICY_DENY},
        {"GET", "/v1/adm%69n", POLICY_DENY},
        {"GET", "/v1//admin", POLICY_DENY},
        {"GET", "/v1/./a", POLICY_DENY},
        {"GET", "/v1/../v2", POLICY_DENY},
        {"GET", "/v1/..;/x", POLICY_DENY},
        {"GET", "/v1/%2e%2e/x", POLICY_DENY},
        {"GET", "/v1/..%2fx", POLICY_DENY},
        {"GET", "/v1/a\\b", POLICY_DENY},
        {"GET", "/v1/a%5cb", POLICY_DENY},
        {"GET", "/v1/a%00b", POLICY_DENY},
        {"GET", "/v1/a%zz", POLICY_DENY},
        {"GET", "/v1/a%20b", POLICY_ALLOW},
        {"GET", "/v1/.well-known", POLICY_ALLOW},
        {"GET", "/v1/...", POLICY_ALLOW},
        {"GET", "/users/7/keys", POLICY_ALLOW},
        {"GET", "/users/7/8/keys", POLICY_DENY},
        {"GET", "/users/7/keys/1", POLICY_DENY},
        {"POST", "/v1/chat", POLICY_ALLOW},
        {"POST", "/v1/chat/x", POLICY_DENY},
    };

    assert_int_equal(at_name(p, "api.example", 443), POLICY_INSPECT);
    assert_int_equal(at_address(p, "api.example", "8.8.8.8", 443), POLICY_INSPECT);
    assert_int_equal(at_name(p, "other.example", 443), POLICY_DENY);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (at_request(p, "api.example", cases[i].method, cases[i].path) != cases[i].action)
            fail_msg("%s %s", cases[i].method, cases[i].path);
    policy_free(p);
}

/* The targets of a rule that denies, in other spellings that servers may take for them. */
static void test_other_spellings(void **state)
{
    struct policy *p = policy(
        "{\"default\": \"public\", \"rules\": ["
        "{\"action\": \"deny\", \"domains\": [\"api.example\"], \"paths\": [\"/v1/admin\", "
        "\"/v2/keys*\", \"/v4/*:delete\", \"/@own*\", \"/v5/x=1\", \"/v6/%2A\", \"/v7/a%20b\"]},"
        "{\"action\": \"deny\", \"domains\": [\"api.example\"], \"methods\": [\"DELETE\"]}]}");
    static const char *const denied[] = {
        "/v1/admin",   "/V1/Admin",    "/v1/admin/",      "/v1;x=1/admin",   "/v1/admin;x",
        "/v1/;/admin", "/V2/KEYS/1",   "/v1/%c0%afadmin", "/v1/%C1%81",      "/v1/x;y",
        "/v1/ADMIN/",  "/v4/x:delete", "/v4/x%3Adelete",  "/v4/x%3adelete/", "/%40own/x",
        "/v5/x%3D1",   "/v6/*",        "/v6/%2a",         "/v7/a%20b"};
    static const char *const open[] = {"/v1/admins", "/v1/admin/x", "/v1/adm",
                                       "/v3/Admin",  "/%c3%bc",     "/v4/x%3Aget",
                                       "/v6/b",      "/v6/",        "/v4/x/y:delete"};

    for (size_t i = 0; i < ARRAY_SIZE(denied); i++)
        if (at_request(p, "api.example", "GET", denied[i]) != POLICY_DENY)
            fail_msg("%s", denied[i]);
    for (size_t i = 0; i < ARRAY_SIZE(open); i++)
        if (at_request(p, "api.example", "GET", open[i]) != POLICY_ALLOW)
            fail_msg("%s", open[i]);
    assert_int_equal(at_request(p, "api.example", "delete", "/"), POLICY_DENY);
    assert_int_equal(at_request(p, "api.example", "PUT", "/"), POLICY_ALLOW);
    policy_free(p);
    p = policy("{\"rules\": [{\"action\": \"allow\", \"domains\": [\"api.example\"], \"methods\": "
               "[\"GET\"], \"paths\": [\"/v1/*\"]}]}");
    assert_int_equal(at_request(p, "api.example", "GET", "/v1/x"), POLICY_ALLOW);
    assert_int_equal(at_request(p, "api.example", "GET", "/V1/x"), POLICY_DENY); /* another path */
    assert_int_equal(at_request(p, "api.example", "GET", "/v1/x;y"), POLICY_DENY);
    assert_int_equal(at_request(p, "api.example", "get", "/v1/x"), POLICY_DENY);
    policy_free(p);
}

/* A denied range of IPv4 is denied in all that carries IPv4; an allowed one opens only itself. */
static void test_embedded_ipv4(void **state)
{
    struct policy *p = policy("{\"default\": \"allow\", \"rules\": [{\"action\": \"deny\", "
                              "\"addresses\": [\"93.184.216.0/24\"]}]}");
    static const char *const denied[] = {"93.184.216.34",
                                         "::ffff:93.184.216.34",
                                         "64:ff9b::5db8:d822",
                                         "64:ff9b:1::5db8:d822",
                                         "::5db8:d822",
                                         "::ffff:0:5db8:d822",
                                         "2002:5db8:d822::1",
                                         "2001:0:5db8:d822::1",
                                         "2001::a247:27dd",
                                         "2a00::5efe:5db8:d822",
                                         "2a00::200:5efe:5db8:d822"};
    static const char *const open[] = {"93.184.217.34", "64:ff9b::5db8:d922",
                                       "2a00::5eff:5db8:d822", "2003:5db8:d822::1"};

    for (size_t i = 0; i < ARRAY_SIZE(denied); i++)
        if (at_address(p, NULL, denied[i], 443) != POLICY_DENY)
            fail_msg("%s", denied[i]);
    for (size_t i = 0; i < ARRAY_SIZE(open); i++)
        if (at_address(p, NULL, open[i], 443) != POLICY_ALLOW)
            fail_msg("%s", open[i]);
    policy_free(p);
    p = policy("{\"rules\": [{\"action\": \"allow\", \"addresses\": [\"93.184.216.0/24\"]}]}");
    assert_int_equal(at_address(p, NULL, denied[0], 443), POLICY_ALLOW);
    for (size_t i = 2; i < ARRAY_SIZE(denied); i++)
        if (at_address(p, NULL, denied[i], 443) != POLICY_DENY)
            fail_msg("%s", denied[i]);
    policy_free(p);
}

/* A credential with ports is for these alone, and others are not read for it. */
static void test_ports_of_an_injection(void **state)
{
    struct policy *p = policy(
        "{\"default\": \"public\", \"inject\": [{\"credential\": \"K\", \"domains\": "
        "[\"api.example\"], \"ports\": [443, \"8000-8002\"]}]}");

    assert_string_equal(policy_request(p, "api.example", NULL, 443, "GET", "/").credential, "K");
    assert_string_equal(policy_request(p, "api.example", NULL, 8002, "GET", "/").credential, "K");
    assert_null(policy_request(p, "api.example", NULL, 8003, "GET", "/").credential);
    assert_int_equal(at_name(p, "api.example", 443), POLICY_INSPECT);
    assert_int_equal(at_name(p, "api.example", 8003), POLICY_ALLOW);
    policy_free(p);
}

static const char *injected(const struct policy *p, const char *name, const char *path)
{
    return policy_request(p, name, NULL, 443, "POST", path).credential;
}

static void test_injection(void **state)
{
    struct policy *p = policy(
        "{\"rules\": [{\"action\": \"allow\", \"domains\": [\"*.example\"]}], "
        "\"inject\": [{\"credential\": \"ANY\", \"domains\": [\"*.example\"]}, "
        "{\"credential\": \"LONG\", \"domains\": [\"*.api.example\"]}, "
        "{\"credential\": \"EXACT\", \"domains\": [\"v.api.example\", \"x.test\"], "
        "\"paths\": [\"/v1/*\"]}]}");

    assert_int_equal(at_name(p, "a.example", 443), POLICY_INSPECT);
    assert_int_equal(at_name(p, "x.test", 443), POLICY_DENY); /* it allows nothing */
    assert_null(injected(p, "x.test", "/v1/a"));
    assert_string_equal(injected(p, "a.example", "/"), "ANY");
    assert_string_equal(injected(p, "a.api.example", "/"), "LONG");
    assert_string_equal(injected(p, "v.api.example", "/v1/a"), "EXACT");
    assert_string_equal(injected(p, "v.api.example", "/v2"), "LONG");
    assert_string_equal(injected(p, "v.api.example", "/v1/../v2"), "LONG");
    assert_true(policy_uses_credential(p, "LONG"));
    assert_false(policy_uses_credential(p, "LON"));
    assert_string_equal(policy_credential(p, 2), "EXACT");
    assert_null(policy_credential(p, 3));
    policy_free(p);
}

/* A rule that denies some requests keeps the others readable: the connection is not just passed. */
static void test_deny_by_path_is_inspected(void **state)
{
    struct policy *p = policy("{\"default\": \"public\", \"rules\": [{\"action\": \"deny\", "
                              "\"domains\": [\"git.example\"], \"methods\": [\"POST\"]}]}");

    assert_int_equal(at_name(p, "git.example", 443), POLICY_INSPECT);
    assert_int_equal(at_name(p, "other.example", 443), POLICY_ALLOW);
    assert_int_equal(at_request(p, "git.example", "POST", "/x"), POLICY_DENY);
    assert_int_equal(at_request(p, "git.example", "GET", "/x"), POLICY_ALLOW);
    policy_free(p);
}

static void test_presets(void **state)
{
    struct policy *p = policy("{\"presets\": [\"package-registries\"]}");

    assert_int_equal(at_name(p, "pypi.org", 443), POLICY_ALLOW);
    assert_int_equal(at_name(p, "pypi.org", 22), POLICY_DENY);
    assert_int_equal(at_name(p, "evil-pypi.org", 443), POLICY_DENY);
    assert_int_equal(at_address(p, "pypi.org", "10.0.0.1", 443), POLICY_DENY);
    assert_int_equal(at_address(p, NULL, "8.8.8.8", 443), POLICY_DENY);
    policy_free(p);
    assert_null(policy_preset("nonesuch"));
    assert_int_equal(at_name(policy_preset("deny"), "pypi.org", 443), POLICY_DENY);
    policy_free((struct policy *)(uintptr_t)policy_preset("deny")); /* shared: nothing happens */
    assert_int_equal(at_name(policy_preset("deny"), "pypi.org", 443), POLICY_DENY);
}

static void test_ceiling(void **state)
{
    struct policy *own = policy("{\"default\": \"allow\"}");
    struct policy *ceiling = policy(
        "{\"rules\": [{\"action\": \"allow\", \"domains\": [\"a.example\"]}]}");
    struct policy_verdict v = policy_both(policy_name(own, "b.example", 443),
                                          policy_name(ceiling, "b.example", 443));

    assert_int_equal(v.action, POLICY_DENY);
    assert_int_equal(v.source, POLICY_BY_CEILING);
    v = policy_both(policy_name(own, "a.example", 443), policy_name(ceiling, "a.example", 443));
    assert_int_equal(v.action, POLICY_ALLOW);
    v = policy_both(policy_name(ceiling, "b.example", 443), policy_name(own, "b.example", 443));
    assert_int_equal(v.source, POLICY_BY_DEFAULT);
    policy_free(own);
    policy_free(ceiling);
}

static void test_limits(void **state)
{
    struct policy *p = policy("{\"limits\": {\"connections\": 7, \"bytes\": 5000000000}}");

    assert_int_equal(policy_limits(p)->connections, 7);
    assert_int_equal(policy_limits(p)->requests_per_second, 0);
    assert_true(policy_limits(p)->bytes == UINT64_C(5000000000));
    policy_free(p);
}

/* -- texts ------------------------------------------------------------------------------------- */

static void test_explain(void **state)
{
    struct policy *p = policy("{\"rules\": [{\"name\": \"models\", \"action\": \"allow\", "
                              "\"domains\": [\"api.example\"], \"methods\": [\"GET\"]}]}");
    struct policy_verdict v = policy_request(p, "api.example", NULL, 443, "PUT",
                                             "/x\x1b[31m\n\"<b>");
    char out[POLICY_REASON_SIZE];

    policy_explain(p, &v, "api.example", NULL, 443, "PUT", "/x\x1b[31m\n\"<b>", out);
    assert_non_null(strstr(out, "PUT /x?[31m???b? on api.example port 443: denied"));
    assert_non_null(strstr(out,
                           "by default \"deny\"; rule 0 \"models\" has this host; not this method, "
                           "only GET; allowed: api.example"));
    v = policy_request(p, "api.example", NULL, 443, "GET", "/");
    policy_explain(p, &v, "api.example", NULL, 443, "GET", "/", out);
    assert_non_null(strstr(out, "allowed, by rule 0 \"models\""));
    policy_free(p);
    /* A rule without a name has no second one in quotes. */
    p = policy("{\"rules\": [{\"action\": \"allow\", \"domains\": [\"api.example\"], "
               "\"methods\": [\"GET\"]}]}");
    v = policy_request(p, "api.example", NULL, 443, "GET", "/");
    policy_explain(p, &v, "api.example", NULL, 443, "GET", "/", out);
    assert_non_null(strstr(out, "allowed, by rule 0"));
    assert_null(strchr(strstr(out, "by rule 0"), '"'));
    v = policy_request(p, "api.example", NULL, 443, "PUT", "/");
    policy_explain(p, &v, "api.example", NULL, 443, "PUT", "/", out);
    assert_non_null(strstr(out, "; rule 0 has this host; not this method, only GET"));
    struct policy_address a = address("169.254.169.254");
    v = policy_address(p, NULL, &a, 80);
    policy_explain(p, &v, NULL, &a, 80, NULL, NULL, out);
    assert_non_null(strstr(out, "no policy opens this address"));
    policy_free(p);
    p = policy("{\"default\": \"public\"}");
    a = address("10.1.2.3");
    v = policy_address(p, "mirror.example", &a, 80);
    policy_explain(p, &v, "mirror.example", &a, 80, NULL, NULL, out);
    assert_non_null(strstr(out, "denied, by default \"public\": 10.1.2.3 is no public address, "
                                "which takes a rule with it in addresses; allowed"));
    assert_null(strstr(out, "ceiling"));
    policy_free(p);
}

static void explain_refused(const char *json, char *out)
{
    struct policy *p = policy(json);
    struct policy_verdict v = policy_name(p, "other.example", 443);

    policy_explain(p, &v, "other.example", NULL, 443, NULL, NULL, out);
    policy_free(p);
}

/* Each name once, the first four; that there are more is said. */
static void test_explain_names_what_is_allowed(void **state)
{
    char out[POLICY_REASON_SIZE];

    explain_refused("{\"rules\": ["
                    "{\"action\": \"allow\", \"domains\": [\"a.example\"], \"ports\": [443]},"
                    "{\"action\": \"allow\", \"domains\": [\"a.example\", \"b.example\"]},"
                    "{\"action\": \"deny\", \"domains\": [\"c.example\"]}]}",
                    out);
    assert_non_null(strstr(out, "; allowed: a.example, b.example"));
    assert_null(strstr(out, "b.example,"));
    assert_null(strstr(out, "others"));
    explain_refused(
        "{\"presets\": [\"github\"], \"rules\": [{\"action\": \"allow\", \"domains\": "
        "[\"a.example\", \"b.example\", \"c.example\", \"d.example\", \"e.example\"]}]}",
        out);
    assert_non_null(strstr(out, "; allowed: a.example, b.example, c.example, d.example, github and "
                                "others"));
    explain_refused("{\"rules\": [{\"action\": \"allow\", \"domains\": "
                    "[\"one-that-is-longer-than-forty-characters.example\"]}]}",
                    out);
    assert_non_null(strstr(out, "\"deny\"; other names are allowed"));
}

/* An address that is not public takes a rule and a ceiling: what lacks is said. */
static void test_explain_what_opens_a_private_address(void **state)
{
    static const char with[] = "{\"rules\": [{\"action\": \"allow\", \"addresses\": "
                               "[\"10.0.0.0/8\"]}]}";
    static const struct {
        const char *own, *limit, *said, *not_said;
    } cases[] = {
        {"{\"default\": \"public\"}", "public", "; the operator's ceiling has to open it, too",
         NULL},
        {"{\"default\": \"public\"}", "allow", "a rule with it in addresses", "ceiling"},
        {with, "public", "takes a ceiling that has it ([egress] ceiling)", "a rule with it"},
        {with, "allow", "allowed, by rule 0", "ceiling"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = policy(cases[i].own);
        const struct policy_stack stack = {.own = p, .ceilings = {policy_preset(cases[i].limit)}};
        const struct policy_target target = {
            .name = NULL, .address = address("10.1.2.3"), .port = 80};
        struct policy_verdict v = policy_stack_dial(&stack, &target);
        char out[POLICY_REASON_SIZE];

        policy_explain(v.by ? v.by : p, &v, NULL, &target.address, 80, NULL, NULL, out);
        if (!strstr(out, cases[i].said) || (cases[i].not_said && strstr(out, cases[i].not_said)))
            fail_msg("%s under %s: %s", cases[i].own, cases[i].limit, out);
        policy_free(p);
    }
}

/* The rule that almost allowed it, and what of it did not match. */
static void test_near_misses(void **state)
{
    struct policy *p = policy(
        "{\"presets\": [\"github\"], \"rules\": ["
        "{\"name\": \"no\", \"action\": \"deny\", \"domains\": [\"api.example\"], \"ports\": [9]},"
        "{\"name\": \"far\", \"action\": \"allow\", \"domains\": [\"api.example\"], \"ports\": "
        "[8000], "
        "\"paths\": [\"/x\"]},"
        "{\"name\": \"near\", \"action\": \"allow\", \"domains\": [\"*.example\"], "
        "\"ports\": [443, \"8000-8100\"], \"paths\": [\"/v1*\"]}]}");
    struct policy_address private = address("10.0.0.5");
    struct policy_verdict v = policy_name(p, "api.example", 22);
    char out[POLICY_REASON_SIZE];

    policy_explain(p, &v, "api.example", NULL, 22, NULL, NULL, out);
    assert_non_null(strstr(out, "rule 1 \"far\" has this host; not port 22, only 8000; allowed:"));
    v = policy_request(p, "api.example", NULL, 443, "GET", "/v2");
    policy_explain(p, &v, "api.example", NULL, 443, "GET", "/v2", out);
    assert_non_null(strstr(out, "rule 2 \"near\" has this host; not this path, only /v1*"));
    v = policy_request(p, "api.example", NULL, 443, "GET", "//v1/x"); /* a joined base address */
    policy_explain(p, &v, "api.example", NULL, 443, "GET", "//v1/x", out);
    assert_non_null(strstr(out, "not this path (it can be read in two ways), only /v1*"));
    v = policy_address(p, "api.example", &private, 443);
    policy_explain(p, &v, "api.example", &private, 443, NULL, NULL, out);
    assert_non_null(
        strstr(out, "its address 10.0.0.5 is private, which only a rule with addresses"));
    v = policy_name(p, "github.com", 25);
    policy_explain(p, &v, "github.com", NULL, 25, NULL, NULL, out);
    assert_non_null(strstr(out, "preset \"github\" has this host; not port 25, only"));
    v = policy_name(p, "else.test", 443);
    policy_explain(p, &v, "else.test", NULL, 443, NULL, NULL, out);
    assert_null(strstr(out, "has this host"));
    v = policy_name(p, "api.example", 9); /* a rule has said no: nothing was near */
    policy_explain(p, &v, "api.example", NULL, 9, NULL, NULL, out);
    assert_null(strstr(out, "has this host"));
    policy_free(p);
}

/* It denies nothing that a policy could allow, and says so; another policy's word holds. */
static void test_a_policy_that_only_warns(void **state)
{
    static const char rules[] =
        "{\"mode\": \"%s\", \"rules\": [{\"action\": \"deny\", \"domains\": "
        "[\"no.example\"]}, {\"action\": \"allow\", \"domains\": [\"yes.example\"]}], "
        "\"inject\": [{\"credential\": \"K\", \"domains\": [\"*.example\"]}]}";
    struct policy_address metadata = address("169.254.169.254");
    char text[512];

    for (int warns = 0; warns < 2; warns++) {
        snprintf(text, sizeof(text), rules, warns ? "warn" : "enforce");
        struct policy *p = policy(text), *ceiling = policy("{}");
        struct policy_verdict v = policy_request(p, "no.example", NULL, 443, "GET", "/");

        assert_int_equal(v.action, warns ? POLICY_ALLOW : POLICY_DENY);
        assert_int_equal(v.warned, warns);
        assert_null(v.credential);
        v = policy_name(p, "else.test", 443);
        assert_int_equal(v.action, warns ? POLICY_ALLOW : POLICY_DENY);
        assert_int_equal(policy_both(v, policy_name(ceiling, "else.test", 443)).action,
                         POLICY_DENY);
        v = policy_request(p, "yes.example", NULL, 443, "GET", "/");
        assert_false(v.warned);
        assert_string_equal(v.credential, "K");
        assert_int_equal(policy_address(p, NULL, &metadata, 80).action, POLICY_DENY);
        policy_free(p);
        policy_free(ceiling);
    }
}

static void test_names(void **state)
{
    char long_label[80], out[POLICY_NAME_MAX + 1];
    static const char *const bad[] = {
        "",        ".",        "..",         "a..b",        ".a",          "a b",     "a\tb.com",
        "a@b.com", "a\\b.com", "a/b.com",    "a:80",        "[::1]",       "1.2.3.4", "127.1",
        "0x7f.1",  "1.0x7f",   "2130706433", "xn--a%2ecom", "b\xc3\xbc.x", "a.b.."};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (policy_name_normalize(bad[i], out) == 0)
            fail_msg("\"%s\" is taken for a name", bad[i]);
    memset(long_label, 'a', 64);
    long_label[64] = '\0';
    assert_true(policy_name_normalize(long_label, out) < 0);
    long_label[63] = '\0';
    assert_int_equal(policy_name_normalize(long_label, out), 0);
    assert_int_equal(policy_name_normalize("Example.COM.", out), 0);
    assert_string_equal(out, "example.com");
    assert_int_equal(policy_name_normalize("_acme.xn--bcher-kva.example", out), 0);
}

static void test_address_texts(void **state)
{
    static const char *const bad[] = {"1.2.3",  "01.2.3.4", "1.2.3.4.", "0x7f.0.0.1", "1.2.3.4/8",
                                      "::1%lo", "[::1",     "",         "256.1.1.1",  " 1.2.3.4"};
    struct policy_address a;
    char text[INET6_ADDRSTRLEN];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_not_equal(policy_address_parse(bad[i], &a), 0);
    assert_int_equal(policy_address_parse("::ffff:8.8.8.8", &a), 0);
    policy_address_format(&a, text);
    assert_string_equal(text, "8.8.8.8");
    assert_int_equal(policy_address_parse("[2606:4700::1]", &a), 0);
    policy_address_format(&a, text);
    assert_string_equal(text, "2606:4700::1");
}

/* All that has a say, in order; the first that does not depend decides. */
static void test_matches(void **state)
{
    struct policy *p = NULL;
    struct policy_verdict m[3];
    struct policy_address private_one, metadata;
    json_t *json = json_loads(
        "{\"default\":\"deny\",\"presets\":[\"github\"],\"rules\":["
        "{\"name\":\"no "
        "admin\",\"action\":\"deny\",\"domains\":[\"a.com\"],\"paths\":[\"/admin*\"]},"
        "{\"name\":\"a\",\"action\":\"allow\",\"domains\":[\"a.com\",\"github.com\"]},"
        "{\"name\":\"office\",\"action\":\"allow\",\"addresses\":[\"10.0.0.0/8\"]}]}",
        0, NULL);
    struct err e;

    assert_int_equal(policy_new(json, &p, &e), ERR_OK);
    assert_int_equal(policy_matches(p, "a.com", NULL, 443, "GET", "/admin/x", m, 3), 3);
    assert_string_equal(m[0].name, "no admin");
    assert_int_equal(m[0].action, POLICY_DENY);
    assert_string_equal(m[1].name, "a");
    assert_int_equal(m[1].action, POLICY_ALLOW);
    assert_int_equal(m[2].source, POLICY_BY_DEFAULT);
    assert_int_equal(policy_matches(p, "a.com", NULL, 443, NULL, NULL, m, 1), 3); /* counted on */
    assert_int_equal(m[0].action, POLICY_INSPECT);
    assert_int_equal(policy_matches(p, "github.com", NULL, 443, NULL, NULL, m, 3), 2);
    assert_int_equal(m[1].source, POLICY_BY_PRESET);
    assert_int_equal(policy_address_parse("10.1.2.3", &private_one), 0);
    assert_int_equal(policy_matches(p, NULL, &private_one, 22, NULL, NULL, m, 3), 2);
    assert_string_equal(m[0].name, "office");
    assert_int_equal(policy_address_parse("169.254.169.254", &metadata), 0);
    assert_int_equal(policy_matches(p, NULL, &metadata, 80, NULL, NULL, m, 3), 1);
    assert_int_equal(m[0].source, POLICY_BY_NEVER);
    json_decref(json);
    policy_free(p);
}

static void test_plain_ranges(void **state)
{
    static const struct {
        const char *text, *plain;
    } cases[] = {
        {"10.1.2.3/8", "10.0.0.0/8"},
        {"10.1.2.3/32", "10.1.2.3/32"},
        {"10.1.2.3/0", "0.0.0.0/0"},
        {"192.168.1.0/016", "192.168.0.0/16"},
        {"2001:db8::1/32", "2001:db8::/32"},
        {"::ffff:10.1.2.3/104", "::ffff:10.0.0.0/104"},
        {"10.1.2.3", "10.1.2.3"},
        /* Not for this function to refuse. */
        {"10.1.2.3/33", "10.1.2.3/33"},
        {"10.1.2.3/", "10.1.2.3/"},
        {"10.1.2.3/8/8", "10.1.2.3/8/8"},
        {"10.1.2.3/99999999999999999999999999", "10.1.2.3/99999999999999999999999999"},
        {"x/8", "x/8"},
        {"", ""},
    };
    char plain[POLICY_RANGE_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_true(policy_range_plain(cases[i].text, plain));
        assert_string_equal(plain, cases[i].plain);
    }
    assert_false(
        policy_range_plain("aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa:aaaa/000000000000000001", plain));
}

static void test_how_it_refuses(void **state)
{
    static const struct {
        const char *text;
        bool is_good, closes;
    } cases[] = {{"{}", true, false},
                 {"{\"refusal\": \"explain\"}", true, false},
                 {"{\"refusal\": \"close\"}", true, true},
                 {"{\"refusal\": \"reset\"}", false, false},
                 {"{\"refusal\": true}", false, false}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *json = json_loads(cases[i].text, 0, NULL);
        struct policy *p = NULL;
        struct err e = {.code = ERR_OK};

        assert_int_equal(policy_new(json, &p, &e) == ERR_OK, cases[i].is_good);
        json_decref(json);
        if (p)
            assert_int_equal(policy_closes(p), cases[i].closes);
        else
            assert_non_null(strstr(e.text, "refusal: "));
        policy_free(p);
    }
    assert_false(policy_closes(policy_preset("deny")));
}

/* Of a rule with each condition: test_policy_conditions.c. */
static void test_a_policy_that_reads_requests(void **state)
{
    static const struct {
        const char *text;
        bool reads;
    } cases[] = {{"{}", false},
                 {"{\"default\": \"allow\", \"mode\": \"ask\", \"refusal\": \"close\"}", false},
                 {"{\"presets\": [\"package-registries\", \"github\"], \"mode\": \"warn\"}", false},
                 {"{\"rules\": [{\"action\": \"deny\", \"domains\": [\"a.b\"]}]}", false},
                 {"{\"rules\": [{\"action\": \"allow\"}, {\"action\": \"deny\", \"methods\": "
                  "[\"GET\"]}]}",
                  true},
                 {"{\"inject\": [{\"credential\": \"k\", \"domains\": [\"a.b\"]}]}", true}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = policy(cases[i].text);

        if (policy_reads_requests(p) != cases[i].reads)
            fail_msg("%s", cases[i].text);
        policy_free(p);
    }
    assert_false(policy_reads_requests(policy_preset("public")));
}

/* Marked is what nothing allows, and nothing else; another policy's no takes the mark away. */
static void test_a_policy_that_asks(void **state)
{
    static const char rules[] =
        "{\"mode\": \"%s\", \"rules\": [{\"action\": \"deny\", \"domains\": [\"no.example\"]},"
        " {\"action\": \"allow\", \"domains\": [\"yes.example\"]}]}";
    struct policy_address metadata;

    assert_int_equal(policy_address_parse("169.254.169.254", &metadata), 0);
    for (int asks = 0; asks < 2; asks++) {
        char text[256];
        struct policy_verdict v;
        struct policy *p = NULL;
        json_t *json;

        snprintf(text, sizeof(text), rules, asks ? "ask" : "enforce");
        json = json_loads(text, 0, NULL);
        assert_int_equal(policy_new(json, &p, NULL), ERR_OK);
        json_decref(json);
        v = policy_name(p, "other.example", 443);
        assert_int_equal(v.action, POLICY_DENY);
        assert_int_equal(v.asks, asks);
        assert_int_equal(policy_both(v, policy_name(policy_preset("public"), "x.y", 1)).asks, asks);
        assert_false(policy_both(v, policy_name(policy_preset("deny"), "x.y", 1)).asks);
        assert_false(policy_name(p, "no.example", 443).asks);
        assert_false(policy_name(p, "yes.example", 443).asks);
        assert_int_equal(policy_name(p, "yes.example", 443).action, POLICY_ALLOW);
        assert_false(policy_address(p, NULL, &metadata, 80).asks);
        policy_free(p);
    }
}

/* The meaning of a path's pattern in its shortest form: every way of giving the stars something is tried. */
static bool plain_match(const char *pattern, const char *path)
{
    if (*pattern == '\0')
        return *path == '\0';
    if (*pattern != '*')
        return *pattern == *path && plain_match(pattern + 1, path + 1);
    if (pattern[strspn(pattern, "*")] == '\0')
        return true;
    for (;; path++) {
        if (plain_match(pattern + 1, path))
            return true;
        if (*path == '\0' || *path == '/')
            return false;
    }
}

static void spell(unsigned n, const char *letters, char *out)
{
    size_t base = strlen(letters), len = 0;

    for (; n > 0; n /= (unsigned)base)
        out[len++] = letters[n % base];
    out[len] = '\0';
}

/* All patterns of up to six and all paths of up to seven letters of these. */
static void test_paths_match_as_written(void **state)
{
    char pattern[16], path[16];
    unsigned yes = 0;

    for (unsigned i = 1; i < 4096; i++) {
        spell(i, "ab*/", pattern);
        for (unsigned k = 1; k < 2187; k += 1 + i % 3) {
            bool expected;

            spell(k, "a/b", path);
            expected = plain_match(pattern, path);
            if (pattern_path(pattern, path) != expected)
                fail_msg("%s on %s", pattern, path);
            yes += expected;
        }
    }
    assert_true(yes > 10000);
}

/* A yes to what nothing allows is no yes to what a rule denies of it: the connection is read. */
static void test_a_policy_that_asks_looks(void **state)
{
    struct policy *p = policy("{\"mode\": \"ask\", \"rules\": [{\"action\": \"deny\", \"domains\": "
                              "[\"a.example\"], \"paths\": [\"/admin*\"]}]}");
    struct policy_verdict v = policy_name(p, "a.example", 443);

    assert_true(v.asks && v.inspects);
    assert_false(policy_name(p, "b.example", 443).inspects);
    v = policy_request(p, "a.example", NULL, 443, "GET", "/admin/x");
    assert_false(v.asks);
    v = policy_request(p, "a.example", NULL, 443, "GET", "/x");
    assert_true(v.asks && !v.inspects);
    policy_free(p);
}

/* A path that some servers read otherwise than others is refused where rules about paths decide. */
static void test_long_paths_and_long_forms(void **state)
{
    static const char *const bad[] = {"/%e0%80%ae./x", "/%f0%80%80%ae/x", "/.%20./x", "/..%20/x",
                                      "/%20../x",      "/%c0%ae./x",      "/%e0/x",   "/a%20",
                                      "/a%20/b",       "/%20a",           "/a%20%20"};
    static const char *const good[] = {"/a%20b", "/%e0%a4%85", "/%f0%9f%98%80", "/%e2%82%ac/a%20b"};
    char path[4200];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_true(pattern_path_is_ambiguous(bad[i]));
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_false(pattern_path_is_ambiguous(good[i]));
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[4097] = '\0';
    assert_true(pattern_path_is_ambiguous(path));
    path[4096] = '\0';
    assert_false(pattern_path_is_ambiguous(path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_policies_name_the_place),
        cmocka_unit_test(test_too_large_is_refused_not_cut),
        cmocka_unit_test(test_denied_paths),
        cmocka_unit_test(test_stars_are_bounded),
        cmocka_unit_test(test_text_is_bounded),
        cmocka_unit_test(test_nothing_said_is_nothing_allowed),
        cmocka_unit_test(test_domains),
        cmocka_unit_test(test_first_rule_decides),
        cmocka_unit_test(test_addresses_open_no_names),
        cmocka_unit_test(test_name_into_private_network),
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_public),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_injection),
        cmocka_unit_test(test_other_spellings),
        cmocka_unit_test(test_paths_match_as_written),
        cmocka_unit_test(test_long_paths_and_long_forms),
        cmocka_unit_test(test_embedded_ipv4),
        cmocka_unit_test(test_ports_of_an_injection),
        cmocka_unit_test(test_deny_by_path_is_inspected),
        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_ceiling),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_explain),
        cmocka_unit_test(test_explain_names_what_is_allowed),
        cmocka_unit_test(test_explain_what_opens_a_private_address),
        cmocka_unit_test(test_near_misses),
        cmocka_unit_test(test_a_policy_that_only_warns),
        cmocka_unit_test(test_how_it_refuses),
        cmocka_unit_test(test_a_policy_that_reads_requests),
        cmocka_unit_test(test_a_policy_that_asks),
        cmocka_unit_test(test_a_policy_that_asks_looks),
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_address_texts),
        cmocka_unit_test(test_plain_ranges),
        cmocka_unit_test(test_own_addresses),
        cmocka_unit_test(test_many_own_addresses), /* last: it forgets what was added */
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
