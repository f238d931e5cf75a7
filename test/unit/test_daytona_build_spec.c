/* Images as Daytona's clients describe them: which steps a Dockerfile becomes, which archives each COPY
 * has, what is started, and what is refused with its line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/daytona_build_spec.h"
#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MD5_A "0123456789abcdef0123456789abcdef"
#define MD5_B "ffffffffffffffffffffffffffffffff"

static enum err_code read_text(const char *dockerfile, const char *hashes, struct build_spec *s,
                               struct err *e)
{
    json_t *json = json_pack("{s:s}", "dockerfileContent", dockerfile);
    enum err_code code;

    assert_non_null(json);
    if (hashes)
        json_object_set_new(json, "contextHashes", json_loads(hashes, 0, NULL));
    code = daytona_build_spec_read(json, s, e);
    json_decref(json); /* the spec has a copy */
    return code;
}

static void assert_words(const struct build_step *s, enum build_op op, size_t n,
                         const char *const *words)
{
    assert_int_equal(s->op, op);
    assert_int_equal(s->n, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(s->words[i], words[i]);
}

#define STEP(i, op, ...)                                                                  \
    assert_words(&s.steps[i], op, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), \
                 (const char *[]){__VA_ARGS__})

static void test_what_the_sdks_write(void **state)
{
    struct build_spec s;
    struct err e = {0};

    assert_int_equal(read_text("FROM python:3.12.10-slim-bookworm\nRUN apt-get update\n"
                               "RUN python -m pip install 'a b'\nRUN [\"bash\", \"-c\", \"it's\"]\n"
                               "ENV A='b $c'\nENV P=/x:$PATH\nWORKDIR '/home/day tona'\n"
                               "COPY [\"tmp/x/package.json\", \"/home/p.json\"]\n"
                               "USER daytona\nENTRYPOINT [\"/bin/bash\"]\nCMD [\"-l\"]\n",
                               "[\"" MD5_A "\"]", &s, &e),
                     ERR_OK);
    assert_string_equal(s.from, "python:3.12.10-slim-bookworm");
    assert_true(s.image);
    assert_string_equal(s.user, "root");
    assert_string_equal(s.cwd, "/");
    assert_int_equal(s.n, 8);
    STEP(0, BUILD_OP_RUN, "apt-get update");
    STEP(1, BUILD_OP_RUN, "python -m pip install 'a b'");
    STEP(2, BUILD_OP_RUN, "exec 'bash' '-c' 'it'\\''s'");
    STEP(3, BUILD_OP_ENV, "A", "b \\$c");
    STEP(4, BUILD_OP_ENV, "P", "/x:${PATH}");
    STEP(5, BUILD_OP_WORKDIR, "/home/day tona");
    STEP(6, BUILD_OP_COPY, "tmp/x/package.json", "/home/p.json", "root", "");
    STEP(7, BUILD_OP_USER, "daytona");
    assert_string_equal(s.steps[6].files, CORE_STORAGE_ZEROS MD5_A);
    assert_string_equal(s.start, "exec '/bin/bash' '-l'");
    assert_int_equal(build_spec_check(&s, &e), ERR_OK);
    build_spec_free(&s);
}

static void test_values_of_variables(void **state)
{
    struct build_spec s;
    struct err e = {0};

    assert_int_equal(read_text("FROM host\nENV A=1 B=\"a\\\"b\"\nENV C=\"$A`x\" D='\"'\n"
                               "WORKDIR /srv/$A\n",
                               NULL, &s, &e),
                     ERR_OK);
    STEP(0, BUILD_OP_ENV, "A", "1", "B", "a\"b");
    STEP(1, BUILD_OP_ENV, "C", "${A}\\`x", "D", "\"");
    STEP(2, BUILD_OP_WORKDIR, "/srv/1");
    build_spec_free(&s);
}

static void test_archives_of_copy(void **state)
{
    struct build_spec s;
    struct err e = {0};

    assert_int_equal(read_text("FROM daytonaio/sandbox:0.5\nCOPY a /x\nCOPY --chmod=0755 "
                               "--chown=u:g /b /y\n",
                               "[\"" MD5_A "\", \"" MD5_B "\"]", &s, &e),
                     ERR_OK);
    assert_string_equal(s.from, "base");
    assert_string_equal(s.steps[0].files, CORE_STORAGE_ZEROS MD5_A);
    assert_string_equal(s.steps[1].files, CORE_STORAGE_ZEROS MD5_B);
    STEP(1, BUILD_OP_COPY, "b", "/y", "u:g", "0755");
    build_spec_free(&s);
    assert_int_equal(read_text("FROM host\nCOPY *.py c /x/\n",
                               "[\"" MD5_A "\", \"" MD5_B "\", \"" MD5_A "\"]", &s, &e),
                     ERR_OK);
    assert_int_equal(s.n, 2);
    for (size_t i = 0; i < s.n; i++)
        assert_string_equal(s.steps[i].files, CORE_STORAGE_ZEROS MD5_A
                            "," CORE_STORAGE_ZEROS MD5_B "," CORE_STORAGE_ZEROS MD5_A);
    build_spec_free(&s);
}

static void test_what_is_started(void **state)
{
    static const struct {
        const char *text, *start;
    } cases[] = {
        {"", NULL},
        {"CMD [\"a\"]\nCMD [\"b\", \"c\"]\n", "exec 'b' 'c'"},
        {"CMD run this\n", "run this"},
        {"ENTRYPOINT [\"a\"]\n", "exec 'a'"},
        {"CMD [\"b\"]\nENTRYPOINT run that\n", "run that"},
        {"CMD run this\nENTRYPOINT [\"a\"]\n", "exec 'a'"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct build_spec s;
        struct err e = {0};
        char text[128];

        (void)snprintf(text, sizeof(text), "FROM host\n%s", cases[i].text);
        assert_int_equal(read_text(text, NULL, &s, &e), ERR_OK);
        if (cases[i].start)
            assert_string_equal(s.start, cases[i].start);
        else
            assert_null(s.start);
        build_spec_free(&s);
    }
}

static void test_an_image_by_its_name(void **state)
{
    json_t *entry = json_pack("[s, s]", "sleep", "infinity"), *wrong = json_pack("[s, i]", "a", 1);
    struct build_spec s;
    struct err e = {0};

    assert_int_equal(daytona_build_spec_of_image("python:3.12-slim", entry, &s, &e), ERR_OK);
    assert_string_equal(s.from, "python:3.12-slim");
    assert_string_equal(s.start, "exec 'sleep' 'infinity'");
    assert_int_equal(s.n, 0);
    build_spec_free(&s);
    assert_int_equal(daytona_build_spec_of_image("x", NULL, &s, &e), ERR_OK);
    assert_null(s.start);
    build_spec_free(&s);
    assert_int_equal(daytona_build_spec_of_image("x", wrong, &s, &e), ERR_INVALID);
    json_decref(entry);
    json_decref(wrong);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *hashes, *said;
    } cases[] = {
        {"", NULL, "there is no FROM"},
        {"RUN x\n", NULL, "line 1, RUN"},
        {"FROM a AS b\n", NULL, "line 1, FROM: it is one image"},
        {"FROM --platform=x a\n", NULL, "line 1, FROM: it is one image"},
        {"FROM $A\n", NULL, "line 1, FROM: it is one image"},
        {"FROM a\nARG B=1\n", NULL, "line 2: ARG is not supported"},
        {"FROM a\nCOPY b /c\n", NULL, "line 2, COPY: there are no contextHashes"},
        {"FROM a\nCOPY b c /d\n", "[\"" MD5_A "\"]", "line 2, COPY: with several sources"},
        {"FROM a\nCOPY $b /d\n", "[\"" MD5_A "\"]", "line 2, COPY"},
        {"FROM a\nWORKDIR $B\n", NULL, "line 2, WORKDIR: its path is empty"},
        {"FROM a\n", "[\"xyz\"]", "contextHashes"},
        {"FROM a\n", "[1]", "contextHashes"},
        {"FROM a\n", "{}", "contextHashes"},
        {"FROM a\n", "[\"../../../../../../../../../etc/pw\"]", "contextHashes"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct build_spec s = {0};
        struct err e = {0};

        assert_int_not_equal(read_text(cases[i].text, cases[i].hashes, &s, &e), ERR_OK);
        if (!strstr(e.text, cases[i].said))
            fail_msg("%s: %s", cases[i].text, e.text);
        assert_null(s.steps);
    }
}

static void test_limits(void **state)
{
    char text[16384] = "FROM a\n";
    struct build_spec s;
    struct err e = {0};
    json_t *many = json_array(), *json;

    for (unsigned i = 0; i <= CORE_BUILD_STEPS_MAX; i++)
        strcat(text, "RUN x\n");
    assert_int_equal(read_text(text, NULL, &s, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "256 steps"));
    for (unsigned i = 0; i <= DAYTONA_CONTEXTS_MAX; i++)
        json_array_append_new(many, json_string(MD5_A));
    json = json_pack("{s:s, s:o}", "dockerfileContent", "FROM a\n", "contextHashes", many);
    assert_int_equal(daytona_build_spec_read(json, &s, &e), ERR_INVALID);
    json_array_remove(many, 0);
    assert_int_equal(daytona_build_spec_read(json, &s, &e), ERR_OK);
    build_spec_free(&s);
    json_decref(json);
}

/* A variable of 65,000 bytes, and behind begin 100 times before, a number, behind; then end. */
static void assert_too_long(const char *begin, const char *before, const char *behind,
                            const char *end, const char *why)
{
    char text[8192], value[1001];
    struct build_spec s;
    struct err e = {0};
    int n;

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    n = snprintf(text, sizeof(text), "FROM a\nENV A=%s\nENV B=", value);
    for (int i = 0; i < 65; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "$A");
    n += snprintf(text + n, sizeof(text) - (size_t)n, "\nRUN x\n%s", begin);
    for (int i = 0; i < 100; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%d%s", before, i, behind);
    snprintf(text + n, sizeof(text) - (size_t)n, "%s\n", end);
    assert_int_not_equal(read_text(text, "[\"" MD5_A "\"]", &s, &e), ERR_OK);
    assert_non_null(strstr(e.text, why));
}

static void test_what_variables_make_of_it(void **state)
{
    struct build_spec s;
    struct err e = {0};

    assert_too_long("ENV", " V", "=$B", "", "line 5, ENV: it is too long");
    assert_too_long("", "ENV V", "=$B\n", "", ", ENV: the steps up to here are over 1024 KiB");
    assert_too_long("COPY", " f", "", " /$B/",
                    "line 5, COPY: the steps up to here are over 1024 KiB");
    assert_int_equal(read_text("FROM a\nENV A=b\nENV C=$A D=$A\nWORKDIR /$A\n", NULL, &s, &e),
                     ERR_OK);
    STEP(2, BUILD_OP_WORKDIR, "/b");
    build_spec_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_sdks_write),
        cmocka_unit_test(test_values_of_variables),
        cmocka_unit_test(test_archives_of_copy),
        cmocka_unit_test(test_what_is_started),
        cmocka_unit_test(test_an_image_by_its_name),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_what_variables_make_of_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
