/* The work of cay-unpack before and beside archives: names, and the walls that it reads behind.
 * test/scenario/test_unpack.py has its work on archives. */
#include "base/io.h"
#include "skip.h"
#include "unpack/tree_entry.h"
#include "unpack/walls.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void names_are_cleaned(void **state)
{
    static const struct {
        const char *raw, *clean; /* NULL: refused */
    } cases[] = {
        {"a", "a"},       {"./a//b/", "a/b"},     {"././", ""},  {"", ""},     {"a/./b", "a/b"},
        {"...", "..."},   {".hidden", ".hidden"}, {"/a", NULL},  {"..", NULL}, {"a/..", NULL},
        {"a/../b", NULL}, {"./../a", NULL},       {"//a", NULL},
    };
    char out[TREE_ENTRY_PATH_MAX + 1];
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        enum err_code code = tree_entry_clean(cases[i].raw, out, &e);

        assert_int_equal(code, cases[i].clean ? ERR_OK : ERR_INVALID);
        if (cases[i].clean)
            assert_string_equal(out, cases[i].clean);
    }
}

/* Each is possible where the walls are not, and asked for once on either side. */
static unsigned what_is_possible(const char *tree)
{
    char device[128];
    unsigned bits = 0;
    int fd;

    snprintf(device, sizeof(device), "%s/device", tree);
    fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    bits |= fd >= 0 ? 1u : 0;
    if (fd >= 0)
        close(fd);
    bits |= mknod(device, S_IFCHR | 0600, 0x103) == 0 ? 2u : 0;
    fd = socket(AF_INET, SOCK_STREAM, 0);
    bits |= fd >= 0 ? 4u : 0;
    if (fd >= 0)
        close(fd);
    bits |= mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 8u : 0;
    bits |= kill(getppid(), 0) == 0 ? 16u : 0;
    bits |= setresuid((uid_t)-1, 1, (uid_t)-1) == 0 && setresuid((uid_t)-1, 0, (uid_t)-1) == 0 ? 32u
                                                                                               : 0;
    return bits;
}

/* In a mount namespace of its own in either case: the control must not change the host's. */
static unsigned in_a_child(const char *tree, bool walls)
{
    int tube[2], status;
    unsigned bits = 0;
    pid_t pid;

    assert_int_equal(pipe(tube), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const char *what;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            (walls && walls_enter(tree, &what) < 0))
            _exit(1);
        bits = what_is_possible(walls ? "" : tree) | 64u;
        _exit(write(tube[1], &bits, sizeof(bits)) == sizeof(bits) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(tube[0], &bits, sizeof(bits)), sizeof(bits));
    close(tube[0]);
    close(tube[1]);
    return bits;
}

static void behind_its_walls_is_nothing_but_the_tree(void **state)
{
    char tree[] = "/tmp/cay-test-XXXXXX", device[64];

    NEEDS_ROOT;
    assert_non_null(mkdtemp(tree));
    snprintf(device, sizeof(device), "%s/device", tree);
    assert_int_equal(in_a_child(tree, false), 127);
    assert_int_equal(unlink(device), 0);
    assert_int_equal(in_a_child(tree, true), 64);
    assert_int_equal(rmdir(tree), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_cleaned),
        cmocka_unit_test(behind_its_walls_is_nothing_but_the_tree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
