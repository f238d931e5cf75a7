/* When a task's result is taken; and tasks that cannot be killed: the caller that cancels one does
 * not wait for it. */
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

static int read_until_end(int fd)
{
    char byte;
    ssize_t n = read(fd, &byte, 1);

    return n < 0 ? -errno : (int)n;
}

static int wait_on_pipe(void *arg, struct task_result *out)
{
    const int *pipes = arg;

    close(pipes[1]);
    out->values[0] = 7;
    return read_until_end(pipes[0]);
}

static void a_result_is_taken_when_the_task_has_ended(void **state)
{
    struct task_result result = {0};
    struct task t = TASK_NONE;
    int pipes[2];

    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(task_spawn(wait_on_pipe, pipes, &t), 0);
    pid_t pid = t.pid;
    assert_int_equal(task_collect(&t, &result), -EAGAIN);
    assert_true(t.pidfd >= 0);
    close(pipes[1]);
    assert_true(pid_await_end(t.pidfd, PATIENCE_MS));
    assert_int_equal(task_collect(&t, &result), 0);
    assert_true(result.status == 0 && result.values[0] == 7);
    assert_true(t.pidfd == -1 && t.result_fd == -1);
    assert_int_equal(pid_open(pid), -ESRCH); /* reaped */
    close(pipes[0]);
}

/* Its child has a copy of its end of the socket, and lives on. */
static int die_before_a_child(void *arg, struct task_result *out)
{
    const int *pipes = arg;

    close(pipes[1]);
    if (fork() == 0)
        _exit(read_until_end(pipes[0]) != 0);
    _exit(3);
}

static void the_end_of_one_without_a_result_is_seen_though_its_child_lives(void **state)
{
    struct task_result result = {0};
    struct task t = TASK_NONE;
    int pipes[2];

    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(task_spawn(die_before_a_child, pipes, &t), 0);
    assert_true(pid_await_end(t.pidfd, PATIENCE_MS));
    assert_int_equal(task_collect(&t, &result), -ECHILD);
    assert_true(t.pidfd == -1 && t.result_fd == -1);
    close(pipes[0]);
    close(pipes[1]);
}

/* The outcome of a wait without an end: the control. */
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
        cmocka_unit_test(a_result_is_taken_when_the_task_has_ended),
        cmocka_unit_test(the_end_of_one_without_a_result_is_seen_though_its_child_lives),
        cmocka_unit_test(one_that_ends_is_reaped),
        cmocka_unit_test(one_that_cannot_be_killed_is_not_waited_for),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
