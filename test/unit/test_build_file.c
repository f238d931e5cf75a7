/* Build files: instructions understood, those refused with their line, variables in ENV and paths;
 * and the folder that COPY takes files from, against names and links that leave it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "cli/build_context.h"
#include "image/build_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void parse(const char *text, struct build_file *f)
{
    struct err e = {0};

    assert_int_equal(build_file_parse(text, strlen(text), BUILD_FILE_OF_TEMPLATE, f, &e), ERR_OK);
}

static void test_instructions(void **state)
{
    struct build_file f;

    parse("# first\nFROM base\r\n\n  run a && \\\n  # not in it\n\n    b  \nCOPY --chown=u:g "
          "--chmod=0755 x y/ "
          "/z/\nLABEL other=1 cay.name=\"my-name\"\nCMD [\"a\", \"it's\"]\nRUN [ -f x ] && "
          "y\nEXPOSE 80/tcp",
          &f);
    assert_int_equal(f.count, 7);
    assert_string_equal(f.steps[0].text, "base");
    assert_string_equal(f.steps[1].text, "a &&     b");
    assert_int_equal(f.steps[1].line, 4);
    assert_int_equal(f.steps[2].line, 8);
    assert_int_equal(json_array_size(f.steps[2].words), 3);
    assert_string_equal(f.steps[2].owner, "u:g");
    assert_string_equal(f.steps[2].mode, "0755");
    assert_string_equal(f.name, "my-name");
    assert_null(f.steps[5].words); /* for the shell, though it begins like a list */
    CLEANUP_FREE char *quoted = build_file_quote("exec", f.steps[4].words);
    assert_string_equal(quoted, "exec 'a' 'it'\\''s'");
    build_file_free(&f);
}

static void test_refusals(void **state)
{
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"", "no FROM"},
        {"RUN x\n", "line 1, RUN: a build file begins with FROM"},
        {"FROM base\nFROM base\n", "line 2, FROM"},
        {"FROM a/b\n", "line 1, FROM: it is one name"},
        {"FROM base AS x\n", "line 1, FROM: it is one name"},
        {"FROM python:3.12\n", "cay template import NAME docker://IMAGE"},
        {"FROM base\n\nADD a b\n", "line 3: ADD is not supported"},
        {"FROM base\nENTRYPOINT a\n", "line 2: ENTRYPOINT is not supported"},
        {"FROM base\nRUN\n", "line 2, RUN: there is nothing"},
        {"FROM base\nRUN --mount=type=secret x\n", "line 2, RUN: options"},
        {"FROM base\nRUN cat <<EOF\n", "line 2, RUN: here documents"},
        {"FROM base\nRUN [\"a\", 1]\n", "line 2, RUN: its words"},
        {"FROM base\nCOPY a\n", "line 2, COPY: COPY is"},
        {"FROM base\nCOPY *.py /x\n", "line 2, COPY: COPY takes names"},
        {"FROM base\nCOPY $A /x\n", "line 2, COPY: COPY takes names"},
        {"FROM base\nCOPY --from=x a /x\n", "--from=x"},
        {"FROM base\nCOPY --chown=-R a /x\n", "--chown=-R"},
        {"FROM base\nCOPY --chmod=9 a /x\n", "--chmod=9"},
        {"FROM base\nENV 1=2\n", "line 2, ENV: it is NAME=VALUE"},
        {"FROM base\nENV A\n", "line 2, ENV: A has no value"},
        {"FROM base\nENV A=\"x\n", "line 2, ENV: a quote"},
        {"FROM base\nENV A=${B:-c}\n", "line 2, ENV: after $"},
        {"FROM base\nEXPOSE 0\n", "EXPOSE is one TCP port"},
        {"FROM base\nEXPOSE 53/udp\n", "EXPOSE is one TCP port"},
        {"FROM base\nUSER a:b\n", "USER is the name"},
        {"FROM base\nLABEL cay.name=a/b\n", "not the name of a template"},
    };
    struct build_file f;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err e = {0};

        assert_int_not_equal(
            build_file_parse(cases[i].text, strlen(cases[i].text), BUILD_FILE_OF_TEMPLATE, &f, &e),
            ERR_OK);
        if (!strstr(e.text, cases[i].said))
            fail_msg("%s: %s", cases[i].text, e.text);
        build_file_free(&f);
    }
}

static void test_limits(void **state)
{
    static char text[BUILD_FILE_MAX_BYTES + 1];
    struct build_file f;
    struct err e = {0};
    size_t n = 0;

    memset(text, '#', sizeof(text));
    assert_int_equal(build_file_parse(text, sizeof(text), BUILD_FILE_OF_TEMPLATE, &f, &e),
                     ERR_TOO_LARGE);
    build_file_free(&f);
    n = (size_t)snprintf(text, sizeof(text), "FROM base\n");
    for (unsigned i = 0; i < BUILD_STEPS_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "RUN x\n");
    assert_int_equal(build_file_parse(text, n, BUILD_FILE_OF_TEMPLATE, &f, &e), ERR_TOO_LARGE);
    build_file_free(&f);
    assert_int_equal(build_file_parse(text, n - 6, BUILD_FILE_OF_TEMPLATE, &f, &e), ERR_OK);
    build_file_free(&f);
    assert_int_equal(build_file_parse("FROM base\0", 10, BUILD_FILE_OF_TEMPLATE, &f, &e),
                     ERR_INVALID);
    build_file_free(&f);
}

static void expect_env(const char *text, const char *name, const char *value)
{
    json_t *env = json_pack("{s:s, s:s}", "A", "one two", "P", "/bin"), *set = json_object();
    struct err e = {0};

    assert_int_equal(build_file_env(text, env, set, &e), ERR_OK);
    assert_string_equal(json_string_value(json_object_get(set, name)), value);
    json_decref(env);
    json_decref(set);
}

/* Nothing is read behind the end of the text: there may be whatever the process has. */
static void expect_no_env(const char *text, size_t len)
{
    char behind[64] = "";
    json_t *set = json_object();
    struct err e = {0};

    assert_in_range(len, 1, sizeof(behind) - 10);
    memset(behind + len + 1, 'x', 8);
    memcpy(behind, text, len);
    assert_int_equal(build_file_env(behind, NULL, set, &e), ERR_INVALID);
    json_object_clear(set);
    assert_int_equal(build_file_env_for_shell(behind, set, &e), ERR_INVALID);
    json_decref(set);
}

static void test_a_pair_that_is_cut(void **state)
{
    static const char *const cut[] = {"A=1 B",   "A=1 B=2 C", "A=1 B.c", "A=1 B ",
                                      "A=1 B C", "A",         "A "};

    for (size_t i = 0; i < ARRAY_SIZE(cut); i++)
        expect_no_env(cut[i], strlen(cut[i]));
    expect_env("A=1 B=", "B", "");
    expect_env("A=1 B=2", "B", "2");
}

static void test_variables(void **state)
{
    CLEANUP_BUF struct buf out;
    json_t *env = json_pack("{s:s}", "A", "x");
    struct err e = {0};

    expect_env("B=$A", "B", "one two");
    expect_env("B=\"$A!\" C=2", "C", "2");
    expect_env("B='$A'", "B", "$A");
    expect_env("B=\\$A\\ c", "B", "$A c");
    expect_env("P=/x:${P} B=$P", "B", "/bin");
    expect_env("P=/x:$P", "P", "/x:/bin");
    expect_env("B=$none.", "B", ".");
    expect_env("B=a$ C=1", "B", "a$");
    expect_env("B some text  here", "B", "some text  here");
    expect_env("B=", "B", "");
    buf_init(&out, 8);
    assert_int_equal(build_file_expand("/$A/${A}", env, &out, &e), ERR_OK);
    assert_int_equal(out.len, 4);
    assert_memory_equal(out.data, "/x/x", 4);
    assert_int_equal(build_file_expand("123456", env, &out, &e), ERR_TOO_LARGE);
    json_decref(env);
}

/* -- the folder -------------------------------------------------------------------------------- */

static char home[64];

static int set_up(void **state)
{
    snprintf(home, sizeof(home), "/var/tmp/cay-test-build-XXXXXX");
    return mkdtemp(home) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf -- %s", home);
    return system(command);
}

static int source(const struct build_context *c, const char *name, struct err *e)
{
    CLEANUP_CLOSE int fd = -1;
    struct stat st;

    *e = (struct err){0};
    fd = build_context_source(c, name, &st, e);
    return fd >= 0 ? 0 : -1;
}

static void test_names_that_leave_the_folder(void **state)
{
    static const char *const out[] = {"../secret",      "../in/../secret", "link",
                                      "up/secret",      "/../secret",      "deep/../../secret",
                                      "deep/up2/secret"};
    CLEANUP_BUF struct buf text;
    struct build_context c;
    char command[1024];
    struct err e = {0};

    snprintf(command, sizeof(command),
             "cd %s && mkdir -p in/deep && echo FROM base > in/Dockerfile && echo s > secret && "
             "ln -s %s/secret in/link && ln -s .. in/up && ln -s ../.. in/deep/up2 && echo f > "
             "in/file && "
             "ln -s file in/within && mkfifo in/pipe",
             home, home);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof(command), "%s/in", home);
    buf_init(&text, BUILD_FILE_MAX_BYTES);
    assert_int_equal(build_context_open(&c, command, &text, &e), ERR_OK);
    assert_int_equal(text.len, 10);
    for (size_t i = 0; i < ARRAY_SIZE(out); i++) {
        if (source(&c, out[i], &e) == 0 || e.code != ERR_DENIED)
            fail_msg("%s: %s", out[i], e.text);
    }
    assert_int_equal(source(&c, "file", &e), 0);
    assert_int_equal(source(&c, "/file", &e), 0);
    assert_int_equal(source(&c, "deep/../within", &e), 0);
    assert_int_equal(source(&c, ".", &e), 0);
    assert_int_equal(source(&c, "pipe", &e), -1); /* and it did not wait */
    assert_int_equal(source(&c, "gone", &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    snprintf(command, sizeof(command), "touch %s/in/.dockerignore", home);
    assert_int_equal(system(command), 0);
    assert_int_equal(source(&c, ".", &e), -1);
    assert_int_equal(source(&c, "file", &e), 0);
    build_context_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_a_pair_that_is_cut),
        cmocka_unit_test_setup_teardown(test_names_that_leave_the_folder, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
