/* Control groups are ended by the numbers that they list, and a number may be another process's by
 * the time that it is used. Here it is: the listed process ends, and one outside of the group gets
 * its number. As root, with version 1; version 2 has cgroup.kill, which takes no number. */
#include "skip.h"
#include "sys/cgroup.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SLOT 3

/* Of this process alone: another checkout's tests may run at the same time. */
static char cgroup_name[32];
static struct cgroup *cg;
static const char *skip_reason;

enum when { NEVER, BEFORE_IT_IS_HELD, AFTER_IT_IS_HELD };

static struct {
    enum when when;
    pid_t number;
    int member;       /* pidfd of who is listed */
    int ask, answers; /* pipes of who has the number then; -1: not there */
} swap;

static void reap(int *pidfd)
{
    int code, status;

    assert_int_equal(pid_wait(*pidfd, &code, &status), 0);
    util_close(pidfd);
}

static void make_member(void)
{
    pid_t found;

    swap.number = ns_fork(0, SIGCHLD, &swap.member);
    if (swap.number == 0) {
        if (cgroup_enter(cg, SLOT, CGROUP_WORK) < 0)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_true(swap.number > 0);
    for (int i = 0; i < 400 && cgroup_pids(cg, SLOT, CGROUP_WORK, &found, 1) != 1; i++)
        usleep(5000);
    assert_int_equal(found, swap.number);
}

/* Answers each byte with one, and ends when no more can come. */
static void echo(int in, int out)
{
    char byte;

    while (read(in, &byte, 1) == 1 && write(out, &byte, 1) == 1)
        ;
    _exit(0);
}

/* clone(2): set_tid. */
static void make_stranger(void)
{
    struct clone_args args = {
        .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&swap.number, .set_tid_size = 1};
    int in[2], out[2];
    long pid;

    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        close(in[1]);
        close(out[0]);
        echo(in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    swap.ask = in[1];
    swap.answers = out[0];
    assert_int_equal(pid, swap.number);
}

/* A process with a pending SIGKILL answers nothing any more. */
static bool stranger_lives(void)
{
    char byte = 'x';

    return write(swap.ask, &byte, 1) == 1 && read(swap.answers, &byte, 1) == 1;
}

static void change_hands(void)
{
    swap.when = NEVER;
    assert_int_equal(pid_kill(swap.member, SIGKILL), 0);
    reap(&swap.member);
    make_stranger();
}

int __real_pid_open(pid_t pid);
int __wrap_pid_open(pid_t pid);

int __wrap_pid_open(pid_t pid)
{
    int fd;

    if (pid != swap.number || swap.when == NEVER)
        return __real_pid_open(pid);
    if (swap.when == BEFORE_IT_IS_HELD) {
        change_hands();
        return __real_pid_open(pid);
    }
    fd = __real_pid_open(pid);
    change_hands();
    return fd;
}

static void spares_who_has_the_number(enum when when)
{
    int status;

    assert_int_equal(cgroup_make(cg, SLOT), 0);
    make_member();
    swap.when = when;
    assert_int_equal(cgroup_kill(cg, SLOT), 0);
    assert_int_equal(swap.when, NEVER); /* it did change hands meanwhile */
    assert_true(stranger_lives());
    /* The control: a kill by number hits it. */
    assert_int_equal(kill(swap.number, SIGKILL), 0);
    assert_int_equal(waitpid(swap.number, &status, 0), swap.number);
    assert_false(stranger_lives());
    util_close(&swap.ask);
    util_close(&swap.answers);
    assert_int_equal(cgroup_remove(cg, SLOT), 0);
}

static void test_a_number_that_came_again_before_it_is_held(void **state)
{
    SKIP_FOR(skip_reason);
    spares_who_has_the_number(BEFORE_IT_IS_HELD);
}

static void test_a_number_that_comes_again_while_it_is_held(void **state)
{
    SKIP_FOR(skip_reason);
    spares_who_has_the_number(AFTER_IT_IS_HELD);
}

/* The control of both: whose number did not change hands is ended. */
static void test_a_member_is_killed(void **state)
{
    SKIP_FOR(skip_reason);
    assert_int_equal(cgroup_make(cg, SLOT), 0);
    make_member();
    assert_int_equal(cgroup_kill(cg, SLOT), 0);
    reap(&swap.member); /* else it would not end */
    assert_int_equal(cgroup_remove(cg, SLOT), 0);
}

static int set_up(void **state)
{
    char why[160] = "needs root";

    signal(SIGPIPE, SIG_IGN);
    snprintf(cgroup_name, sizeof(cgroup_name), "cay-test-kill-%d", (int)getpid());
    if (geteuid() != 0 || cgroup_open(cgroup_name, &cg, why, sizeof(why)) < 0) {
        print_message("# %s\n", why);
        skip_reason = "no control groups (see above)";
    } else if (strcmp(cgroup_version(cg), "v1") != 0) {
        skip_reason = "version 2 ends a group without numbers";
    }
    return 0;
}

static int tear_down(void **state)
{
    if (cg)
        cgroup_remove_base(cg);
    cgroup_close(cg);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_member_is_killed),
        cmocka_unit_test(test_a_number_that_came_again_before_it_is_held),
        cmocka_unit_test(test_a_number_that_comes_again_while_it_is_held),
    };
    return cmocka_run_group_tests_name("cgroup_kill", tests, set_up, tear_down);
}
