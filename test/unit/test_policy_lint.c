/* Warnings about policies that can never have an effect, and none about those that may have one. */
#include "policy/lint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define KEY                                                                                 \
    "[{\"name\": \"K\", \"bind\": {\"domains\": [\"api.example.com\", \"*.example.org\"], " \
    "\"ports\": [443], \"methods\": [\"POST\"], \"paths\": [\"/v1*\"]}}]"
#define ALLOW(more)  "\"rules\": [{\"action\": \"allow\"" more "}]"
#define INJECT(more) "\"inject\": [{\"credential\": \"K\"" more "}]"

static const struct one {
    const char *own, *all, *tenant, *credentials;
    const char *said[3]; /* of the first warnings, all there are */
} cases[] = {
    {.own = "{}"},
    {.own = "{\"default\": \"public\"}", .all = "public"},
    {"{" ALLOW(", \"domains\": [\"a.example\"], \"addresses\": [\"8.8.8.0/24\"]") "}", "public"},
    /* a name that the credential is not bound to, beside one that it is */
    {"{\"default\": \"public\", " INJECT(", \"domains\": [\"other.com\", \"x.example.org\"]") "}",
     NULL,
     NULL,
     KEY,
     {"inject[0].domains[0]: the credential K is bound to api.example.com, *.example.org"}},
    {"{\"default\": \"public\", " INJECT(", \"domains\": [\"*.b.example.org\", \"*.com\"]") "}",
     .credentials = KEY},
    /* what else it is bound to */
    {"{\"default\": \"public\", " INJECT(
         ", \"domains\": [\"api.example.com\"], \"ports\": [80]") "}",
     NULL,
     NULL,
     KEY,
     {"inject[0].ports: the credential K is bound to other ports (443)"}},
    {"{\"default\": \"public\", " INJECT(
         ", \"domains\": [\"api.example.com\"], \"methods\": [\"GET\"], "
         "\"paths\": [\"/v2/*\"]") "}",
     NULL,
     NULL,
     KEY,
     {"inject[0].methods:", "inject[0].paths:"}},
    {"{\"default\": \"public\", " INJECT(", \"domains\": [\"any.example\"]") "}", NULL, NULL,
     "[{\"name\": \"K\", \"bind\": {\"any_domain\": true}}]"},
    /* no rule lets it out: none at all, one for other names, one for other ports, one by address */
    {"{" INJECT(", \"domains\": [\"api.example.com\"]") "}",
     NULL,
     NULL,
     KEY,
     {"inject[0].domains[0]: no rule allows these requests to api.example.com"}},
    {"{" ALLOW(", \"domains\": [\"b.example.com\"]") ", " INJECT(
         ", \"domains\": [\"api.example.com\"]") "}",
     NULL,
     NULL,
     KEY,
     {"no rule allows these requests"}},
    {"{" ALLOW(", \"domains\": [\"*.example.com\"], \"ports\": [80]") ", " INJECT(
         ", \"domains\": [\"api.example.com\"], \"ports\": [443]") "}",
     NULL,
     NULL,
     KEY,
     {"no rule allows these requests"}},
    {"{" ALLOW(", \"addresses\": [\"8.8.8.8\"]") ", " INJECT(
         ", \"domains\": [\"api.example.com\"]") "}",
     NULL,
     NULL,
     KEY,
     {"no rule allows these requests"}},
    {"{" ALLOW(", \"domains\": [\"*.example.com\"], \"ports\": [443]") ", " INJECT(
         ", \"domains\": [\"api.example.com\"]") "}",
     .credentials = KEY},
    {"{" ALLOW("") ", " INJECT(", \"domains\": [\"api.example.com\"]") "}", .credentials = KEY},
    {"{\"presets\": [\"github\"], " INJECT(", \"domains\": [\"api.github.com\"]") "}", NULL, NULL,
     "[{\"name\": \"K\", \"bind\": {\"domains\": [\"*.github.com\"]}}]"},
    /* private addresses under each ceiling; addresses never reached */
    {"{" ALLOW(", \"addresses\": [\"10.0.0.0/8\", \"fd00::1\"]") "}",
     "public",
     NULL,
     NULL,
     {"rules[0].addresses[0]: 10.0.0.0/8 is private, and the operator's ceiling \"public\"",
      "rules[0].addresses[1]: fd00::1"}},
    {"{" ALLOW(", \"addresses\": [\"10.0.0.0/8\", \"0.0.0.0/0\"]") "}", "allow"},
    {"{" ALLOW(", \"addresses\": [\"10.0.0.0/8\"]") "}",
     "allow",
     "{\"default\": \"public\"}",
     NULL,
     {"the tenant's ceiling has no rule with it"}},
    {"{" ALLOW(", \"addresses\": [\"10.0.0.0/8\"]") "}", "allow",
     "{" ALLOW(", \"addresses\": [\"10.1.0.0/16\"]") "}"},
    {"{" ALLOW(", \"addresses\": [\"169.254.169.254\"]") "}",
     "allow",
     NULL,
     NULL,
     {"is never reached"}},
    {"{\"default\": \"public\", \"reroute\": [{\"domain\": \"a.example\", \"to\": "
     "\"10.0.0.1:80\"}]}",
     "public",
     NULL,
     NULL,
     {"reroute[0].to: 10.0.0.1 is private"}},
    /* names under a ceiling */
    {"{" ALLOW(", \"domains\": [\"a.example\"]") "}",
     "deny",
     NULL,
     NULL,
     {"rules[0].domains[0]: the operator's ceiling \"deny\""}},
    {"{" ALLOW(", \"domains\": [\"a.example\", \"b.example\"]") "}",
     "public",
     "{" ALLOW(", \"domains\": [\"b.example\"]") "}",
     NULL,
     {"rules[0].domains[0]: the tenant's ceiling"}},
    /* the order */
    {"{\"rules\": [{\"action\": \"deny\"}, {\"action\": \"allow\", \"domains\": [\"a.example\"]}]}",
     NULL,
     NULL,
     NULL,
     {"rules[1]: rules[0] before it denies everything"}},
    {"{\"rules\": [{\"action\": \"deny\", \"ports\": [25]}, {\"action\": \"allow\"}]}"},
};

static struct policy *read_policy(const char *text)
{
    json_t *json = text && text[0] == '{' ? json_loads(text, 0, NULL)
                   : text                 ? json_pack("{s:s}", "default", text)
                                          : NULL;
    struct policy *p = NULL;
    struct err e = {.text = ""};

    if (!text)
        return NULL;
    assert_non_null(json);
    if (policy_new(json, &p, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.text);
    json_decref(json);
    return p;
}

static json_t *lint(const struct one *c)
{
    struct policy *own = read_policy(c->own), *all = read_policy(c->all),
                  *tenant = read_policy(c->tenant);
    json_t *credentials = c->credentials ? json_loads(c->credentials, 0, NULL) : json_array(), *out;

    assert_non_null(credentials);
    out = policy_lint(&(struct policy_lint){own, all, tenant, credentials});
    assert_non_null(out);
    json_decref(credentials);
    policy_free(own);
    policy_free(all);
    policy_free(tenant);
    return out;
}

static void each_case_is_told(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *out = lint(&cases[i]);
        size_t n = 0;

        for (; n < 3 && cases[i].said[n]; n++) {
            const char *text = json_string_value(json_array_get(out, n));

            if (!text || !strstr(text, cases[i].said[n]))
                fail_msg("%s: \"%s\" is not in \"%s\"", cases[i].own, cases[i].said[n],
                         text ? text : "");
        }
        if (json_array_size(out) != n)
            fail_msg("%s: %zu warnings, the last: %s", cases[i].own, json_array_size(out),
                     json_string_value(json_array_get(out, json_array_size(out) - 1)));
        json_decref(out);
    }
}

static void there_are_not_too_many(void **state)
{
    json_t *rule = json_pack("{s:s, s:[]}", "action", "allow", "addresses"),
           *own = json_pack("{s:[o]}", "rules", rule), *out;
    char *text;

    for (unsigned i = 0; i < POLICY_LINT_MAX + 5; i++)
        json_array_append_new(json_object_get(rule, "addresses"), json_string("127.0.0.1"));
    text = json_dumps(own, 0);
    out = lint(&(struct one){.own = text});
    assert_int_equal(json_array_size(out), POLICY_LINT_MAX);
    assert_non_null(strstr(json_string_value(json_array_get(out, POLICY_LINT_MAX - 1)), "more"));
    json_decref(out);
    json_decref(own);
    free(text);
}

#define MANY 2000u

/* A rule that allows MANY names, and a credential that is sent to the last of them so often, and
 * then to a name that no rule has. */
static json_t *lint_after(unsigned times)
{
    json_t *rule = json_pack("{s:s, s:[]}", "action", "allow", "domains"),
           *inject = json_pack("{s:s, s:[]}", "credential", "k", "domains"),
           *own = json_pack("{s:[o], s:[o]}", "rules", rule, "inject", inject), *out;
    char name[32], *text;

    for (unsigned i = 0; i <= MANY; i++) {
        (void)snprintf(name, sizeof(name), "n%u.example.com", i);
        json_array_append_new(json_object_get(rule, "domains"), json_string(name));
    }
    for (unsigned i = 0; i < times; i++)
        json_array_append_new(json_object_get(inject, "domains"), json_string(name));
    json_array_append_new(json_object_get(inject, "domains"), json_string("other.example.com"));
    text = json_dumps(own, 0);
    out = lint(&(struct one){.own = text});
    json_decref(own);
    free(text);
    return out;
}

static void comparisons_are_bounded(void **state)
{
    json_t *out = lint_after(POLICY_LINT_COMPARISONS / MANY / 2);

    assert_int_equal(json_array_size(out), 1);
    json_decref(out);
    out = lint_after(POLICY_LINT_COMPARISONS / MANY +
                     1); /* beyond what is compared: no more is found */
    assert_int_equal(json_array_size(out), 0);
    json_decref(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_case_is_told),
        cmocka_unit_test(there_are_not_too_many),
        cmocka_unit_test(comparisons_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
