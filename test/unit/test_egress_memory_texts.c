/* Texts of cay-egress while memory is out: the n-th allocation fails, for every n, alone or with all after it, those of
 * jansson too. A refusal's body is whole or none, and a line of the log is found, or its question fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "egress/control/audit_filter.h"
#include "egress/flow/deny.h"
#include "egress/flow/sandbox.h"
#include "failing_malloc.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

#define CALLS_MAX 5000u

/* A command's, whose sandbox allows more. */
static int refusal(struct buf *b)
{
    char all[] = "[\"a.example.com\",\"b.example.com\"]", some[] = "[\"a.example.com\"]";
    struct sandbox whole = {.allows = all}, command = {.allows = some, .parent = &whole};

    return deny_body_for(&command, "npm/10", "policy_denied", "none", "not allowed", b);
}

static void refusals_have_whole_bodies(void **state UNUSED)
{
    CLEANUP_BUF struct buf all, b;

    buf_init(&all, 65536);
    assert_int_equal(refusal(&all), 0);
    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;

        for (size_t n = 1; failed; n++) {
            size_t held = failing_malloc_held();
            int rc;

            assert_true(n < CALLS_MAX);
            buf_init(&b, 65536);
            failing_malloc_begin(n, for_good);
            rc = refusal(&b);
            failed = failing_malloc_end();
            assert_int_equal(rc, failed ? -ENOMEM : 0);
            if (rc == 0) {
                assert_int_equal(b.len, all.len);
                assert_memory_equal(b.data, all.data, all.len);
            }
            buf_free(&b);
            assert_int_equal(failing_malloc_held(), held);
        }
    }
}

static void no_line_of_the_log_is_left_out(void **state UNUSED)
{
    static const char line[] =
        "{\"time\":\"2026-01-01T00:00:00.000Z\",\"tenant\":\"one\",\"sandbox\":\"i1\","
        "\"verdict\":\"deny\",\"reason\":\"a reason of some length\",\"rule\":\"none\"}";
    const struct audit_filter f = {
        .tenant = "one", .sandbox = "i1", .verdict = "deny", .limit = 10};

    for (int for_good = 0; for_good < 2; for_good++) {
        bool failed = true;
        size_t refused = 0;

        for (size_t n = 1; failed; n++) {
            bool old = false;
            int fits;

            assert_true(n < CALLS_MAX);
            failing_malloc_begin(n, for_good);
            fits = audit_filter_fits(&f, line, strlen(line), &old);
            failed = failing_malloc_end();
            assert_int_equal(fits, failed ? -ENOMEM : 1);
            refused += failed;
        }
        assert_true(refused >= 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals_have_whole_bodies),
                                       cmocka_unit_test(no_line_of_the_log_is_left_out)};

    failing_malloc_init();
    json_wipe_frees(); /* jansson's calls count as the program's, too */
    return cmocka_run_group_tests_name("egress_memory_texts", tests, NULL, NULL);
}
