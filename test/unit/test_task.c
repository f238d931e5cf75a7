/* Tasks that cannot be killed: who cancels one does not wait for it. */
#include "skip.h"
#include "stuck.h"

#include "runtime/task.h"
#include "sys/pid.h"

#include <errno.h>
#include <poll.h>
#include <sys/stat.h>

#define PATIENCE_MS 20000

static int look_up(void *arg, struct task_result *out)
{
    struct stat st;

    return stat(arg, &st) < 0 ? -errno : 0;
}

static int sleep_on(void *arg, struct task_result *out)
{
    while (out)
        pause();
    return 0;
}

static void one_that_ends_is_reaped(void **state)
{
    struct task t = TASK_NONE;

    assert_int_equal(task_spawn(sleep_on, NULL, &t), 0);
    pid_t pid = t.pid;
    assert_int_equal(task_cancel(&t), -1);
    assert_int_equal(t.pidfd, -1);
    assert_int_equal(pid_open(pid), -ESRCH);
    assert_int_equal(task_cancel(&t), -1);
}

/* What a wait without an end would do: the control. */
static pid_t wait_for_it(int pidfd)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct pollfd ended = {.fd = pidfd, .events = POLLIN};
        _exit(poll(&ended, 1, -1) != 1);
    }
    return pid;
}

static void one_that_cannot_be_killed_is_not_waited_for(void **state)
{
    struct stuck stuck = {0};
    struct task t = TASK_NONE;
    int code, status;

    NEEDS_ROOT;
    int rc = stuck_begin(&stuck);
    if (rc == -ENOENT || rc == -ENODEV)
        SKIP("this kernel has no FUSE");
    assert_int_equal(rc, 0);
    assert_int_equal(task_spawn(look_up, stuck.path, &t), 0);
    stuck_await(&stuck);
    int left = task_cancel(&t);
    assert_true(left >= 0);
    assert_true(t.pidfd == -1 && t.result_fd == -1);
    assert_false(pid_has_ended(left));
    pid_t waiter = wait_for_it(left);
    CLEANUP_CLOSE int waits = pid_open(waiter);
    assert_false(pid_await_end(waits, 100));
    stuck_answer(&stuck);
    assert_true(pid_await_end(left, PATIENCE_MS));
    assert_true(pid_await_end(waits, PATIENCE_MS));
    assert_int_equal(pid_reap(left, &code, &status), 0);
    assert_true(code == CLD_KILLED && status == SIGKILL);
    assert_int_equal(pid_reap(waits, &code, &status), 0);
    close(left);
    stuck_end(&stuck);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_ends_is_reaped),
        cmocka_unit_test(one_that_cannot_be_killed_is_not_waited_for),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
