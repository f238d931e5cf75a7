/* The toolbox's readers of output of a sandbox's programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "toolbox/call.h"
#include "toolbox/elements.h"
#include "toolbox/git.h"
#include "toolbox/port.h"
#include "toolbox/reply.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEXT(s) s, sizeof(s) - 1

typedef int (*reader)(const char *text, size_t len, struct buf *b);

static void reads(reader read, const char *text, size_t len, const char *wanted)
{
    CLEANUP_BUF struct buf b = {0};

    buf_init(&b, 65536);
    assert_int_equal(read(text, len, &b), 0);
    assert_int_equal(b.len, strlen(wanted));
    assert_memory_equal(b.data, wanted, b.len);
}

static void refuses(reader read, const char *text, size_t len)
{
    CLEANUP_BUF struct buf b = {0};

    buf_init(&b, 65536);
    assert_int_equal(read(text, len, &b), -EBADMSG);
}

static void test_status(void **state UNUSED)
{
    reads(git_read_status,
          TEXT("# branch.oid 12\0# branch.head a/b\0# branch.upstream o/b\0# branch.ab +2 -13\0"
               "1 .M N... 100644 100644 100644 aa bb name with blanks\0"
               "2 R. N... 100644 100644 100644 aa bb R100 new\0old \"1\"\0"
               "u UU N... 1 2 3 4 a b c both\0? un\ntracked\0! ignored\0"),
          "{\"fileStatus\":["
          "{\"name\":\"name with "
          "blanks\",\"staging\":\"Unmodified\",\"worktree\":\"Modified\",\"extra\":\"\"},"
          "{\"name\":\"new\",\"staging\":\"Renamed\",\"worktree\":\"Unmodified\",\"extra\":\"old "
          "\\\"1\\\"\"},"
          "{\"name\":\"both\",\"staging\":\"Updated but unmerged\",\"worktree\":\"Updated but "
          "unmerged\",\"extra\":\"\"},"
          "{\"name\":\"un\\ntracked\",\"staging\":\"Untracked\",\"worktree\":\"Untracked\","
          "\"extra\":\"\"}],"
          "\"currentBranch\":\"a/b\",\"upstream\":\"o/b\",\"ahead\":2,\"behind\":13,"
          "\"branchPublished\":true,\"detached\":false}");
    reads(git_read_status, TEXT("# branch.head (detached)\0# branch.ab +x\0"),
          "{\"fileStatus\":[],\"currentBranch\":\"HEAD\",\"ahead\":0,\"behind\":0,"
          "\"branchPublished\":false,\"detached\":true}");
    refuses(git_read_status, TEXT("1 .M N... 100644\0"));
    refuses(git_read_status, TEXT("2 R. N... 1 2 3 a b R1 new\0"));
    refuses(git_read_status, TEXT("fatal\0"));
    refuses(git_read_status, TEXT("\0"));
}

static void test_branches(void **state UNUSED)
{
    reads(git_read_branches, TEXT("main\nmain\nx\"y\n"),
          "{\"branches\":[\"main\",\"x\\\"y\"],\"current\":\"main\"}");
    reads(git_read_branches, TEXT("\n"), "{\"branches\":[],\"current\":\"\"}");
    refuses(git_read_branches, TEXT(""));
}

static void test_history(void **state UNUSED)
{
    reads(git_read_history, TEXT("ab\0A\0a@b\0002026-01-02T03:04:05Z\0one\n\ntwo\n\0cd\0B\0cut"),
          "[{\"hash\":\"ab\",\"author\":\"A\",\"email\":\"a@b\","
          "\"timestamp\":\"2026-01-02T03:04:05Z\",\"message\":\"one\\n\\ntwo\\n\"}]");
    reads(git_read_history, TEXT(""), "[]");
}

static void test_settings(void **state UNUSED)
{
    reads(git_read_remotes,
          TEXT("remote.origin.url\n/a b\0remote.origin.url\n/second\0remote.a.url.url\nssh://x\ny\0"
               "remote.empty.url\0"),
          "{\"remotes\":[{\"name\":\"origin\",\"url\":\"/a b\"},"
          "{\"name\":\"a.url\",\"url\":\"ssh://x\\ny\"}]}");
    reads(git_read_remotes, TEXT(""), "{\"remotes\":[]}");
    refuses(git_read_remotes, TEXT("remote.url\nx\0"));
    refuses(git_read_remotes, TEXT("branch.a.url\nx\0"));
    reads(git_read_value, TEXT(""), "{}");
    reads(git_read_value, TEXT("\0"), "{\"value\":\"\"}");
    reads(git_read_value, TEXT("a\nb\0"), "{\"value\":\"a\\nb\"}");
    refuses(git_read_value, TEXT("cut"));
}

static void test_refusals(void **state UNUSED)
{
    assert_int_equal(git_read_refusal("fatal: Authentication failed for 'x'", false).status, 401);
    assert_string_equal(git_read_refusal(" ! [rejected] main\nerror: failed to push", false).code,
                        "GIT_PUSH_REJECTED");
    assert_string_equal(git_read_refusal(" ! [remote rejected] main (hook)", false).code,
                        "GIT_REMOTE_REJECTED");
    assert_int_equal(git_read_refusal("fatal: unable to access 'https://x/'", false).status, 400);
    assert_string_equal(git_read_refusal("ssh: Could not resolve hostname x", false).code,
                        "GIT_TRANSPORT_FAILED");
    assert_int_equal(git_read_refusal("something else", false).status, 400);
    assert_int_equal(
        git_read_refusal("error: pathspec 'x' did not match any file(s) known to git", false)
            .status,
        404);
    assert_int_equal(
        git_read_refusal("error: pathspec 'x' did not match any file(s) known to git", true).status,
        400);
}

/* -- long lists -------------------------------------------------------------------------------- */

static int count_one(void *arg, const json_t *element)
{
    int *n = arg;

    assert_true(json_is_object(element));
    return ++*n == 5 ? -EMSGSIZE : 0;
}

static int elements(const char *text, size_t len)
{
    int n = 0;
    int rc = elements_each(text, len, "entries", count_one, &n);

    return rc < 0 ? rc : n;
}

static void test_elements(void **state UNUSED)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "{}",
                                      "{\"entries\":7}",
                                      "{\"entries\":[7]}",
                                      "{\"entries\":[{}",
                                      "{\"entries\":[{},]}",
                                      "{\"entries\":[{}{}]}",
                                      "{\"entries\":[{}]",
                                      "{\"entries\":[{}]}x",
                                      "{\"entries\":[{}],\"a\":1}",
                                      "{\"entries\":[{\"a\":\"}]}",
                                      "{\"entries\":[{\"a\":\"\\",
                                      "{\"entry\":[{}]}"};
    static char long_one[ELEMENT_BYTES_MAX + 64];

    assert_int_equal(elements(TEXT(" { \"entries\" : [ ] } ")), 0);
    assert_int_equal(elements(TEXT("{\"entries\":[{\"a\":\"}\\\"]\",\"b\":{\"c\":[]}} , {}]}")), 2);
    assert_int_equal(elements(TEXT("{\"entries\":[{},{},{},{},{},{}]}")), -EMSGSIZE);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (elements(bad[i], strlen(bad[i])) != -EBADMSG)
            fail_msg("taken: %s", bad[i]);
    memset(long_one, ' ', sizeof(long_one));
    memcpy(long_one, "{\"entries\":[{", 13);
    memcpy(long_one + sizeof(long_one) - 3, "}]}", 3);
    assert_int_equal(elements(long_one, sizeof(long_one)), -EBADMSG);
    memcpy(long_one + 1000, "}]}", 3);
    assert_int_equal(elements(long_one, 1003), 1);
}

static bool listens(const char *text, unsigned port)
{
    uint8_t seen[8192] = {0};

    port_read(text, strlen(text), seen);
    return seen[port / 8] >> (port % 8) & 1;
}

static void test_ports(void **state UNUSED)
{
    static const char head[] = "  sl  local_address rem_address   st tx_queue\n";
    static const char listening[] = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000\n"
                                    "   1: 00000000000000000000000001000000:0BB8 "
                                    "00000000000000000000000000000000:0000 0A 0\n"
                                    "   2: 0100007F:270F 0100007F:1F90 01 0\n";
    char text[1024];

    snprintf(text, sizeof(text), "%s%s", head, listening);
    assert_true(listens(text, 8080));
    assert_true(listens(text, 3000));
    assert_false(listens(text, 9999)); /* connected, not listening */
    assert_false(listens("   0: 0100007F:1F90 00000000:0000 0A", 8080)); /* cut */
    assert_false(listens(":\n::\n: : \n0: x:0000 0:0 0A\n\n", 0));
}

/* Clients classify a failure by words of its message: "directory" is not "not found". */
static void test_words_of_errors(void **state UNUSED)
{
    static const struct {
        const char *said, *leaves;
    } rows[] = {
        {"", ""},
        {"permission denied", "permission denied"},
        {"No such file or directory", "file not found"},
        {"open /a: no such file or directory", "open /a: file not found"},
        {"a: No such file or directory; b: NO SUCH FILE OR DIRECTORY.",
         "a: file not found; b: file not found."},
        {"No such file or director", "No such file or director"},
    };
    char out[64], small[8];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_string_equal(toolbox_error_text(rows[i].said, out, sizeof(out)), rows[i].leaves);
    assert_string_equal(toolbox_error_text(rows[2].said, small, sizeof(small)), "file no");
    assert_string_equal(toolbox_error_text("0123456789", small, sizeof(small)), "0123456");
}

static void test_every_error_has_those_words(void **state UNUSED)
{
    const struct toolbox_call call = {.x = NULL};
    json_t *error = toolbox_error_json(&call, 404, NULL, "cd x: No such file or directory");

    assert_string_equal(json_string_value(json_object_get(error, "message")),
                        "cd x: file not found");
    json_decref(error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_words_of_errors),
        cmocka_unit_test(test_every_error_has_those_words),
    };

    return cmocka_run_group_tests_name("toolbox", tests, NULL, NULL);
}
