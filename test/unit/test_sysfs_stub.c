/* The contents of sandboxes' /sys. */
#include "runtime/sysfs_stub.h"

#include "base/io.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

static char dir[64];
static int dir_fd = -1;
static unsigned n_files, n_names;

static int open_view(void)
{
    int fd = sysfs_stub_open(dir_fd);
    assert_true(fd >= 0);
    return fd;
}

static void expect_text(int fd, const char *path, const char *want)
{
    char text[4096];
    assert_true(io_read_text_at(fd, path, text, sizeof(text)) >= 0);
    assert_string_equal(text, want);
}

static void test_it_says_what_the_host_says(void **state)
{
    char online[4096];
    CLEANUP_CLOSE int fd = open_view();
    assert_true(
        io_read_text_at(AT_FDCWD, "/sys/devices/system/cpu/online", online, sizeof(online)) > 0);
    expect_text(fd, "sys/devices/system/cpu/online", online);
    expect_text(fd, "sys/class/net/lo/mtu", "65536");
    assert_int_equal(faccessat(fd, "sys/devices/system/cpu/cpu0/topology/core_id", R_OK, 0), 0);
    assert_int_equal(faccessat(fd, "sys/fs/cgroup", F_OK, 0), -1);
}

static int look(const char *path, const struct stat *st, int type, struct FTW *at)
{
    static const char *const never[] = {"uevent", "power", "meminfo", "hugepages-2048kB", "stats"};
    n_names++;
    if (type == FTW_SL || strstr(path, "/sys/power"))
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(never); i++)
        if (strcmp(path + at->base, never[i]) == 0)
            fail_msg("%s", path);
    n_files += type == FTW_F;
    if ((st->st_mode & 0777) != (type == FTW_F    ? 0444u
                                 : at->level == 1 ? 0700u
                                                  : 0755u) &&
        at->level > 0)
        fail_msg("%s: mode %o", path, (unsigned)st->st_mode);
    return 0;
}

static void test_nothing_else_is_in_it_and_all_may_read_it(void **state)
{
    mode_t before = umask(077);
    CLEANUP_CLOSE int fd = open_view();
    umask(before);
    assert_int_equal(faccessat(fd, "sys", R_OK, 0), 0);
    n_files = 0;
    assert_int_equal(nftw(dir, look, 16, FTW_PHYS), 0);
    assert_true(n_files > 20);
}

static void test_it_is_made_once(void **state)
{
    struct stat a, b;
    CLEANUP_CLOSE int first = open_view();
    assert_int_equal(nftw(dir, look, 16, FTW_PHYS), 0);
    unsigned names = n_names;
    CLEANUP_CLOSE int second = open_view();
    assert_int_equal(fstat(first, &a), 0);
    assert_int_equal(fstat(second, &b), 0);
    assert_true(a.st_ino == b.st_ino);
    n_names = 0;
    assert_int_equal(nftw(dir, look, 16, FTW_PHYS), 0);
    assert_true(n_names > 0 && n_names <= names);
    assert_int_equal(faccessat(dir_fd, "sysview/new", F_OK, 0), -1);
}

/* A file that a crash has left half made is made whole. */
static void test_a_half_made_one_is_made_whole(void **state)
{
    char command[160];
    snprintf(command, sizeof(command),
             "cd %s/sysview && for d in *; do mv $d new; done && rm -r new/sys/class", dir);
    assert_int_equal(system(command), 0);
    CLEANUP_CLOSE int fd = open_view();
    expect_text(fd, "sys/class/net/lo/mtu", "65536");
}

static int set_up(void **state)
{
    snprintf(dir, sizeof(dir), "/var/tmp/cay-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir_fd < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_else_is_in_it_and_all_may_read_it),
        cmocka_unit_test(test_it_says_what_the_host_says),
        cmocka_unit_test(test_it_is_made_once),
        cmocka_unit_test(test_a_half_made_one_is_made_whole),
    };
    return cmocka_run_group_tests_name("sysview", tests, set_up, tear_down);
}
