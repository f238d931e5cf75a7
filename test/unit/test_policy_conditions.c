/* Each condition of a rule, against each of its readers. The conditions come from the table itself: one that has no sample
 * here fails, and so does one that a reader forgets. That the table has all functions of each condition is the compiler's
 * to say (test/scenario/test_policy_conditions.py). */
#include "policy/internal.h"
#include "policy/pattern.h"
#include "policy/preset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The question; the first has everything that the samples below ask for. */
struct question {
    const char *name, *address;
    uint16_t port;
    const char *method, *path;
};

static const struct question met = {"api.example.com", "93.184.216.34", 443, "GET", "/v1/x"};

static const struct sample {
    const char *key, *list;
    struct question missed; /* the same question but for this condition */
    const char *said;       /* of a near miss; NULL: of destinations there is none */
    const char *offered;    /* in words */
} samples[] = {
    {"domains",
     "[\"api.example.com\"]",
     {"other.example.com", "93.184.216.34", 443, "GET", "/v1/x"},
     NULL,
     "api.example.com"},
    {"addresses",
     "[\"93.184.216.0/24\"]",
     {"api.example.com", "93.184.217.34", 443, "GET", "/v1/x"},
     NULL,
     "93.184.216.0/24"},
    {"ports",
     "[443, \"8000-8100\"]",
     {"api.example.com", "93.184.216.34", 7999, "GET", "/v1/x"},
     "; not port 7999, only 443, 8000-8100",
     "; ports 443, 8000-8100"},
    {"methods",
     "[\"GET\"]",
     {"api.example.com", "93.184.216.34", 443, "POST", "/v1/x"},
     "; not this method, only GET",
     "; methods GET"},
    {"paths",
     "[\"/v1*\"]",
     {"api.example.com", "93.184.216.34", 443, "GET", "/v2/x"},
     "; not this path, only /v1*",
     "; paths /v1*"},
};

static const struct sample *sample_of(const struct condition *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(samples); i++)
        if (strcmp(samples[i].key, c->key) == 0)
            return &samples[i];
    fail_msg("no sample of \"%s\": every condition is tested with every reader", c->key);
    return NULL;
}

PRINTF(1, 2) static struct policy *policy(const char *fmt, ...)
{
    char text[512];
    struct err e = {.text = ""};
    struct policy *p = NULL;
    json_t *json;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json = json_loads(text, 0, NULL);
    assert_non_null(json);
    if (policy_new(json, &p, &e) != ERR_OK)
        fail_msg("%s: %s", text, e.text);
    json_decref(json);
    return p;
}

static struct policy_verdict ask(const struct policy *p, const struct question *q)
{
    struct policy_address a;

    assert_int_equal(policy_address_parse(q->address, &a), 0);
    return policy_request(p, q->name, &a, q->port, q->method, q->path);
}

static void check(const struct policy *p, const struct sample *s, enum policy_action when_met,
                  enum policy_action when_missed, const char *reader)
{
    if (ask(p, &met).action != when_met)
        fail_msg("%s: %s: what it asks for is there, and it does not match", s->key, reader);
    if (ask(p, &s->missed).action != when_missed)
        fail_msg("%s: %s: what it asks for is not there, and it matches", s->key, reader);
}

static void test_reading(void **state)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        static const char *const wrong[] = {"[]", "[null]", "[{}]", "\"x\"", "[\"\"]"};

        for (size_t w = 0; w < ARRAY_SIZE(wrong); w++) {
            char text[160];
            struct policy *p = NULL;
            struct err e;
            json_t *json;

            (void)snprintf(text, sizeof(text), "{\"rules\": [{\"action\": \"allow\", \"%s\": %s}]}",
                           s->key, wrong[w]);
            json = json_loads(text, 0, NULL);
            assert_int_equal(policy_new(json, &p, &e), ERR_INVALID);
            assert_non_null(strstr(e.text, s->key));
            json_decref(json);
        }
    }
}

static void test_rules(void **state)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        struct policy *allow = policy("{\"rules\": [{\"action\": \"allow\", \"%s\": %s}]}", s->key,
                                      s->list),
                      *deny = policy("{\"default\": \"allow\", \"rules\": [{\"action\": \"deny\", "
                                     "\"%s\": %s}]}",
                                     s->key, s->list);

        check(allow, s, POLICY_ALLOW, POLICY_DENY, "allow");
        check(deny, s, POLICY_DENY, POLICY_ALLOW, "deny");
        policy_free(allow);
        policy_free(deny);
    }
}

/* Before a request is known neither is more allowed than after it, nor is it denied for good. */
static void test_before_the_request(void **state)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        struct policy *p = policy(
            "{\"rules\": [{\"action\": \"allow\", \"domains\": "
            "[\"*.example.com\"]%s%s%s%s}]}",
            i == CONDITION_DOMAINS ? "" : ", \"", i == CONDITION_DOMAINS ? "" : s->key,
            i == CONDITION_DOMAINS ? "" : "\": ", i == CONDITION_DOMAINS ? "" : s->list);

        assert_int_equal(policy_name(p, s->missed.name, met.port).action,
                         conditions[i].stage == CONDITION_REQUEST ? POLICY_INSPECT : POLICY_ALLOW);
        assert_int_equal(policy_narrows_names(p), conditions[i].stage == CONDITION_REQUEST);
        assert_int_equal(policy_reads_requests(p), conditions[i].stage == CONDITION_REQUEST);
        policy_free(p);
    }
}

static void test_ceilings(void **state)
{
    const struct policy *own = policy_preset("allow");

    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        struct policy *limit = policy("{\"rules\": [{\"action\": \"allow\", \"%s\": %s}]}", s->key,
                                      s->list);

        assert_int_equal(policy_both(ask(own, &met), ask(limit, &met)).action, POLICY_ALLOW);
        assert_int_equal(policy_both(ask(own, &s->missed), ask(limit, &s->missed)).action,
                         POLICY_DENY);
        policy_free(limit);
    }
}

static void test_injections(void **state)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        char more[160] = "";
        struct policy *p = NULL;
        struct policy_verdict v;

        if (!conditions[i].in_injections)
            continue;
        if (i != CONDITION_DOMAINS)
            (void)snprintf(more, sizeof(more), ", \"%s\": %s", s->key, s->list);
        p = policy("{\"default\": \"allow\", \"inject\": [{\"credential\": \"K\", \"domains\": "
                   "[\"api.example.com\"]%s}]}",
                   more);
        v = ask(p, &met);
        assert_non_null(v.credential);
        assert_string_equal(v.credential, "K");
        v = ask(p, &s->missed);
        if (v.credential)
            fail_msg("%s: a credential is put on a request that it is not for", s->key);
        assert_int_equal(v.action, POLICY_ALLOW);
        policy_free(p);
    }
}

static void test_near_misses(void **state)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        const struct question *q = &s->missed;
        struct policy *p = policy("{\"rules\": [{\"action\": \"allow\", \"name\": \"r\", \"%s\": "
                                  "%s}]}",
                                  s->key, s->list);
        struct policy_address a;
        struct policy_verdict v = ask(p, q);
        char text[POLICY_REASON_SIZE];

        assert_int_equal(policy_address_parse(q->address, &a), 0);
        policy_explain(p, &v, q->name, &a, q->port, q->method, q->path, text);
        if (s->said && !strstr(text, s->said))
            fail_msg("%s: \"%s\" does not say \"%s\"", s->key, text, s->said);
        if (!s->said && strstr(text, "rule 0"))
            fail_msg("%s: \"%s\" names a rule for another destination", s->key, text);
        policy_free(p);
    }
}

static bool take_line(void *arg, const char *text)
{
    (void)snprintf(arg, POLICY_OFFER_SIZE, "%s", text);
    return false;
}

static void test_offers(void **state)
{
    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        struct policy *p = policy("{\"rules\": [{\"action\": \"allow\", \"%s\": %s}]}", s->key,
                                  s->list);
        char text[POLICY_OFFER_SIZE] = "";

        policy_offers(p, take_line, text);
        if (!strstr(text, s->offered))
            fail_msg("%s: \"%s\" does not say \"%s\"", s->key, text, s->offered);
        policy_free(p);
    }
}

/* Against itself, and against a list that nothing of it is in: a binding that is missed is told. */
static void test_overlaps(void **state)
{
    static const struct {
        const char *key, *list;
    } others[] = {{"domains", "[\"*.api.example.com\", \"example.com\"]"},
                  {"addresses", "[\"93.184.217.0/24\", \"10.0.0.0/8\"]"},
                  {"ports", "[80, \"444-7999\"]"},
                  {"methods", "[\"POST\", \"GETS\"]"},
                  {"paths", "[\"/v2*\", \"/v\"]"}};

    for (size_t i = 0; i < CONDITION_COUNT; i++) {
        const struct sample *s = sample_of(&conditions[i]);
        struct policy *p = policy("{\"rules\": [{\"action\": \"allow\", \"%s\": %s}, {\"action\": "
                                  "\"allow\", \"%s\": %s}]}",
                                  s->key, s->list, others[i].key, others[i].list);
        const struct list *a = &p->rules[0].lists[i], *b = &p->rules[1].lists[i];

        assert_string_equal(conditions[i].key, others[i].key);
        for (size_t k = 0; k < a->n; k++) {
            assert_true(conditions[i].overlaps(&a->entries[k], &a->entries[k]));
            for (size_t m = 0; m < b->n; m++)
                if (conditions[i].overlaps(&a->entries[k], &b->entries[m]) ||
                    conditions[i].overlaps(&b->entries[m], &a->entries[k]))
                    fail_msg("%s: entry %zu meets the other's %zu", s->key, k, m);
        }
        policy_free(p);
    }
}

/* A key that is no line of the table is refused by all that read it. */
static void test_unknown_conditions(void **state)
{
    static const char *const cases[] = {
        "{\"rules\": [{\"action\": \"allow\", \"protocols\": [\"http\"]}]}",
        "{\"inject\": [{\"credential\": \"K\", \"domains\": [\"a.example\"], \"protocols\": "
        "[\"http\"]}]}",
        "{\"inject\": [{\"credential\": \"K\", \"domains\": [\"a.example\"], \"addresses\": "
        "[\"192.0.2.1\"]}]}"};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *json = json_loads(cases[i], 0, NULL);
        struct policy *p = NULL;
        struct err e;

        assert_int_equal(policy_new(json, &p, &e), ERR_INVALID);
        assert_null(p);
        json_decref(json);
    }
}

/* A host that is spelled as no name is would never match, and a preset that an error does not name is not found. */
static void test_presets(void **state)
{
    char names[PRESET_NAMES_SIZE], normal[POLICY_NAME_MAX + 3];
    const struct rule *preset;
    size_t i;

    preset_names(names);
    assert_true(strlen(names) + 1 < sizeof(names)); /* else one was cut */
    for (i = 0; (preset = preset_at(i)); i++) {
        const struct list *hosts = &preset->lists[CONDITION_DOMAINS];

        assert_ptr_equal(preset_find(preset->name), preset);
        assert_non_null(strstr(names, preset->name));
        assert_true(hosts->n > 0 && preset->lists[CONDITION_PORTS].n > 0);
        for (size_t k = 0; k < hosts->n; k++) {
            assert_int_equal(pattern_domain_normalize(hosts->entries[k].text, normal), 0);
            assert_string_equal(hosts->entries[k].text, normal);
        }
    }
    assert_true(i >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_before_the_request),
        cmocka_unit_test(test_ceilings),
        cmocka_unit_test(test_injections),
        cmocka_unit_test(test_near_misses),
        cmocka_unit_test(test_offers),
        cmocka_unit_test(test_overlaps),
        cmocka_unit_test(test_unknown_conditions),
        cmocka_unit_test(test_presets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
