/* The processes beside the task of a restore: what it has open is closed after its end, and not in
 * it; another process is moved for as long as is wanted. */
#include "skip.h"

#include "runtime/restore_beside.h"
#include "runtime/task.h"
#include "sys/pid.h"

#include <fcntl.h>
#include <poll.h>

#define PATIENCE_MS 20000
#define MOVES       3

struct pipes {
    int group[2];  /* in place of the file of a control group */
    int ended[2];  /* no byte is written */
    int checks[2]; /* one byte: go on */
};

static bool is_moved(const struct pipes *p)
{
    char text[64];

    return read(p->group[0], text, sizeof(text)) > 0 && text[0] >= '1' && text[0] <= '9';
}

static int work(void *arg, struct task_result *out)
{
    const struct pipes *p = arg;
    struct restore_beside b;
    char byte;

    close(p->ended[0]);
    restore_beside_begin(&b, p->group[1]);
    out->values[0] = (uint64_t)b.closer;
    struct pollfd early = {.fd = p->group[0], .events = POLLIN};
    if (poll(&early, 1, 20) != 0)
        return -1;
    restore_beside_moves(&b);
    for (int i = 0; i < MOVES; i++)
        if (!is_moved(p))
            return -1;
    restore_beside_moved(&b);
    out->values[1] = b.mover < 0 && b.mover_fd < 0 && b.go_fd < 0;
    while (fcntl(p->group[0], F_SETFL, O_NONBLOCK) == 0 && read(p->group[0], &byte, 1) == 1)
        ;
    struct pollfd more = {.fd = p->group[0], .events = POLLIN};
    out->values[2] = poll(&more, 1, 50) == 0;
    return read(p->checks[0], &byte, 1) == 1 ? 0 : -1;
}

static void what_a_task_has_open_is_closed_after_its_end(void **state)
{
    struct task_result result = {0};
    struct task t = TASK_NONE;
    struct pipes p;

    assert_true(pipe(p.group) == 0 && pipe(p.ended) == 0 && pipe(p.checks) == 0);
    assert_int_equal(task_spawn(work, &p, &t), 0);
    close(p.ended[1]);
    struct pollfd end = {.fd = p.ended[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, 0), 0);
    assert_int_equal(write(p.checks[1], "", 1), 1);
    assert_true(pid_await_end(t.pidfd, PATIENCE_MS));
    assert_int_equal(task_collect(&t, &result), 0);
    assert_int_equal(result.status, 0);
    assert_true(result.values[0] > 1 && result.values[1] && result.values[2]);
    /* By the closer, which has not been waited for. */
    assert_int_equal(poll(&end, 1, PATIENCE_MS), 1);
    assert_true(end.revents & POLLHUP);
}

static int begin_and_sleep(void *arg, struct task_result *out)
{
    const struct pipes *p = arg;
    struct restore_beside b;

    restore_beside_begin(&b, p->group[1]);
    restore_beside_moves(&b);
    while (out)
        pause();
    return 0;
}

static void both_end_with_a_task_that_is_killed(void **state)
{
    struct task t = TASK_NONE;
    struct pipes p;

    assert_true(pipe(p.group) == 0 && pipe(p.ended) == 0);
    assert_int_equal(task_spawn(begin_and_sleep, &p, &t), 0);
    close(p.ended[1]);
    assert_true(is_moved(&p));
    assert_int_equal(task_cancel(&t), -1);
    struct pollfd end = {.fd = p.ended[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, PATIENCE_MS), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_task_has_open_is_closed_after_its_end),
        cmocka_unit_test(both_end_with_a_task_that_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
