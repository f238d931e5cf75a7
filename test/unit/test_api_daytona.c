/* Daytona's network settings: those taken, those refused, and the answers of the policy that
 * becomes of them when it is asked. */
#include "api/daytona.h"
#include "api/daytona_mount.h"
#include "api/daytona_network.h"
#include "api/e2b.h"

#include "policy/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LIST_MAX 65536

static json_t *json(const char *text)
{
    json_t *out = json_loads(text, JSON_DECODE_ANY, NULL);

    if (!out)
        fail_msg("not JSON: %s", text);
    return out;
}

/* The settings that a create's body gives. */
static json_t *made(const char *body_text)
{
    json_t *body = json(body_text), *settings = NULL;
    struct err e;

    if (daytona_network_read(body, &settings, &e) != ERR_OK)
        fail_msg("%s: %s", body_text, e.text);
    json_decref(body);
    return settings;
}

/* An update of settings ("" for none of Daytona's) as text; the caller's. */
static char *updated(const char *before_text, const char *body_text)
{
    json_t *before = *before_text ? json(before_text) : NULL, *body = json(body_text), *next = NULL;
    char *text;
    struct err e;

    if (daytona_network_update(before, body, &next, &e) != ERR_OK)
        fail_msg("%s: %s", body_text, e.text);
    text = next ? json_dumps(next, JSON_COMPACT | JSON_SORT_KEYS) : strdup("nothing");
    json_decref(before);
    json_decref(body);
    json_decref(next);
    return text;
}

/* -- what the policy says ------------------------------------------------------------------------- */

static struct policy *policy_of(const char *body)
{
    json_t *settings = made(body), *policy = daytona_network_policy(settings);
    struct policy *out = NULL;
    struct err e;

    if (policy_new(policy, &out, &e) != ERR_OK)
        fail_msg("%s: %s", body, e.text);
    json_decref(settings);
    json_decref(policy);
    return out;
}

/* May destination, an address in digits or a name, be reached? A name resolves to address then. */
static bool reaches(const struct policy *p, const char *destination, const char *address)
{
    struct policy_address a;
    char name[POLICY_NAME_MAX + 1];

    if (policy_address_parse(destination, &a) == 0)
        return policy_address(p, NULL, &a, 443).action == POLICY_ALLOW;
    assert_int_equal(policy_name_normalize(destination, name), 0);
    assert_int_equal(policy_address_parse(address, &a), 0);
    return policy_name(p, name, 443).action == POLICY_ALLOW &&
           policy_address(p, name, &a, 443).action == POLICY_ALLOW;
}

static const char networks[] = "{\"networkAllowList\":\" 208.80.154.232/32 ,192.168.1.77/16,,\"}";
static const char domains[] = "{\"domainAllowList\":\"Example.com, *.daytona.io \"}";
static const char blocked[] = "{\"networkBlockAll\":true}";
static const char everything[] = "{\"networkAllowList\":\"1.2.3.4/0\"}";
static const char nothing_said[] = "{}";

static void test_what_is_reached(void **state)
{
    static const struct {
        const char *settings, *destination, *address;
        bool reached;
    } cases[] = {
        {nothing_said, "8.8.8.8", NULL, true},
        {nothing_said, "2606:4700::1", NULL, true},
        {nothing_said, "any.example", "8.8.8.8", true},
        {nothing_said, "10.0.0.1", NULL, false},
        {nothing_said, "169.254.169.254", NULL, false},
        {blocked, "8.8.8.8", NULL, false},
        {blocked, "any.example", "8.8.8.8", false},
        {networks, "208.80.154.232", NULL, true},
        {networks, "208.80.154.233", NULL, false},
        {networks, "::ffff:208.80.154.232", NULL, true},
        {networks, "2606:4700::1", NULL, false},
        {networks, "192.168.1.1", NULL, true}, /* of 192.168.0.0/16 */
        {networks, "192.168.255.1", NULL, true},
        {networks, "192.169.0.1", NULL, false},
        {networks, "any.example", "208.80.154.232", false}, /* ranges open no names */
        {networks, "169.254.169.254", NULL, false},
        {domains, "example.com", "8.8.8.8", true},
        {domains, "EXAMPLE.com.", "8.8.8.8", true},
        {domains, "www.example.com", "8.8.8.8", false},
        {domains, "daytona.io", "8.8.8.8", true}, /* the base domain too */
        {domains, "a.daytona.io", "8.8.8.8", true},
        {domains, "a.b.daytona.io", "8.8.8.8", true},
        {domains, "notdaytona.io", "8.8.8.8", false},
        {domains, "other.example", "8.8.8.8", false},
        {domains, "8.8.8.8", NULL, false},
        {domains, "example.com", "10.0.0.1", false},
        {domains, "example.com", "169.254.169.254", false},
        {everything, "8.8.8.8", NULL, true},
        {everything, "any.example", "8.8.8.8", true},
        {everything, "169.254.169.254", NULL, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct policy *p = policy_of(cases[i].settings);

        if (reaches(p, cases[i].destination, cases[i].address) != cases[i].reached)
            fail_msg("%s: %s is%s reached", cases[i].settings, cases[i].destination,
                     cases[i].reached ? " not" : "");
        policy_free(p);
    }
}

static void test_everything_leaves_the_other_ranges(void **state)
{
    struct policy *p = policy_of("{\"networkAllowList\":\"0.0.0.0/0,10.1.0.0/16\"}");

    assert_true(reaches(p, "10.1.2.3", NULL));
    assert_false(reaches(p, "10.2.0.1", NULL));
    assert_true(reaches(p, "any.example", "8.8.8.8"));
    policy_free(p);
}

/* -- what is taken -------------------------------------------------------------------------------- */

static void test_create(void **state)
{
    static const struct {
        const char *body, *settings;
    } cases[] = {
        {"{\"env\":{},\"labels\":{}}", "{}"},
        {"{\"networkBlockAll\":false}", "{}"},
        {"{\"networkBlockAll\":null,\"networkAllowList\":null,\"domainAllowList\":null}", "{}"},
        {"{\"networkBlockAll\":true,\"networkAllowList\":\"\",\"domainAllowList\":\" , \"}",
         "{\"networkBlockAll\":true}"},
        {"{\"networkAllowList\":\" 1.2.3.0/24 \",\"domainAllowList\":\"\"}",
         "{\"networkAllowList\":\" 1.2.3.0/24 \"}"},
        {"{\"networkBlockAll\":false,\"domainAllowList\":\"a.co\"}",
         "{\"domainAllowList\":\"a.co\"}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *settings = made(cases[i].body), *wanted = json(cases[i].settings);

        if (!json_equal(settings, wanted))
            fail_msg("%s: %s", cases[i].body, json_dumps(settings, 0));
        json_decref(settings);
        json_decref(wanted);
    }
}

/* The effect of an update on what was there. */
static void test_update(void **state)
{
    static const char block[] = "{\"networkBlockAll\":true}";
    static const char cidr[] = "{\"networkAllowList\":\"1.2.3.0/24\"}";
    static const char name[] = "{\"domainAllowList\":\"a.co\"}";
    static const struct {
        const char *before, *body, *after;
    } cases[] = {
        {"{}", block, block},
        {cidr, block, block},
        {name, block, block},
        {block, "{\"networkBlockAll\":false}", "{}"},
        {cidr, "{\"networkBlockAll\":false}", "{}"},
        {name, "{\"networkBlockAll\":false}", "{}"},
        /* A list lifts the block and takes the other's place. */
        {block, cidr, cidr},
        {block, name, name},
        {name, cidr, cidr},
        {cidr, name, name},
        {block, "{\"networkBlockAll\":false,\"domainAllowList\":\"a.co\"}", name},
        /* Clearing one says nothing of the rest. */
        {cidr, "{\"networkAllowList\":\"\"}", "{}"},
        {name, "{\"domainAllowList\":\"  \"}", "{}"},
        {name, "{\"networkAllowList\":\"\"}", name},
        {cidr, "{\"domainAllowList\":\"\"}", cidr},
        {block, "{\"networkAllowList\":\"\",\"domainAllowList\":\"\"}", block},
        /* Set by another client: only what says something replaces it. */
        {"", "{\"networkAllowList\":\"\"}", "nothing"},
        {"", "{\"networkAllowList\":\"\",\"domainAllowList\":\",\"}", "nothing"},
        {"", "{\"networkBlockAll\":false}", "{}"},
        {"", block, block},
        {"", name, name},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *after = updated(cases[i].before, cases[i].body);

        if (strcmp(after, cases[i].after) != 0)
            fail_msg("%s, then %s: %s", cases[i].before, cases[i].body, after);
        free(after);
    }
}

/* -- what is refused ------------------------------------------------------------------------------ */

static void refused(bool update, const char *body_text, const char *why)
{
    json_t *body = json(body_text), *settings = NULL;
    struct err e;
    enum err_code rc = update ? daytona_network_update(NULL, body, &settings, &e)
                              : daytona_network_read(body, &settings, &e);

    if (rc != ERR_INVALID || settings)
        fail_msg("%.200s is not refused", body_text);
    if (!strstr(e.text, why))
        fail_msg("%.200s is refused with: %s", body_text, e.text);
    json_decref(body);
}

static void test_bad_networks(void **state)
{
    static const struct {
        const char *entry, *why;
    } cases[] = {
        {"example.com/24", "Invalid IP address: \"example.com\""},
        {"2001:db8::/32", "Must be a valid IPv4 address"},
        {"1.2.3/24", "Invalid IP address"},
        {"1.2.3.4.5/24", "Invalid IP address"},
        {"01.2.3.4/24", "Invalid IP address"},
        {"1.2.3.256/24", "Invalid IP address"},
        {"/24", "Invalid IP address"},
        {"1.2.3.4 5.6.7.8/24", "Invalid IP address"},
        {"1.2.3.4", "Missing CIDR prefix length"},
        {"1.2.3.4/", "Missing CIDR prefix length"},
        {"1.2.3.4/33", "Invalid CIDR prefix length"},
        {"1.2.3.4/-1", "Invalid CIDR prefix length"},
        {"1.2.3.4/8x", "Invalid CIDR prefix length"},
        {"1.2.3.4/8/8", "Invalid CIDR prefix length"},
        {"1.2.3.4/0000008", "Invalid CIDR prefix length"},
        {"1.2.3.4/99999999999999999999", "Invalid CIDR prefix length"},
    };
    char body[256];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(body, sizeof(body), "{\"networkAllowList\":\"10.0.0.0/8, %s\"}", cases[i].entry);
        refused(false, body, cases[i].why);
        refused(true, body, cases[i].why);
    }
}

static void test_bad_domains(void **state)
{
    static const char *const entries[] = {
        "localhost",       "https://a.com",    "a.com/x", "a.com:443", "a.com?q",
        "1.2.3.4",         "1.2.3.0/24",       "*",       "*.com",     "*.*.a.com",
        "a.*.com",         "*a.com",           "a..com",  ".a.com",    "a.com.",
        "-a.com",          "a-.com",           "a_b.com", "a.c",       "a.c0m",
        "b\\u00fccher.de", "example.xn--p1ai", "a b.com",
    };
    char body[512], label[70] = {0}, name[300];

    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        snprintf(body, sizeof(body), "{\"domainAllowList\":\"a.com,%s\"}", entries[i]);
        refused(false, body, "Invalid domain");
        refused(true, body, "Invalid domain");
    }
    memset(label, 'a', 64);
    snprintf(body, sizeof(body), "{\"domainAllowList\":\"%s.com\"}", label);
    refused(false, body, "Invalid domain");
    /* Four whole labels are one more than a name has room for, with a star or without. */
    label[62] = '\0';
    snprintf(name, sizeof(name), "%s.%s.%s.%s.com", label, label, label, label);
    snprintf(body, sizeof(body), "{\"domainAllowList\":\"%s\"}", name);
    refused(false, body, "Invalid domain");
    snprintf(body, sizeof(body), "{\"domainAllowList\":\"*.%s\"}", name);
    refused(false, body, "Invalid domain");
}

static void test_conflicts_and_types(void **state)
{
    static const struct {
        bool update;
        const char *body, *why;
    } cases[] = {
        {false, "{\"networkAllowList\":\"1.2.3.0/24\",\"domainAllowList\":\"a.co\"}",
         "mutually exclusive"},
        {true, "{\"networkAllowList\":\"1.2.3.0/24\",\"domainAllowList\":\"a.co\"}",
         "mutually exclusive"},
        {false, "{\"networkBlockAll\":true,\"networkAllowList\":\"1.2.3.0/24\"}",
         "cannot be combined"},
        {true, "{\"networkBlockAll\":true,\"domainAllowList\":\"a.co\"}", "cannot be combined"},
        {false, "{\"networkBlockAll\":\"true\"}", "networkBlockAll"},
        {true, "{\"networkAllowList\":[\"1.2.3.0/24\"]}", "networkAllowList"},
        {true, "{\"domainAllowList\":1}", "domainAllowList"},
        {true, "{}", "At least one of"},
        {true, "{\"networkBlockAll\":null}", "networkBlockAll must be a boolean"},
        {true, "{\"networkBlockAll\":true,\"domainAllowList\":null}",
         "domainAllowList must be a string"},
        {true, "{\"networkBlockAll\":true,\"networkDenyList\":\"1.2.3.0/24\"}", "networkDenyList"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        refused(cases[i].update, cases[i].body, cases[i].why);
}

/* A list of n entries, as a body; the caller's. */
static char *list_of(const char *field, const char *entry, size_t n)
{
    char *out = malloc(LIST_MAX);
    size_t used = (size_t)snprintf(out, LIST_MAX, "{\"%s\":\"", field);

    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, LIST_MAX - used, "%s, ,", entry);
    snprintf(out + used, LIST_MAX - used, "\"}");
    return out;
}

static void test_maxima(void **state)
{
    static const struct {
        const char *field, *entry, *why;
        size_t max;
    } cases[] = {
        {"networkAllowList", "10.0.0.0/8", "cannot contain more than 10 networks",
         DAYTONA_NETWORKS_MAX},
        {"domainAllowList", "*.a.example", "cannot contain more than 100 domains",
         DAYTONA_DOMAINS_MAX},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *body = list_of(cases[i].field, cases[i].entry, cases[i].max);

        policy_free(policy_of(body));
        free(body);
        body = list_of(cases[i].field, cases[i].entry, cases[i].max + 1);
        refused(false, body, cases[i].why);
        refused(true, body, cases[i].why);
        free(body);
        body = list_of(cases[i].field, "", DAYTONA_LIST_MAX_BYTES / 3 + 1);
        refused(false, body, cases[i].field);
        free(body);
    }
}

/* -- what is shown -------------------------------------------------------------------------------- */

static char *shown(const char *network_text, const char *policy_text)
{
    json_t *network = json(network_text), *policy = json(policy_text), *out = json_object();
    char *text;

    daytona_network_show(json_is_null(network) ? NULL : network,
                         json_is_null(policy) ? NULL : policy, out);
    text = json_dumps(out, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(network);
    json_decref(policy);
    json_decref(out);
    return text;
}

static void test_shown(void **state)
{
    static const struct {
        const char *network, *policy, *fields;
    } cases[] = {
        {"null", "null", "{\"networkBlockAll\":true}"},
        {"null", "{}", "{\"networkBlockAll\":true}"},
        {"{}", "{\"default\":\"deny\",\"rules\":[]}", "{\"networkBlockAll\":true}"},
        {"{}", "{\"rules\":[{\"action\":\"deny\",\"domains\":[\"a.co\"]}]}",
         "{\"networkBlockAll\":true}"},
        {"{}", "{\"rules\":[{\"action\":\"allow\",\"domains\":[\"a.co\"]}]}",
         "{\"networkBlockAll\":false}"},
        {"{}", "{\"presets\":[\"github\"]}", "{\"networkBlockAll\":false}"},
        {"{\"allowOut\":[\"1.2.3.4\"]}", "{\"default\":\"public\"}", "{\"networkBlockAll\":false}"},
        {"{\"daytona\":{\"domainAllowList\":\"a.co\"}}",
         "{\"rules\":[{\"action\":\"allow\",\"domains\":[\"a.co\"]}]}",
         "{\"domainAllowList\":\"a.co\",\"networkBlockAll\":false}"},
        {"{\"daytona\":{\"networkBlockAll\":true}}", "{\"default\":\"deny\"}",
         "{\"networkBlockAll\":true}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *text = shown(cases[i].network, cases[i].policy);

        assert_string_equal(text, cases[i].fields);
        free(text);
    }
}

/* Only Daytona's calls write the settings, and no part of what E2B's clients see. */
static void test_beside_e2b(void **state)
{
    json_t *network = json("{\"allowPublicTraffic\":false,\"denyOut\":[\"0.0.0.0/0\"],"
                           "\"daytona\":{\"domainAllowList\":\"a.co\"}}");
    json_t *plain = json("{\"allowPublicTraffic\":false,\"denyOut\":[\"0.0.0.0/0\"]}");
    json_t *in = json("{\"allowPublicTraffic\":false}"), *out = NULL, *seen;
    struct err e;

    assert_non_null(daytona_network_of(network));
    seen = e2b_network_shown(network);
    assert_true(json_equal(seen, plain));
    json_decref(seen);
    assert_int_equal(e2b_network_keep(network, plain, &out, &e), ERR_OK);
    assert_true(json_equal(out, plain));
    json_decref(out);
    assert_int_equal(e2b_network_ingress(network, &out, &e), ERR_OK);
    assert_true(json_equal(out, in));
    json_decref(out);
    json_decref(network);
    json_decref(plain);
    json_decref(in);
}

/* -- secrets ------------------------------------------------------------------------------------ */

/* "secrets" of a body as the variables of a sandbox with this environment, or what is wrong; the caller's. */
static char *mounted(const char *secrets, const char *env_text)
{
    json_t *body = json_pack("{s:o}", "secrets", json(secrets)), *env = json(env_text);
    json_t *read = NULL, *out = NULL;
    struct err e;
    char *text;

    if (daytona_mounted_read(body, &read, &e) == ERR_OK &&
        daytona_mounted_env(env, read, &out, &e) == ERR_OK)
        text = json_dumps(out, JSON_COMPACT | JSON_SORT_KEYS);
    else
        text = strdup(e.text);
    assert_true(json_object_size(read) <= DAYTONA_SECRETS_MAX);
    json_decref(body);
    json_decref(env);
    json_decref(read);
    json_decref(out);
    return text;
}

static void test_secrets_as_variables(void **state)
{
    static const struct {
        const char *secrets, *env, *out;
    } cases[] = {
        {"[]", "{\"A\":\"1\"}", "{\"A\":\"1\"}"},
        {"null", "{}", "{}"},
        {"[{\"K\":\"NAME\"}]", "{\"A\":\"1\"}", "{\"A\":\"1\",\"K\":\"cay-secret:NAME\"}"},
        {"[{\"K\":\"N\",\"L\":\"M\"},{},{\"O\":\"N\"}]", "{}",
         "{\"K\":\"cay-secret:N\",\"L\":\"cay-secret:M\",\"O\":\"cay-secret:N\"}"},
        {"[{\"K\":\"N\"},{\"K\":\"M\"}]", "{}", "secrets: K: comes twice"},
        {"[{\"K\":\"N\"}]", "{\"K\":\"\"}", "secrets: K: env has that variable too"},
        {"[{\"K\":1}]", "{}", "secrets: K: must be the name of a secret"},
        {"[\"K\"]", "{}", "secrets[0]: must be an object of a variable and a secret's name"},
        {"[{\"A=B\":\"N\"}]", "{}", "secrets: \"A=B\" is not a variable's name"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *text = mounted(cases[i].secrets, cases[i].env);

        assert_string_equal(text, cases[i].out);
        free(text);
    }
}

static void test_secrets_of_a_sandbox_are_bounded(void **state)
{
    json_t *many = json_object(), *body = json_pack("{s:[O]}", "secrets", many), *out = NULL;
    char variable[16];
    struct err e;

    for (unsigned i = 0; i <= DAYTONA_SECRETS_MAX; i++) {
        json_decref(out);
        out = NULL;
        (void)snprintf(variable, sizeof(variable), "K%u", i);
        json_object_set_new(many, variable, json_string("N"));
        assert_int_equal(daytona_mounted_read(body, &out, &e),
                         i < DAYTONA_SECRETS_MAX ? ERR_OK : ERR_INVALID);
    }
    assert_non_null(strstr(e.text, "at most 64"));
    json_decref(out);
    json_decref(many);
    json_decref(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_reached),
        cmocka_unit_test(test_everything_leaves_the_other_ranges),
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_bad_networks),
        cmocka_unit_test(test_bad_domains),
        cmocka_unit_test(test_conflicts_and_types),
        cmocka_unit_test(test_maxima),
        cmocka_unit_test(test_shown),
        cmocka_unit_test(test_beside_e2b),
        cmocka_unit_test(test_secrets_as_variables),
        cmocka_unit_test(test_secrets_of_a_sandbox_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
