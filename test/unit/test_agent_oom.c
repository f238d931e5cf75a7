/* Units of what tells that a command was killed at the memory limit. The control group's file is a
 * file of the test's own. */
#include "agent/process/proc.h"
#include "agent/process/proc_oom.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

static struct agent a;

static void killed_so_far(unsigned n)
{
    char text[128];
    int len = snprintf(text, sizeof(text), "oom_kill_disable 0\nunder_oom 0\noom_kill %u\n", n);

    assert_int_equal(ftruncate(a.oom_fd, 0), 0);
    assert_int_equal(pwrite(a.oom_fd, text, (size_t)len, 0), len);
}

static int set_up(void **state)
{
    a = (struct agent){.oom_fd = memfd_create("oom", MFD_CLOEXEC)};
    return a.oom_fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    return close(a.oom_fd);
}

static void the_kernels_number(void **state)
{
    struct agent none = {.oom_fd = 0};

    killed_so_far(7);
    assert_int_equal(proc_oom_kills(&a), 7);
    assert_int_equal(proc_oom_kills(&none), 0);
}

/* Its own signal, or its shell's 137; not one that was killed through the API, nor without a
 * kill. */
static void who_was_ended_by_it(void **state)
{
    struct proc p = {.agent = &a, .oom_kills = 2, .wait_status = SIGKILL};

    killed_so_far(2);
    assert_false(proc_oom_ended(&p));
    killed_so_far(3);
    assert_true(proc_oom_ended(&p));
    p.wait_status = 137 << 8;
    assert_true(proc_oom_ended(&p));
    p.wait_status = SIGTERM;
    assert_false(proc_oom_ended(&p));
    p = (struct proc){.agent = &a, .oom_kills = 2, .wait_status = SIGKILL, .stopping = true};
    assert_false(proc_oom_ended(&p));
}

/* Of a process that has ended and is there still: this one is as good. */
static void whom_it_killed(void **state)
{
    struct proc p = {.agent = &a, .pid = getpid()};
    struct proc_end end = {7, SIGKILL, true, "a\"b"};
    char why[384];

    assert_int_equal(prctl(PR_SET_NAME, "na\x1bme"), 0);
    proc_oom_name(&p);
    assert_string_equal(p.name, "na?me");
    assert_int_equal(prctl(PR_SET_NAME, "fifteen letters"), 0);
    proc_oom_name(&p);
    assert_string_equal(p.name, "fifteen letters");
    p.pid = 0; /* there is none */
    proc_oom_name(&p);
    assert_string_equal(p.name, "");
    proc_oom_text(&a, &end, why, sizeof(why));
    assert_non_null(strstr(why, "out of memory: a\"b (pid 7) was killed: the sandbox's programs"));
    end.name = "";
    proc_oom_text(&a, &end, why, sizeof(why));
    assert_non_null(strstr(why, "out of memory: the sandbox's programs"));
}

static size_t line_of(struct proc *p, const char *text)
{
    return proc_oom_line(p, text, strlen(text));
}

static void a_terminals_line(void **state)
{
    struct proc p = {.agent = &a, .oom_kills = 1};

    killed_so_far(1);
    assert_int_equal(line_of(&p, "Killed      ./x\r\n$ "), 0);
    killed_so_far(2);
    assert_int_equal(line_of(&p, "all is well\r\nkill\r\nkkilling\r\n"), 0);
    assert_int_equal(line_of(&p, "a\r\nKilled      ./x\r\n$ "), 20);
    assert_int_equal(line_of(&p, "Killed      ./x\r\n$ "), 0); /* once for each */
    killed_so_far(3);
    assert_int_equal(line_of(&p, "$ kKil"), 0);
    assert_int_equal(line_of(&p, "led"), 0);
    assert_int_equal(line_of(&p, "   ./x\r"), 0);
    assert_int_equal(line_of(&p, "\n$ "), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_kernels_number, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_was_ended_by_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(whom_it_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_terminals_line, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("agent_oom", tests, NULL, NULL);
}
