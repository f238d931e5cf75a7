/* Which control groups are used again, and that they are as new then. As root, with version 1. */
#include "skip.h"
#include "sys/cgroup.h"
#include "sys/ns.h"
#include "sys/pid.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MIB (UINT64_C(1) << 20)

/* Of this process alone: another checkout's tests may run at the same time. */
static char cgroup_name[32], place[64], held_path[64];
static struct cgroup *cg;
static const char *skip_reason;

#define NEEDS_V1 SKIP_FOR(skip_reason)

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

static unsigned count_spares(void)
{
    unsigned n = 0;
    struct dirent *e;
    DIR *dir = opendir(place);
    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL)
        n += strncmp(e->d_name, "spare.", 6) == 0;
    closedir(dir);
    return n;
}

/* Whether slot, or what is below it, has a directory. */
static bool slot_is_there(uint32_t slot, const char *below)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/%u%s", place, slot, below);
    return is_there(path);
}

/* A process in the work leaf of slot runs fn, and ends or is killed. */
static void within(uint32_t slot, void (*fn)(void))
{
    int pidfd = -1, code, status;
    pid_t pid = ns_fork(0, SIGCHLD, &pidfd);
    if (pid == 0) {
        if (cgroup_enter(cg, slot, CGROUP_WORK) < 0)
            _exit(1);
        fn();
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(pid_wait(pidfd, &code, &status), 0);
    close(pidfd);
    if (code == CLD_EXITED)
        assert_int_equal(status, 0);
}

static void burn(void)
{
    for (volatile unsigned i = 0; i < 20000000; i++)
        ;
}

static void leave_pages(void)
{
    int fd = open(held_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, 4 * MIB) != 0)
        _exit(1);
}

static void take_too_much(void)
{
    char *p = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < 64 * MIB; i += 4096)
        p[i] = 1;
}

static void make(uint32_t slot, const struct cgroup_limits *limits)
{
    assert_int_equal(cgroup_make(cg, slot), 0);
    assert_int_equal(cgroup_limit(cg, slot, CGROUP_WHOLE, limits), 0);
    assert_int_equal(cgroup_limit(cg, slot, CGROUP_WORK, limits), 0);
}

static const struct cgroup_limits usual = {.memory_bytes = 256 * MIB, .pids = 10};

/* A sandbox is SCHED_IDLE, as each of its siblings is; nothing in it is so beside its PID 1. A
 * kernel without the file has nothing to be set. */
static void yields(uint32_t slot)
{
    static const char *const leaves[] = {"", "/work"};
    char path[128], value = 0;

    for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/cpu/%s/cpu.idle", cgroup_name);
        if (access(path, F_OK) < 0)
            return;
        snprintf(path, sizeof(path), "/sys/fs/cgroup/cpu/%s/%u%s/cpu.idle", cgroup_name, slot,
                 leaves[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, &value, 1), 1);
        close(fd);
        assert_int_equal(value, i == 0 ? '1' : '0');
    }
}

static void test_what_nothing_is_left_in_is_used_again(void **state)
{
    struct cgroup_stat st;
    NEEDS_V1;
    make(3, &usual);
    yields(3);
    within(3, burn);
    assert_int_equal(cgroup_stat(cg, 3, &st), 0);
    assert_true(st.cpu_used_us > 0);
    assert_int_equal(cgroup_freeze(cg, 3, true), 0);
    assert_int_equal(cgroup_remove(cg, 3), 0);
    assert_int_equal(count_spares(), 1);
    assert_false(slot_is_there(3, ""));
    assert_int_equal(cgroup_make(cg, 4), 0);
    assert_int_equal(count_spares(), 0);
    assert_true(slot_is_there(4, "/work"));
    yields(4);
    assert_false(cgroup_is_frozen(cg, 4));
    assert_int_equal(cgroup_stat(cg, 4, &st), 0);
    assert_int_equal(st.cpu_used_us, 0);
    assert_int_equal(st.pids_used, 0);
    assert_true(st.memory_used_bytes <= MIB / 2);
    within(4, burn);
    assert_int_equal(cgroup_stat(cg, 4, &st), 0);
    assert_true(st.cpu_used_us > 0);
    assert_int_equal(cgroup_remove(cg, 4), 0);
}

static void test_what_a_process_is_in_stays(void **state)
{
    int pidfd = -1, code, status;
    pid_t found;
    NEEDS_V1;
    make(5, &usual);
    pid_t pid = ns_fork(0, SIGCHLD, &pidfd);
    if (pid == 0) {
        if (cgroup_enter(cg, 5, CGROUP_WORK) < 0)
            _exit(1);
        pause();
        _exit(0);
    }
    for (int i = 0; i < 400 && cgroup_pids(cg, 5, CGROUP_WORK, &found, 1) != 1; i++)
        usleep(5000);
    assert_int_equal(cgroup_remove(cg, 5), -EBUSY);
    assert_true(cgroup_holds(cg, 5, pid));
    assert_int_equal(pid_kill(pidfd, SIGKILL), 0);
    assert_int_equal(pid_wait(pidfd, &code, &status), 0);
    close(pidfd);
    assert_int_equal(cgroup_remove(cg, 5), 0);
}

static void is_not_kept(uint32_t slot)
{
    unsigned before = count_spares();
    for (int i = 0; i < 200 && cgroup_remove(cg, slot) == -EBUSY; i++)
        usleep(5000);
    assert_false(slot_is_there(slot, ""));
    if (count_spares() != before)
        fail_msg("slot %u: kept", slot);
}

static void test_what_something_is_left_in_is_not_kept(void **state)
{
    struct cgroup_limits limits = usual;
    NEEDS_V1;
    make(6, &limits);
    within(6, leave_pages);
    is_not_kept(6);
    assert_int_equal(unlink(held_path), 0);

    limits.memory_bytes = 16 * MIB;
    make(7, &limits);
    within(7, take_too_much);
    assert_true(cgroup_oom_kills(cg, 7, CGROUP_WHOLE) > 0 ||
                cgroup_oom_kills(cg, 7, CGROUP_WORK) > 0);
    is_not_kept(7);

    limits = usual;
    limits.cpu_milli = 500;
    make(8, &limits);
    is_not_kept(8);
}

/* A start that failed midway is what leaves one so. */
static void test_what_is_not_whole_is_not_kept(void **state)
{
    char path[128];
    NEEDS_V1;
    make(9, &usual);
    snprintf(path, sizeof(path), "/sys/fs/cgroup/pids/%s/9/work", cgroup_name);
    assert_int_equal(rmdir(path), 0);
    is_not_kept(9);
    assert_int_equal(cgroup_make(cg, 10), 0);
    snprintf(path, sizeof(path), "/sys/fs/cgroup/pids/%s/10/work", cgroup_name);
    assert_true(is_there(path));
    assert_int_equal(cgroup_remove(cg, 10), 0);
}

/* Tasks are children that are gone when their work is done. */
static void test_those_that_a_child_kept_are_found(void **state)
{
    int pidfd = -1, code, status;
    NEEDS_V1;
    make(20, &usual);
    pid_t pid = ns_fork(0, SIGCHLD, &pidfd);
    if (pid == 0)
        _exit(cgroup_remove(cg, 20) < 0);
    assert_true(pid > 0);
    assert_int_equal(pid_wait(pidfd, &code, &status), 0);
    close(pidfd);
    assert_int_equal(code, CLD_EXITED);
    assert_int_equal(status, 0);
    assert_int_equal(count_spares(), 1);
    assert_int_equal(cgroup_make(cg, 21), 0);
    assert_int_equal(count_spares(), 0);
    assert_int_equal(cgroup_remove(cg, 21), 0);
}

static void test_those_of_before_a_restart_are_found(void **state)
{
    struct cgroup *next;
    NEEDS_V1;
    make(22, &usual);
    assert_int_equal(cgroup_remove(cg, 22), 0);
    assert_int_equal(count_spares(), 1);
    assert_int_equal(cgroup_open(cgroup_name, &next, NULL, 0), 0);
    assert_int_equal(cgroup_make(next, 23), 0);
    assert_int_equal(count_spares(), 0);
    /* The first has a bit that is wrong by now, as after a task that was killed. */
    make(24, &usual);
    assert_int_equal(cgroup_remove(cg, 24), 0);
    assert_int_equal(count_spares(), 1);
    assert_int_equal(cgroup_make(cg, 25), 0);
    assert_int_equal(count_spares(), 0);
    assert_int_equal(cgroup_make(next, 26), 0);
    assert_int_equal(cgroup_remove(next, 23), 0);
    assert_int_equal(cgroup_remove(cg, 25), 0);
    assert_int_equal(cgroup_remove(next, 26), 0); /* passes the name that only the first knows of */
    assert_int_equal(count_spares(), 3);
    cgroup_close(next);
}

static void test_only_so_many_are_kept(void **state)
{
    NEEDS_V1;
    for (uint32_t slot = 100; slot < 172; slot++)
        assert_int_equal(cgroup_make(cg, slot), 0);
    for (uint32_t slot = 100; slot < 172; slot++)
        assert_int_equal(cgroup_remove(cg, slot), 0);
    assert_int_equal(count_spares(), 64);
    assert_int_equal(cgroup_remove_base(cg), 0);
    assert_false(is_there(place));
}

static int set_up(void **state)
{
    char why[160] = "needs root";

    snprintf(cgroup_name, sizeof(cgroup_name), "cay-test-spare-%d", (int)getpid());
    snprintf(place, sizeof(place), "/sys/fs/cgroup/memory/%s", cgroup_name);
    snprintf(held_path, sizeof(held_path), "/dev/shm/%s", cgroup_name);
    if (geteuid() != 0 || cgroup_open(cgroup_name, &cg, why, sizeof(why)) < 0) {
        print_message("# %s\n", why);
        skip_reason = "no control groups (see above)";
    } else if (strcmp(cgroup_version(cg), "v1") != 0) {
        cgroup_remove_base(cg);
        skip_reason = "directories of version 2 cannot be renamed, so none are kept";
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
        cmocka_unit_test(test_what_nothing_is_left_in_is_used_again),
        cmocka_unit_test(test_what_a_process_is_in_stays),
        cmocka_unit_test(test_what_something_is_left_in_is_not_kept),
        cmocka_unit_test(test_what_is_not_whole_is_not_kept),
        cmocka_unit_test(test_those_that_a_child_kept_are_found),
        cmocka_unit_test(test_those_of_before_a_restart_are_found),
        cmocka_unit_test(test_only_so_many_are_kept),
    };
    return cmocka_run_group_tests_name("cgroup_spare", tests, set_up, tear_down);
}
