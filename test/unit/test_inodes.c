/* Where inode numbers of templates begin, on a btrfs of the test's own, which is mounted again. As root, on a loop image. */
#include "job/inodes.h"

#include "base/log.h"
#include "job/say.h"
#include "runtime/disk.h"
#include "skip.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define FIRST 3000u

static char state_dir[64];
static struct runtime_config config = {
    .state_dir = state_dir, .disk = RUNTIME_DISK_BTRFS, .disk_bytes = UINT64_C(512) << 20};
static struct disk disk = {.root_fd = -1};
static int state_fd = -1;
static const char *skip_reason;

#define NEEDS_DISK SKIP_FOR(skip_reason)

/* The number of a new file, which is gone again. */
static uint64_t next(void)
{
    struct stat st;
    int fd = open("probe", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0 && fstat(fd, &st) == 0 && unlink("probe") == 0);
    close(fd);
    return st.st_ino;
}

static uint64_t keeper(void)
{
    struct stat st;

    return lstat("../" INODES_KEEPER, &st) == 0 ? st.st_ino : 0;
}

static unsigned names_beside(void)
{
    unsigned n = 0;
    DIR *dir = opendir("..");

    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_type == DT_REG;
    closedir(dir);
    return n;
}

static void mount_again(void)
{
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(disk_unmount(&disk, state_fd), 0);
    assert_int_equal(disk_open(&config, state_fd, &disk), 0);
    assert_int_equal(fchdir(disk.templates_fd), 0);
}

static void nothing_is_raised_where_that_is_switched_off(void **state)
{
    NEEDS_DISK;
    assert_int_equal(inodes_raise(2, 0), 0);
    assert_int_equal(keeper(), 0);
    assert_true(next() < FIRST);
}

static void new_files_have_numbers_beyond(void **state)
{
    uint64_t kept;

    NEEDS_DISK;
    assert_int_equal(inodes_raise(2, FIRST), 0);
    kept = keeper();
    assert_true(kept >= FIRST && kept <= FIRST + 4);
    assert_true(next() > kept);
    assert_int_equal(names_beside(), 1);
    assert_int_equal(inodes_raise(3, FIRST), 0); /* once is enough */
    assert_int_equal(keeper(), kept);
    assert_true(next() <= kept + 4);
}

/* Of a count that was raised and not kept nothing is left: so the keeper is what keeps it. */
static void a_file_keeps_them_over_a_mount(void **state)
{
    NEEDS_DISK;
    assert_int_equal(inodes_raise(2, FIRST), 0);
    mount_again();
    assert_true(next() > FIRST);
    assert_int_equal(unlink("../" INODES_KEEPER), 0);
    mount_again();
    assert_true(next() < FIRST);
    assert_int_equal(inodes_raise(2, FIRST), 0);
    assert_true(next() > FIRST);
}

static void what_a_killed_job_left_is_no_hindrance(void **state)
{
    NEEDS_DISK;
    (void)unlink("../" INODES_KEEPER);
    close(open("../" INODES_KEEPER "-2", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    assert_int_equal(inodes_raise(2, 2 * FIRST), 0);
    assert_true(keeper() >= (uint64_t)2 * FIRST);
    assert_int_equal(names_beside(), 1);
}

/* A child that is killed when it says for the third time how far it is: one keeper has followed another by then. */
static void a_kill_midway_loses_little(void **state)
{
    int said[2], status;
    char byte;
    pid_t pid;

    NEEDS_DISK;
    assert_int_equal(pipe(said), 0);
    pid = fork();
    if (pid == 0) {
        say_to(said[1]);
        _exit(inodes_raise(2, 100 * INODES_KEEP_EACH) == 0);
    }
    close(said[1]);
    for (unsigned lines = 0; lines < 3; lines += byte == '\n')
        assert_int_equal(read(said[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(said[0]);
    assert_true(WIFSIGNALED(status) && keeper() >= INODES_KEEP_EACH);
    mount_again();
    assert_true(next() > INODES_KEEP_EACH);
}

static int set_up(void **state)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        skip_reason = "needs root and a mount namespace";
        return 0;
    }
    log_init("test", LOG_INFO);
    say_to(2);
    snprintf(state_dir, sizeof(state_dir), "/var/tmp/cay-test-XXXXXX");
    if (!mkdtemp(state_dir))
        return -1;
    state_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (disk_open(&config, state_fd, &disk) < 0)
        skip_reason = "no btrfs here (see above)";
    else if (fchdir(disk.templates_fd) < 0)
        return -1;
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    if (chdir("/") < 0 || (disk.root_fd >= 0 && disk_unmount(&disk, state_fd) < 0))
        return -1;
    snprintf(command, sizeof(command), "rm -rf %s", state_dir);
    return *state_dir && system(command) != 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_raised_where_that_is_switched_off),
        cmocka_unit_test(new_files_have_numbers_beyond),
        cmocka_unit_test(a_file_keeps_them_over_a_mount),
        cmocka_unit_test(what_a_killed_job_left_is_no_hindrance),
        cmocka_unit_test(a_kill_midway_loses_little),
    };
    return cmocka_run_group_tests_name("inodes", tests, set_up, tear_down);
}
