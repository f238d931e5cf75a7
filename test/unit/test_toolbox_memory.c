/* A terminal is looked for while memory is out: the call is told, and nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "failing_malloc.h"
#include "toolbox/call.h"
#include "toolbox/pty_internal.h"
#include "toolbox/toolbox_internal.h"

/* Before the agent is asked: what is kept until the answer, the request's target and body, the request. */
#define ALLOCATIONS 4

struct seen {
    int calls;
    enum err_code code;
    bool info;
};

static void done(void *arg, const json_t *info, const struct err *why)
{
    struct seen *seen = arg;

    seen->calls++;
    seen->code = why ? why->code : ERR_OK;
    seen->info = info != NULL;
}

static void test_each_allocation_fails(void **state UNUSED)
{
    for (size_t n = 1; n <= ALLOCATIONS; n++) {
        struct toolbox t = {.stopping = false};
        struct toolbox_call c = {.toolbox = &t, .unused_fd = -1, .refs = 1};
        struct seen seen = {.code = ERR_OK};
        size_t held = failing_malloc_held();

        failing_malloc_begin(n, false);
        pty_find(&c, "t1", done, &seen);
        assert_true(failing_malloc_end());
        assert_int_equal(seen.calls, 1);
        assert_int_equal(seen.code, ERR_UNAVAILABLE); /* 503 */
        assert_false(seen.info);
        assert_int_equal(c.refs, 1);
        assert_null(c.ops);
        assert_int_equal(failing_malloc_held(), held);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation_fails)};

    failing_malloc_init();
    return cmocka_run_group_tests_name("toolbox_memory", tests, NULL, NULL);
}
