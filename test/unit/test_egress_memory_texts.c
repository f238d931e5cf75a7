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
#include "failing_sweep.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

/* A command's, whose sandbox allows more. */
static int refusal(struct buf *b)
{
    char all[] = "[\"a.example.com\",\"b.example.com\"]", some[] = "[\"a.example.com\"]";
    struct sandbox whole = {.allows = all}, command = {.allows = some, .parent = &whole};

    return deny_body_for(&command, "npm/10", "policy_denied", "none", "not allowed", b);
}

struct refusing {
    struct buf all, b;
    int rc;
};

static void refuse(void *arg)
{
    struct refusing *r = arg;

    buf_init(&r->b, 65536);
    r->rc = refusal(&r->b);
}

static bool refusal_refused(void *arg, bool failed)
{
    struct refusing *r = arg;

    assert_int_equal(r->rc, failed ? -ENOMEM : 0);
    if (r->rc == 0) {
        assert_int_equal(r->b.len, r->all.len);
        assert_memory_equal(r->b.data, r->all.data, r->all.len);
    }
    buf_free(&r->b);
    return failed;
}

static void refusals_have_whole_bodies(void **state UNUSED)
{
    struct refusing r;
    const struct failing_sweep s = {refuse, refusal_refused, &r, 0};

    buf_init(&r.all, 65536);
    assert_int_equal(refusal(&r.all), 0);
    failing_sweep(&s);
    buf_free(&r.all);
}

static void look_at_line(void *arg)
{
    static const char line[] =
        "{\"time\":\"2026-01-01T00:00:00.000Z\",\"tenant\":\"one\",\"sandbox\":\"i1\","
        "\"verdict\":\"deny\",\"reason\":\"a reason of some length\",\"rule\":\"none\"}";
    const struct audit_filter f = {
        .tenant = "one", .sandbox = "i1", .verdict = "deny", .limit = 10};
    bool old = false;

    *(int *)arg = audit_filter_fits(&f, line, strlen(line), &old);
}

static bool line_refused(void *arg, bool failed)
{
    assert_int_equal(*(int *)arg, failed ? -ENOMEM : 1);
    return failed;
}

static void no_line_of_the_log_is_left_out(void **state UNUSED)
{
    int fits;
    const struct failing_sweep s = {look_at_line, line_refused, &fits, 10};

    failing_sweep(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals_have_whole_bodies),
                                       cmocka_unit_test(no_line_of_the_log_is_left_out)};

    failing_malloc_init();
    json_wipe_frees(); /* jansson's calls count as the program's, too */
    return cmocka_run_group_tests_name("egress_memory_texts", tests, NULL, NULL);
}
