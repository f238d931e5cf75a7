/* cay-kernels' readers and writers: Jupyter's wire protocol against hostile messages, results as
 * lines, names of languages, specifications, environment variables as code. */
#include "base/io.h"
#include "kernels/env_code.h"
#include "kernels/identity.h"
#include "kernels/repair.h"
#include "kernels/result.h"
#include "kernels/spec.h"
#include "kernels/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* after the above */
#include <cmocka.h>

#define KEY "0123456789abcdef"
#define ID  "abcdefghijklmnopqrstuvwxyz012345"

/* -- the wire ---------------------------------------------------------------------------------- */

static json_t *parse(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);

    assert_non_null(value);
    return value;
}

static void build(struct wire_sent *m)
{
    json_t *content = parse("{\"code\": \"1+1 \\u00e9\"}");

    assert_int_equal(wire_build(KEY, "session", ID, "execute_request", content, m), 0);
    json_decref(content);
}

static void test_what_is_built_is_read(void **state)
{
    struct wire_frame routed[WIRE_SENT_FRAMES + 2] = {{"router", 6}, {"", 0}};
    struct wire_message got;
    struct wire_sent m;

    build(&m);
    assert_int_equal(wire_parse(KEY, m.frames, WIRE_SENT_FRAMES, &got), 0);
    assert_string_equal(got.type, "execute_request");
    assert_string_equal(got.parent_id, "");
    assert_string_equal(json_string_value(json_object_get(got.header, "msg_id")), ID);
    assert_string_equal(json_string_value(json_object_get(got.content, "code")), "1+1 \xc3\xa9");
    wire_free(&got);
    /* behind routing ids, as on iopub and router sockets */
    memcpy(routed + 2, m.frames, sizeof(m.frames));
    assert_int_equal(wire_parse(KEY, routed, ARRAY_SIZE(routed), &got), 0);
    wire_free(&got);
    wire_sent_free(&m);
}

static void test_signatures(void **state)
{
    struct wire_message got;
    struct wire_frame frames[WIRE_SENT_FRAMES];
    struct wire_sent m;

    build(&m);
    assert_int_equal(wire_parse("another key", m.frames, WIRE_SENT_FRAMES, &got), -EACCES);
    for (size_t i = 2; i < WIRE_SENT_FRAMES; i++) { /* each signed part, changed */
        memcpy(frames, m.frames, sizeof(frames));
        frames[i] = (struct wire_frame){"{\"x\":1}", 7};
        assert_int_equal(wire_parse(KEY, frames, WIRE_SENT_FRAMES, &got), -EACCES);
    }
    memcpy(frames, m.frames, sizeof(frames));
    for (size_t len = 0; len < WIRE_SIGNATURE_LEN; len += 9) {
        frames[1].len = len;
        assert_int_equal(wire_parse(KEY, frames, WIRE_SENT_FRAMES, &got), -EACCES);
    }
    for (size_t n = 0; n < WIRE_SENT_FRAMES; n++)
        assert_int_equal(wire_parse(KEY, m.frames, n, &got), -EBADMSG);
    wire_sent_free(&m);
}

/* Signs any four parts, as user code can that has read the connection file. */
static int parse_signed(const char *const parts[4], struct wire_message *got)
{
    struct wire_frame frames[6] = {{"<IDS|MSG>", 9}};
    char line[512], signature[WIRE_SIGNATURE_LEN + 2] = "";
    FILE *out;

    snprintf(line, sizeof(line),
             "printf %%s '%s%s%s%s' | openssl dgst -sha256 -hmac " KEY " | sed 's/.* //'", parts[0],
             parts[1], parts[2], parts[3]);
    out = popen(line, "r");
    assert_non_null(out);
    assert_non_null(fgets(signature, sizeof(signature), out));
    pclose(out);
    frames[1] = (struct wire_frame){signature, WIRE_SIGNATURE_LEN};
    for (size_t i = 0; i < 4; i++)
        frames[i + 2] = (struct wire_frame){parts[i], strlen(parts[i])};
    return wire_parse(KEY, frames, ARRAY_SIZE(frames), got);
}

/* OpenSSL's program is the judge of the signature. */
static void test_hostile_parts(void **state)
{
    static const struct {
        const char *parts[4];
        int ret;
    } cases[] = {
        {{"{\"msg_type\":\"status\",\"date\":\"now\"}", "{\"msg_id\":\"p\"}", "{}", "{}"}, 0},
        {{"{\"msg_type\":\"status\"}", "{}", "not read", "{}"}, 0},
        {{"{\"msg_type\":\"s\"}", "{}", "{}", "{\"n\":123456789012345678901234567890}"}, 0},
        {{"{\"msg_type\":\"s\"}", "{}", "{}", "{\"text\":\"\\u0000\"}"}, 0},
        {{"{}", "{}", "{}", "{}"}, -EBADMSG},
        {{"{\"msg_type\":\"\"}", "{}", "{}", "{}"}, -EBADMSG},
        {{"{\"msg_type\":7}", "{}", "{}", "{}"}, -EBADMSG},
        {{"[]", "{}", "{}", "{}"}, -EBADMSG},
        {{"{\"msg_type\":\"s\"}", "[]", "{}", "{}"}, -EBADMSG},
        {{"", "", "", ""}, -EBADMSG},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct wire_message got = {0};
        int ret = parse_signed(cases[i].parts, &got);

        if (ret != cases[i].ret)
            fail_msg("case %zu: %d", i, ret);
        if (ret == 0)
            wire_free(&got);
    }
}

/* Output is not lost without a word. */
static void test_contents_that_cannot_be_read(void **state)
{
    static const char *const cases[] = {"[1]", "{", "", "{\"a\":\"\\ud80\"}", "{\"a\":1e999}"};
    struct wire_message got;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *parts[] = {"{\"msg_type\":\"s\"}", "{}", "{}", cases[i]};

        assert_int_equal(parse_signed(parts, &got), 0);
        assert_string_equal(got.unread, "it is no object of JSON");
        assert_int_equal(json_object_size(got.content), 0);
        wire_free(&got);
    }
}

static void test_output_that_is_no_text_is_replaced(void **state)
{
    static const char *const cases[][2] = {
        {"\xff", "\xef\xbf\xbd"},
        {"a\xc3", "a\xef\xbf\xbd"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xe2\x82",
         "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* half a pair */
        {"\xc0\x80\xf5", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\\ud800", "\xef\xbf\xbd"},
        {"\\udfffx", "\xef\xbf\xbdx"},
        {"\\ud800\\ud83d\\ude00\\uD800\\n", "\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbd\n"},
        {"\\\\ud800 \\\"\xff", "\\ud800 \"\xef\xbf\xbd"}, /* an escaped backslash, and no escape */
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t len = 0;
        CLEANUP_FREE char *text = repair_json(cases[i][0], strlen(cases[i][0]), &len);
        char line[128];
        json_t *value;

        assert_non_null(text);
        snprintf(line, sizeof(line), "\"%.*s\"", (int)len, text);
        value = parse(line);
        assert_string_equal(json_string_value(value), cases[i][1]);
        json_decref(value);
    }
}

/* -- results ----------------------------------------------------------------------------------- */

static void test_results(void **state)
{
    static const char *const cases[][2] = {
        {"{\"text/plain\":\"2\"}",
         "{\"extra\":{},\"is_main_result\":true,\"text\":\"2\",\"type\":\"result\"}"},
        {"{\"text/plain\":\"'a'\"}",
         "{\"extra\":{},\"is_main_result\":true,\"text\":\"a\",\"type\":\"result\"}"},
        {"{\"text/plain\":\"'\"}",
         "{\"extra\":{},\"is_main_result\":true,\"text\":\"'\",\"type\":\"result\"}"},
        {"{\"text/plain\":\"'a\\\"\"}",
         "{\"extra\":{},\"is_main_result\":true,\"text\":\"'a\\\"\",\"type\":\"result\"}"},
        {"{\"image/png\":\"AA\",\"e2b/chart\":{\"type\":\"pie\"},\"x/y\":[1]}",
         "{\"chart\":{\"type\":\"pie\"},\"extra\":{\"x/y\":[1]},\"is_main_result\":true,"
         "\"png\":\"AA\",\"type\":\"result\"}"},
        /* types with a name, and of a kind that clients do not take there */
        {"{\"text/plain\":7,\"image/png\":null}",
         "{\"extra\":{\"image/png\":null,\"text/plain\":7},\"is_main_result\":true,"
         "\"type\":\"result\"}"},
        {"[]", "{\"extra\":{},\"is_main_result\":true,\"type\":\"result\"}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        json_t *bundle = parse(cases[i][0]), *line = result_line(bundle, true);
        CLEANUP_FREE char *text = json_dumps(line, JSON_COMPACT | JSON_SORT_KEYS);

        assert_string_equal(text, cases[i][1]);
        json_decref(line);
        json_decref(bundle);
    }
}

/* -- languages --------------------------------------------------------------------------------- */

static void test_languages(void **state)
{
    static const char *const cases[][2] = {
        {"", "python"},       {"  Python ", "python"}, {"JS", "javascript"},
        {"ts", "typescript"}, {"bash", "bash"},        {"../etc", NULL},
        {"a/b", NULL},        {"a b", NULL},           {"x\ny", NULL},
    };
    char out[SPEC_NAME_MAX], big[SPEC_NAME_MAX + 1] = "";

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(spec_language(cases[i][0], out), cases[i][1] != NULL);
        if (cases[i][1])
            assert_string_equal(out, cases[i][1]);
    }
    memset(big, 'a', SPEC_NAME_MAX);
    assert_false(spec_language(big, out));
}

static void put_spec(const char *dir, const char *name, const char *text)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%s/kernel.json", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_specifications(void **state)
{
    char dir[] = "/tmp/cay-test-spec-XXXXXX", command[64];
    const char *dirs[] = {"/nonexistent", dir, NULL};
    struct spec s;
    struct err e;
    char **argv;

    assert_non_null(mkdtemp(dir));
    put_spec(dir, "python3",
             "{\"argv\":[\"p\",\"-f\",\"a{connection_file}b\"],\"interrupt_mode\":\"message\","
             "\"metadata\":{\"cay_settle_ms\":99999}}");
    put_spec(dir, "none", "{\"argv\":[]}");
    put_spec(dir, "wrong", "{\"argv\":[1]}");
    put_spec(dir, "env", "{\"argv\":[\"x\"],\"env\":{\"A\":1}}");
    put_spec(dir, "cut", "{\"argv\":");
    assert_true(spec_exists(dirs, "python"));
    assert_false(spec_exists(dirs, "r"));
    assert_int_equal(spec_load(dirs, "r", &s, &e), ERR_NOT_FOUND);
    assert_int_equal(spec_load(dirs, "python", &s, &e), ERR_OK);
    assert_false(s.interrupt_by_signal);
    assert_int_equal(s.settle_ms, SPEC_SETTLE_MAX_MS);
    argv = spec_argv(&s, "/f");
    assert_string_equal(argv[2], "a/fb");
    assert_null(argv[3]);
    spec_free_argv(argv);
    spec_free(&s);
    for (const char *const *name = (const char *const[]){"none", "wrong", "env", "cut", NULL};
         *name; name++)
        assert_int_equal(spec_load(dirs, *name, &s, &e), ERR_INVALID);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* -- variables as code ------------------------------------------------------------------------- */

/* The languages themselves read what was written; none of a value is code. */
static void test_variables_stay_data(void **state)
{
    static const char value[] = "q\"'\\\n$(touch /tmp/cay-not)`x`\xc3\xa9\xf0\x9f\x98\x80";
    static const struct {
        const char *language, *run;
    } languages[] = {{"python",
                      "python3 -c 'import sys\nexec(sys.stdin.read())\nimport os\n"
                      "sys.stdout.write(os.environ[\"A\"])\nassert \"B\" not in os.environ'"},
                     {"bash", "bash -c 'eval \"$(cat)\"; printf %s \"$A\"; [ -z \"${B+x}\" ]'"}};
    json_t *vars = json_pack("{s:s, s:n}", "A", value, "B");

    assert_int_equal(setenv("B", "is there", 1), 0);
    for (size_t i = 0; i < ARRAY_SIZE(languages); i++) {
        CLEANUP_FREE char *code = env_code(languages[i].language, vars);
        char path[] = "/tmp/cay-test-env-XXXXXX", command[512], got[256] = "";
        int fd = mkstemp(path);
        FILE *out;

        assert_non_null(code);
        assert_int_equal(write(fd, code, strlen(code)), strlen(code));
        close(fd);
        snprintf(command, sizeof(command), "%s < %s", languages[i].run, path);
        out = popen(command, "r");
        assert_non_null(out);
        assert_true(fread(got, 1, sizeof(got) - 1, out) > 0);
        assert_int_equal(pclose(out), 0);
        assert_string_equal(got, value);
        unlink(path);
    }
    assert_null(env_code("cobol", vars));
    json_decref(vars);
}

/* Nor is a name: bash has none of this kind, to R it is a text. */
static void test_names_stay_data(void **state)
{
    static const char *const odd[] = {"a; echo ran #", "1a", "a-b", "a\"); ran(\"", "\xc3\xa9"};
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
        json_t *vars = json_pack("{s:s, s:s}", odd[i], "v", "_a1", "w");
        CLEANUP_FREE char *bash = env_code("bash", vars);

        assert_string_equal(bash, "export _a1='w'\n");
        assert_int_equal(env_check("bash", vars, &e), ERR_INVALID);
        assert_int_equal(env_check("python", vars, &e), ERR_OK);
        assert_int_equal(env_check("r", vars, &e), ERR_OK);
        assert_int_equal(env_check("cobol", vars, &e), ERR_INVALID);
        assert_int_equal(json_object_del(vars, odd[i]), 0);
        assert_int_equal(env_check("bash", vars, &e), ERR_OK);
        json_decref(vars);
    }
}

static void assert_r(const char *name, json_t *value, const char *expected)
{
    json_t *vars = json_pack("{s:o}", name, value);
    CLEANUP_FREE char *code = env_code("r", vars);

    assert_string_equal(code, expected);
    json_decref(vars);
}

/* R's own grammar: a name in quotes may be any text, _A and TRUE as words are errors. */
static void test_names_of_r_are_texts(void **state)
{
    assert_r("_A", json_string("v\"\\"), "Sys.setenv(\"_A\" = \"v\\\"\\\\\")\n");
    assert_r("TRUE", json_null(), "Sys.unsetenv(\"TRUE\")\n");
    assert_r("a\"); ran(\"", json_null(), "Sys.unsetenv(\"a\\\"); ran(\\\"\")\n");
}

static void test_variables_are_put_back(void **state)
{
    json_t *vars = json_pack("{s:s, s:s}", "A", "1", "B", "2"), *back;

    assert_int_equal(setenv("A", "own", 1), 0);
    assert_int_equal(unsetenv("B"), 0);
    back = env_restored(vars);
    assert_string_equal(json_string_value(json_object_get(back, "A")), "own");
    assert_true(json_is_null(json_object_get(back, "B")));
    json_decref(back);
    json_decref(vars);
}

static void write_at(int dir_fd, const char *path, const char *text)
{
    int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(io_write_full(fd, text, strlen(text)), 0);
    assert_int_equal(close(fd), 0);
}

/* Those of another sandbox take the place of its own, and are told; of the same one nothing is
 * read. */
static void test_the_identity_is_renewed(void **state)
{
    char dir[] = "/tmp/cay-test-identity-XXXXXX";
    json_t *changed;
    int dir_fd;

    assert_non_null(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(dir_fd, "e2b", 0700), 0);
    assert_int_equal(mkdirat(dir_fd, "sandbox", 0700), 0);
    assert_int_equal(setenv("E2B_SANDBOX_ID", "first", 1), 0);
    assert_int_equal(setenv("E2B_TEMPLATE_ID", "template", 1), 0);
    assert_int_equal(setenv("CAY_TEST_SAME", "same", 1), 0);
    assert_null(identity_renew("/tmp/there/is/none"));
    assert_null(identity_renew(dir));
    write_at(
        dir_fd, "sandbox/environment.json",
        "{\"CAY_TEST_OWN\": \"q\\\"\\n\u00e9\", \"CAY_TEST_SAME\": \"same\", \"bad=name\": \"x\", "
        "\"CAY_TEST_NUMBER\": 1, \"E2B_SANDBOX_ID\": \"second\"}");
    write_at(dir_fd, "e2b/.E2B_SANDBOX_ID", "first");
    assert_null(identity_renew(dir));
    assert_null(getenv("CAY_TEST_OWN"));
    write_at(dir_fd, "e2b/.E2B_SANDBOX_ID", "second\n");
    changed = identity_renew(dir);
    assert_int_equal(json_object_size(changed), 2);
    assert_string_equal(json_string_value(json_object_get(changed, "CAY_TEST_OWN")), "q\"\n\u00e9");
    assert_string_equal(json_string_value(json_object_get(changed, "E2B_SANDBOX_ID")), "second");
    json_decref(changed);
    assert_string_equal(getenv("CAY_TEST_OWN"), "q\"\n\u00e9");
    assert_string_equal(getenv("E2B_SANDBOX_ID"), "second");
    assert_string_equal(getenv("E2B_TEMPLATE_ID"), "template");
    assert_null(getenv("CAY_TEST_NUMBER"));
    assert_null(identity_renew(dir));
    assert_int_equal(unsetenv("E2B_SANDBOX_ID"), 0); /* outside of a sandbox */
    assert_null(identity_renew(dir));
    assert_null(getenv("E2B_SANDBOX_ID"));
    assert_int_equal(unlinkat(dir_fd, "sandbox/environment.json", 0), 0);
    assert_int_equal(unlinkat(dir_fd, "e2b/.E2B_SANDBOX_ID", 0), 0);
    assert_int_equal(unlinkat(dir_fd, "e2b", AT_REMOVEDIR), 0);
    assert_int_equal(unlinkat(dir_fd, "sandbox", AT_REMOVEDIR), 0);
    assert_int_equal(close(dir_fd), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_built_is_read),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_hostile_parts),
        cmocka_unit_test(test_contents_that_cannot_be_read),
        cmocka_unit_test(test_output_that_is_no_text_is_replaced),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_languages),
        cmocka_unit_test(test_specifications),
        cmocka_unit_test(test_variables_stay_data),
        cmocka_unit_test(test_names_stay_data),
        cmocka_unit_test(test_names_of_r_are_texts),
        cmocka_unit_test(test_variables_are_put_back),
        cmocka_unit_test(test_the_identity_is_renewed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
