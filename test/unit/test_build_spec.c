/* A client's description of a template: parts understood, those refused with their step, which
 * words a step has, and what the log shows of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/e2b_build_spec.h"
#include "core/build_image.h"

#include <stdlib.h>
#include <string.h>

static enum err_code read_text(const char *text, struct build_spec *s, struct err *e)
{
    json_t *json = json_loads(text, 0, NULL);
    enum err_code code;

    assert_non_null(json);
    code = e2b_build_spec_read(json, s, e);
    json_decref(json); /* the spec has a copy */
    return code;
}

static void test_whole(void **state)
{
    struct build_spec s;
    struct err e = {0};

    assert_int_equal(
        read_text("{\"fromTemplate\": \"base\", \"startCmd\": \"serve\", \"readyCmd\": \"ask\","
                  "\"steps\": ["
                  "{\"type\": \"RUN\", \"args\": [\"make\", \"root\"]},"
                  "{\"type\": \"ENV\", \"args\": [\"A\", \"1\", \"B\", \"\", \"C\", \"3\"]},"
                  "{\"type\": \"COPY\", \"args\": [\"a\", \"/b\", \"\", \"644\"],"
                  " \"filesHash\": \"ab\", \"force\": true}]}",
                  &s, &e),
        ERR_OK);
    assert_string_equal(s.from, "base");
    assert_string_equal(s.start, "serve");
    assert_string_equal(s.ready, "ask");
    assert_int_equal(s.n, 3);
    assert_int_equal(s.steps[0].op, BUILD_OP_RUN);
    assert_string_equal(s.steps[0].words[1], "root");
    assert_null(s.steps[0].files);
    assert_int_equal(s.steps[1].n, 6);
    assert_string_equal(s.steps[1].words[5], "3");
    assert_string_equal(s.steps[2].files, "ab");
    assert_false(s.steps[1].force);
    assert_true(s.steps[2].force);
    build_spec_free(&s);
    assert_null(s.steps);
}

static void test_force_of_all(void **state)
{
    struct build_spec s;
    struct err e = {0};

    assert_int_equal(read_text("{\"fromTemplate\": \"base\", \"force\": true, \"steps\": ["
                               "{\"type\": \"USER\", \"args\": [\"a\"], \"force\": false}]}",
                               &s, &e),
                     ERR_OK);
    assert_true(s.steps[0].force);
    build_spec_free(&s);
}

static void test_images(void **state)
{
    static const struct {
        const char *text, *from;
    } cases[] = {
        {"{\"fromImage\": \"e2bdev/base\"}", "base"},
        {"{\"fromImage\": \"e2bdev/base:latest\", \"fromTemplate\": \"\"}", "base"},
        {"{\"fromImage\": \"e2bdev/base-other\"}", "e2bdev/base-other"},
        {"{\"fromImage\": \"e2bdev/code-interpreter\"}", "code-interpreter-v1"},
        {"{\"fromImage\": \"debian:12\", \"fromTemplate\": null, \"steps\": null}", "debian:12"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct build_spec s;
        struct err e = {0};

        assert_int_equal(read_text(cases[i].text, &s, &e), ERR_OK);
        assert_string_equal(s.from, cases[i].from);
        assert_int_equal(s.n, 0);
        build_spec_free(&s);
    }
}

/* The commands are those of E2B's SDKs: waitForPort as it was and is, waitForURL. */
static void test_port_that_ready_waits_for(void **state)
{
    static const struct {
        const char *ready;
        int port;
    } cases[] = {
        {"[ -n \"$(ss -Htuln sport = :8080)\" ]", 8080},
        {"ss -tuln | grep :80", 80},
        {"curl -s -o /dev/null -w \"%{http_code}\" http://localhost:3000/health", 3000},
        {"curl http://127.0.0.1:65535", 65535},
        {"curl http://127.0.0.1:65536", 0},
        {"curl http://localhost:0", 0},
        {"curl http://localhost/", 0},
        {"sleep 20", 0},
        {"", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *json = json_pack("{s:s, s:s}", "fromTemplate", "base", "readyCmd", cases[i].ready);
        struct build_spec s;
        struct err e;

        assert_int_equal(e2b_build_spec_read(json, &s, &e), ERR_OK);
        assert_int_equal(s.ready_port, cases[i].port);
        build_spec_free(&s);
        json_decref(json);
    }
}

#define STEPS(step) "{\"fromTemplate\": \"base\", \"steps\": [" step "]}"
#define AFTER(step) STEPS("{\"type\": \"RUN\", \"args\": [\"a\"]}, " step)

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"{}", "one of fromTemplate and fromImage"},
        {"{\"fromTemplate\": \"a\", \"fromImage\": \"b\"}", "one of fromTemplate and fromImage"},
        {"{\"fromTemplate\": 7}", "fromTemplate"},
        {"{\"fromImage\": \"a\", \"fromImageRegistry\": {}}", "fromImageRegistry"},
        {"{\"fromTemplate\": \"a\", \"startCmd\": []}", "startCmd"},
        {"{\"fromTemplate\": \"a\", \"steps\": {}}", "array"},
        {AFTER("7"), "step 2"},
        {AFTER("{\"type\": \"run\", \"args\": [\"a\"]}"), "step 2: \"run\" is no type"},
        {AFTER("{\"type\": \"RUN\"}"), "step 2, RUN, has to have 1 to 2 args"},
        {AFTER("{\"type\": \"RUN\", \"args\": []}"), "step 2, RUN"},
        {AFTER("{\"type\": \"RUN\", \"args\": [\"a\", \"b\", \"c\"]}"), "step 2, RUN"},
        {AFTER("{\"type\": \"RUN\", \"args\": {\"0\": \"a\"}}"), "step 2, RUN"},
        {AFTER("{\"type\": \"RUN\", \"args\": [1]}"), "step 2, RUN: its args have to be strings"},
        {AFTER("{\"type\": \"ENV\", \"args\": [\"A\", \"1\", \"B\"]}"), "names and values"},
        {AFTER("{\"type\": \"ENV\", \"args\": [\"A=B\", \"1\"]}"), "names and values"},
        {AFTER("{\"type\": \"ENV\", \"args\": [\"\", \"1\"]}"), "names and values"},
        {AFTER("{\"type\": \"COPY\", \"args\": [\"a\"]}"), "step 2, COPY"},
        {AFTER("{\"type\": \"WORKDIR\", \"args\": [\"a\", \"b\"]}"), "step 2, WORKDIR"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct build_spec s = {.n = 7};
        struct err e = {0};

        assert_int_not_equal(read_text(cases[i].text, &s, &e), ERR_OK);
        assert_non_null(strstr(e.text, cases[i].said));
        assert_int_equal(s.n, 7); /* untouched */
    }
}

static json_t *with_steps(size_t n, const char *arg, size_t len)
{
    json_t *steps = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(steps, json_pack("{s:s, s:[s%]}", "type", "RUN", "args", arg, len));
    return json_pack("{s:s, s:o}", "fromTemplate", "base", "steps", steps);
}

static enum err_code read_steps(size_t n, const char *arg, size_t len)
{
    json_t *json = with_steps(n, arg, len);
    struct build_spec s;
    struct err e;
    enum err_code code = e2b_build_spec_read(json, &s, &e);

    json_decref(json);
    if (code == ERR_OK)
        build_spec_free(&s);
    return code;
}

static void test_limits(void **state)
{
    char *text = malloc(CORE_BUILD_TEXT_MAX + 1);

    assert_non_null(text);
    memset(text, 'a', CORE_BUILD_TEXT_MAX + 1);
    assert_int_equal(read_steps(CORE_BUILD_STEPS_MAX, "a", 1), ERR_OK);
    assert_int_equal(read_steps(CORE_BUILD_STEPS_MAX + 1, "a", 1), ERR_INVALID);
    assert_int_equal(read_steps(1, text, CORE_BUILD_TEXT_MAX), ERR_OK);
    assert_int_equal(read_steps(1, text, CORE_BUILD_TEXT_MAX + 1), ERR_INVALID);
    free(text);
}

static void test_no_argument_has_a_null_byte(void **state)
{
    json_t *json = json_loads(STEPS("{\"type\": \"RUN\", \"args\": [\"a\\u0000b\"]}"),
                              JSON_ALLOW_NUL, NULL);
    struct build_spec s;
    struct err e;

    assert_non_null(json);
    assert_int_equal(e2b_build_spec_read(json, &s, &e), ERR_INVALID);
    json_decref(json);
}

static void test_shown(void **state)
{
    struct build_spec s;
    struct err e;
    char out[256], small[8];

    assert_int_equal(read_text(STEPS("{\"type\": \"RUN\", \"args\": [\"make all\", \"root\"]},"
                                     "{\"type\": \"COPY\", \"args\": [\"a\", \"/b\", \"root\"]}"),
                               &s, &e),
                     ERR_OK);
    build_spec_show(&s.steps[0], out, sizeof(out));
    assert_string_equal(out, "RUN make all");
    build_spec_show(&s.steps[1], out, sizeof(out));
    assert_string_equal(out, "COPY a /b");
    build_spec_show(&s.steps[0], small, sizeof(small));
    assert_string_equal(small, "RUN mak");
    build_spec_free(&s);
}

/* Whatever a reader gives: no step of core's has fewer words than it uses. */
static void test_core_checks_what_it_relies_on(void **state)
{
    const char *words[] = {"A", "1", "B", NULL};
    struct build_step step = {.op = BUILD_OP_ENV, .n = 2, .words = words};
    struct build_spec s = {.from = "base", .n = 1, .steps = &step};
    struct err e;

    assert_int_equal(build_spec_check(&s, &e), ERR_OK);
    step.n = 3;
    assert_int_equal(build_spec_check(&s, &e), ERR_INVALID);
    step.n = 4;
    assert_int_equal(build_spec_check(&s, &e), ERR_INVALID);
    step = (struct build_step){.op = BUILD_OP_COPY, .n = 1, .words = words};
    assert_int_equal(build_spec_check(&s, &e), ERR_INVALID);
    step.op = (enum build_op)(BUILD_OP_COUNT);
    assert_int_equal(build_spec_check(&s, &e), ERR_INVALID);
    s.n = CORE_BUILD_STEPS_MAX + 1;
    assert_int_equal(build_spec_check(&s, &e), ERR_INVALID);
    s = (struct build_spec){.from = ""};
    assert_int_equal(build_spec_check(&s, &e), ERR_INVALID);
}

static void test_places_of_images(void **state)
{
    static const struct {
        struct build_image_counts p;
        bool is_free;
    } cases[] = {
        {{0, 0, 0}, true},  {{3, 0, 0}, true},   {{4, 0, 0}, false},
        {{1, 0, 1}, false}, {{0, 1, 1}, false}, /* of a tenant one, however slow */
        {{0, 4, 0}, true},                      /* four that are stopped keep no one waiting */
        {{3, 12, 0}, true}, {{4, 11, 0}, false}, {{0, 16, 0}, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(build_image_may_begin(&cases[i].p), cases[i].is_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_force_of_all),
        cmocka_unit_test(test_images),
        cmocka_unit_test(test_port_that_ready_waits_for),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_no_argument_has_a_null_byte),
        cmocka_unit_test(test_shown),
        cmocka_unit_test(test_core_checks_what_it_relies_on),
        cmocka_unit_test(test_places_of_images),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
