/* What cay-checkpoint reads of the kernel's words about processes and mounts. With real sandboxes
 * and CRIU: test/scenario/test_checkpoint.py. */
#include "checkpoint/dump_options.h"
#include "checkpoint/refusal.h"
#include "skip.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STATUS(state, nspid, tracer, nnp, filters)                                         \
    "Name:\tname\nUmask:\t0022\nState:\t" state "\nTgid:\t9\nPid:\t9\nTracerPid:\t" tracer \
    "\nNSpid:\t" nspid "\nVmSize:\t 100 kB\nNoNewPrivs:\t" nnp                             \
    "\nSeccomp:\t2\nSeccomp_filters:\t" filters "\nCpus_allowed:\t3\n"

static void threads_that_lose_something_are_refused(void **state)
{
    static const struct {
        const char *status, *told; /* NULL: it may be dumped */
    } cases[] = {
        {STATUS("S (sleeping)", "9", "0", "0", "3"), NULL},
        {STATUS("T (stopped)", "9", "0", "0", "3"), NULL},
        {STATUS("S (sleeping)", "9", "0", "1", "3"), "has set no_new_privs"},
        {STATUS("S (sleeping)", "9", "0", "0", "4"), "a system call filter of its own"},
        {STATUS("S (sleeping)", "9", "0", "0", "2"), "a system call filter of its own"},
        {STATUS("t (tracing stop)", "9", "7", "0", "3"), "traced by a debugger"},
        {STATUS("S (sleeping)", "9\t1", "0", "0", "3"), "a network of its own"},
        /* it has ended: nothing of it is kept but its status */
        {STATUS("Z (zombie)", "9", "0", "1", "0"), NULL},
        {STATUS("X (dead)", "9", "0", "1", "0"), NULL},
        /* what the kernel does not say is not taken for good */
        {"Name:\tname\nState:\tS (sleeping)\n", "traced"},
        {"", "traced"},
        /* a name of the tenant's, in which the kernel escapes line feeds */
        {"Name:\ta\\nState:\tZ\nState:\tS (sleeping)\nTracerPid:\t0\nNSpid:\t9\nNoNewPrivs:\t1\n"
         "Seccomp_filters:\t3\n",
         "has set no_new_privs"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct checkpoint_why why = {""};
        int rc = refusal_of(cases[i].status, "9", 3, &why);

        if (rc != (cases[i].told ? -EOPNOTSUPP : 0) ||
            (cases[i].told &&
             (!strstr(why.text, cases[i].told) || !strstr(why.text, "process 9 "))))
            fail_msg("case %zu: %d %s", i, rc, why.text);
    }
}

static void mounts_are_external_but_those_that_criu_makes(void **state)
{
    static const struct {
        const char *line, *path; /* NULL: CRIU is not told of it */
    } cases[] = {
        {"681 53 0:196 / / rw,nodev,relatime - overlay overlay rw,lowerdir=lower:view", NULL},
        {"685 681 0:198 / /usr rw,nodev,relatime - overlay overlay rw", "/usr"},
        {"700 686 0:202 / /dev/pts rw,nosuid - devpts devpts rw,mode=620", NULL},
        {"702 681 0:203 / /proc rw,nosuid - proc proc rw", NULL},
        {"704 702 0:203 /sys /proc/sys ro,nosuid - proc proc rw", NULL}, /* part of /proc */
        {"743 702 0:194 /dev/null /proc/cgroups rw,nosuid master:5 - tmpfs tmpfs rw",
         "/proc/cgroups"},
        {"704 702 0:203 /sys", NULL},
        {"", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char path[DUMP_OPTION_SIZE / 2] = "";

        assert_int_equal(dump_options_mount(cases[i].line, path), cases[i].path != NULL);
        if (cases[i].path)
            assert_string_equal(path, cases[i].path);
    }
}

/* Of this process, which has mounts of its own: the words end with NULL, and none is cut. */
static void options_of_a_process_are_whole(void **state)
{
    static struct dump_options o;
    struct checkpoint_why why = {""};
    int rc = dump_options_make(&o, getpid(), "/proc/1/exe", &why);

    if (rc == -E2BIG || rc == -ENAMETOOLONG) /* a machine of very many, or deep, mounts */
        SKIP("this machine's mounts are not like a sandbox's");
    assert_int_equal(rc, 0);
    assert_string_equal(o.argv[0], CHECKPOINT_CRIU);
    assert_string_equal(o.argv[1], "dump");
    assert_string_equal(o.argv[o.n - 2], "--external");
    assert_int_equal(strncmp(o.argv[o.n - 1], "file[", 5), 0);
    assert_null(o.argv[o.n]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_lose_something_are_refused),
        cmocka_unit_test(mounts_are_external_but_those_that_criu_makes),
        cmocka_unit_test(options_of_a_process_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
