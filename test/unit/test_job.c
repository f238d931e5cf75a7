/* The work of cay-job on trees, templates and package sources, in a directory of the test's own. */
#include "base/io.h"
#include "base/log.h"
#include "contract/meta.h"
#include "job/kinds.h"
#include "job/layers.h"
#include "job/node.h"
#include "job/run.h"
#include "job/say.h"
#include "job/sources.h"
#include "job/template.h"
#include "job/tree.h"
#include "job/usr.h"
#include "skip.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];

static int set_up(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/cay-test-XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    return chdir("/") == 0 ? tree_remove(dir) : -1;
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static void put(const char *path, mode_t mode, const char *text)
{
    assert_int_equal(tree_put_text(path, mode, text), 0);
}

/* -- Node -------------------------------------------------------------------------------------- */

/* In a network namespace of its own, so that there is none. A template can be made without it, and says why. */
static void without_the_registry_a_tree_has_no_node(void **state)
{
    char why[NODE_WHY_SIZE];
    int status;
    pid_t pid;

    NEEDS_ROOT;
    assert_int_equal(mkdir("tree", 0755) | mkdir("work", 0755), 0);
    pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET) < 0 || node_install("tree", "work", why) != 1)
            _exit(1);
        _exit(strstr(why, "Node 22") && strstr(why, "cannot be fetched") ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_false(exists("tree/usr"));
}

/* -- trees ------------------------------------------------------------------------------------- */

static void removing_follows_no_link(void **state)
{
    assert_int_equal(mkdir("tree", 0755) | mkdir("outside", 0755) | mkdir("tree/deep", 0700), 0);
    put("outside/stays", 0644, "x");
    put("tree/deep/goes", 0000, "x");
    assert_int_equal(symlink("../outside", "tree/link"), 0);
    assert_int_equal(symlink("/nowhere", "tree/dangling"), 0);
    assert_int_equal(tree_remove("tree"), 0);
    assert_false(exists("tree"));
    assert_true(exists("outside/stays"));
    assert_int_equal(tree_remove("tree"), 0); /* an absent tree is gone */
}

static void a_link_is_removed_not_what_it_leads_to(void **state)
{
    assert_int_equal(mkdir("outside", 0755), 0);
    put("outside/stays", 0644, "x");
    assert_int_equal(symlink("outside", "link"), 0);
    assert_int_equal(tree_remove("link"), 0);
    assert_false(exists("link"));
    assert_true(exists("outside/stays"));
}

static void what_not_everybody_may_read_is_not_copied(void **state)
{
    char text[16];

    assert_int_equal(mkdir("from", 0755) | mkdir("from/open", 0755) | mkdir("from/closed", 0700),
                     0);
    put("from/open/readable", 0644, "yes");
    put("from/open/secret", 0600, "no");
    put("from/open/group", 0640, "no");
    put("from/closed/readable", 0644, "no");
    assert_int_equal(symlink("open/readable", "from/link"), 0);
    assert_int_equal(mkfifo("from/pipe", 0666), 0);
    assert_int_equal(tree_copy("from", "to"), 0);
    assert_int_equal(io_read_text_at(AT_FDCWD, "to/open/readable", text, sizeof(text)), 3);
    assert_string_equal(text, "yes");
    assert_false(exists("to/open/secret"));
    assert_false(exists("to/open/group"));
    assert_false(exists("to/closed"));
    assert_false(exists("to/pipe"));
    assert_int_equal(readlink("to/link", text, sizeof(text)), 13);
    assert_int_equal(tree_copy("absent", "to2"), 0);
    assert_false(exists("to2"));
}

/* Makes and removes files and links of from/ until it is killed. */
static void change_all_the_time(void)
{
    for (;;)
        for (unsigned i = 0; i < 128; i++) {
            char path[32];
            int fd;

            snprintf(path, sizeof(path), "from/%u", i % 64);
            if (i >= 64)
                (void)unlink(path);
            else if (i % 2)
                (void)!symlink("target", path);
            else if ((fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) >= 0)
                close(fd);
        }
}

/* A package manager removes files of the host while they are copied: they are left out. */
static void files_that_vanish_meanwhile_are_left_out(void **state)
{
    int failed = 0;
    pid_t pid;

    assert_int_equal(mkdir("from", 0755), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        change_all_the_time();
    for (unsigned i = 0; i < 500 && failed == 0; i++) {
        failed = tree_copy("from", "to");
        assert_int_equal(tree_remove("to"), 0);
    }
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(failed, 0);
}

/* A set-id bit of the host's does not travel. */
static void modes_are_bounded(void **state)
{
    struct stat st;

    assert_int_equal(mkdir("from", 0755), 0);
    put("from/program", 06755, "x");
    assert_int_equal(chmod("from/program", 06755), 0);
    assert_int_equal(tree_copy("from", "to"), 0);
    assert_int_equal(stat("to/program", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
}

/* A file is never written through a link that stands in its place. */
static void writing_replaces_links(void **state)
{
    char text[16];

    put("victim", 0644, "before");
    assert_int_equal(symlink("victim", "name"), 0);
    put("name", 0600, "after");
    assert_int_equal(io_read_text_at(AT_FDCWD, "victim", text, sizeof(text)), 6);
    assert_string_equal(text, "before");
}

/* -- templates --------------------------------------------------------------------------------- */

static void build_one(uint32_t number, const char *fingerprint, const char *content)
{
    assert_int_equal(template_begin(number), 0);
    assert_int_equal(template_enter(number), 0);
    put("content", 0644, content);
    assert_int_equal(template_leave(), 0);
    assert_int_equal(template_commit(number, fingerprint, 0), 0);
}

static void a_template_is_there_when_it_is_whole(void **state)
{
    char text[16];

    assert_int_equal(template_begin(5), 0);
    assert_false(exists("5"));
    assert_true(exists(".build-5/rootfs"));
    template_abandon(5);
    assert_false(exists(".build-5"));
    build_one(5, "one", "first");
    assert_true(exists("5/" META_FILE) && !exists(".build-5"));
    assert_true(template_is_current(5, "one"));
    assert_false(template_is_current(5, "two"));
    assert_false(template_is_current(6, "one"));
    build_one(5, "two", "second");
    assert_int_equal(io_read_text_at(AT_FDCWD, "5/rootfs/content", text, sizeof(text)), 6);
    assert_string_equal(text, "second");
    assert_int_equal(layers_remove_template(5), 0);
    assert_false(exists("5"));
    assert_int_equal(layers_remove_template(5), -ENOENT);
}

/* As host is refreshed while sandboxes start. Control: with two renames, the old one out and the new
 * one in, the reader finds no template within the first few rounds. */
static void a_template_that_is_replaced_is_never_missing(void **state)
{
    int status;

    build_one(1, "0", "x");
    pid_t reader = fork();
    if (reader == 0) {
        while (exists("1/rootfs"))
            if (exists("done"))
                _exit(0);
        _exit(1);
    }
    assert_true(reader > 0);
    for (int i = 0; i < 100; i++)
        build_one(1, "1", "y");
    put("done", 0644, "");
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
    assert_int_equal(unlink("done") | template_sweep() | tree_remove("1"), 0);
}

static void the_sweep_takes_what_is_left_and_nothing_else(void **state)
{
    build_one(1, "a", "x");
    build_one(1, "b", "y"); /* leaves .old-1-... */
    assert_int_equal(mkdir(".build-2", 0755), 0);
    put(".build-2/half", 0644, "x");
    assert_int_equal(template_begin(3), 0); /* under way: locked */
    assert_int_equal(template_sweep(), 0);
    assert_true(exists("1/rootfs/content") && exists(".build-3"));
    assert_false(exists(".build-2"));
    assert_int_equal(rmdir(".build-3/rootfs") | rmdir(".build-3"), 0);
    assert_int_equal(tree_remove("1"), 0);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing else was left */
    assert_int_equal(mkdir(dir, 0700) | chdir(dir), 0);
}

/* As privd starts them: the sweep once no sandbox is left, and a client's wish to remove the template. */
static void a_sweep_beside_a_removal_takes_nothing_from_it(void **state)
{
    for (int i = 0; i < 40; i++) {
        char path[48];
        pid_t sweeper;
        int status;

        build_one(1, "a", "x");
        for (int n = 0; n < 40; n++) {
            snprintf(path, sizeof(path), "1/rootfs/dir%d", n);
            assert_int_equal(mkdir(path, 0755), 0);
        }
        sweeper = fork();
        if (sweeper == 0) {
            int r = 0;

            while (r == 0 && exists("1"))
                r = template_sweep();
            _exit(r < 0 || template_sweep() < 0);
        }
        assert_true(sweeper > 0);
        assert_int_equal(layers_remove_template(1), 0);
        assert_int_equal(waitpid(sweeper, &status, 0), sweeper);
        assert_int_equal(status, 0);
    }
}

static void every_template_has_the_user_and_sudo(void **state)
{
    struct stat st;

    NEEDS_ROOT;
    assert_int_equal(mkdir("etc", 0755) | mkdir("etc/skel", 0755), 0);
    put("etc/skel/.bashrc", 0644, "# mine\n");
    assert_int_equal(account_put(), 0);
    assert_int_equal(stat("etc/sudoers", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0440);
    assert_int_equal(stat("home/user/.bashrc", &st), 0);
    assert_true(st.st_uid == 1000 && st.st_gid == 1000);
    assert_int_equal(stat("root", &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat("tmp", &st), 0);
    assert_int_equal(st.st_mode & 07777, 01777);
}

/* -- package sources --------------------------------------------------------------------------- */

static void only_sources_of_the_suite_are_used(void **state)
{
    char text[4096];

    assert_int_equal(mkdir("apt", 0755) | mkdir("apt/sources.list.d", 0755) | mkdir("out", 0755),
                     0);
    put("apt/sources.list", 0644,
        "# deb http://commented bookworm main\n"
        "deb [arch=amd64 signed-by=/k] http://one bookworm main\n"
        "deb-src http://src bookworm main\n"
        "deb http://two bookworm-updates main\n"
        "deb http://other trixie main\n"
        "deb http://longer bookwormish main\n");
    put("apt/sources.list.d/x.list", 0644, "deb https://vendor cloud-sdk-bookworm main\n");
    put("apt/sources.list.d/d.sources", 0644,
        "# comment\nTypes: deb\nURIs: http://three\nSuites: bookworm bookworm-security\n"
        "Components: main\n\n"
        "Types: deb\nURIs: http://off\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
        "Types: deb\nURIs: http://vendor2\nSuites: nodistro\nComponents: main\n");
    put("apt/sources.list.d/ignored.save", 0644, "deb http://saved bookworm main\n");
    assert_int_equal(sources_collect("bookworm", "apt", "out"), 2);
    assert_true(io_read_text_at(AT_FDCWD, "out/1.list", text, sizeof(text)) > 0);
    assert_string_equal(text, "deb [arch=amd64 signed-by=/k] http://one bookworm main\n"
                              "deb http://two bookworm-updates main");
    assert_true(io_read_text_at(AT_FDCWD, "out/2.sources", text, sizeof(text)) > 0);
    assert_non_null(strstr(text, "http://three"));
    assert_null(strstr(text, "http://off"));
    assert_null(strstr(text, "vendor2"));
    assert_int_equal(sources_collect("sid", "apt", "out"), 0);
}

/* -- programs ---------------------------------------------------------------------------------- */

struct said {
    int lines;
    char last[RUN_LINE_MAX];
};

static void on_line(void *arg, const char *line)
{
    struct said *s = arg;

    s->lines++;
    snprintf(s->last, sizeof(s->last), "%s", line);
}

static void a_program_is_run_and_heard(void **state)
{
    static char sh[] = "/bin/sh", c[] = "-c", script[] = "echo one; echo two >&2; exit 7",
                missing[] = "/no/such/program", kill[] = "kill -9 $$";
    char *argv[] = {sh, c, script, NULL}, *none[] = {missing, NULL},
         *killed[] = {sh, c, kill, NULL};
    struct said s = {0};

    assert_int_equal(run_program(argv, on_line, &s), 7);
    assert_int_equal(s.lines, 2);
    assert_string_equal(s.last, "two");
    assert_int_equal(run_program(none, on_line, &s), 127);
    assert_int_equal(run_program(killed, on_line, &s), 128 + 9);
}

#define IN_DIRECTORY(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)

/* -- what of /usr is hidden ---------------------------------------------------------------------- */

static bool is_whiteout(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == 0;
}

static int count_hidden(void *arg, const char *path)
{
    ++*(int *)arg;
    return 0;
}

static void what_not_everybody_may_read_is_hidden(void **state)
{
    static const char *const dirs[] = {
        "usr",           "usr/bin",       "usr/lib",       "usr/lib/deep",   "usr/local",
        "usr/local/lib", "usr/local/etc", "usr/local/opt", "usr/lib/closed", "mask"};
    struct stat st;
    int n = 0;

    NEEDS_ROOT;
    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
        assert_int_equal(tree_put_dir(dirs[i], 0755, 0, 0), 0);
    assert_int_equal(tree_put_dir("usr/lib/deep", 02775, 0, 50), 0);
    assert_int_equal(tree_put_dir("usr/lib/closed", 0710, 0, 0), 0);
    put("usr/bin/open", 04755, "");
    put("usr/bin/closed", 0750, "");
    put("usr/lib/deep/secret", 0600, "");
    put("usr/lib/deep/open", 0644, "");
    put("usr/lib/closed/open", 0644, "");
    put("usr/local/lib/secret", 0640, "");
    put("usr/local/lib/open", 0604, "");
    put("usr/local/etc/open", 0644, "");
    put("usr/local/token", 0644, "");
    assert_int_equal(mkfifo("usr/lib/pipe", 0666), 0);
    assert_int_equal(symlink("../secret", "usr/bin/link"), 0);
    assert_int_equal(usr_put_mask("usr", "mask"), 0);
    assert_true(is_whiteout("mask/bin/closed") && is_whiteout("mask/lib/deep/secret"));
    assert_true(is_whiteout("mask/lib/closed") && is_whiteout("mask/lib/pipe"));
    assert_true(is_whiteout("mask/local/lib/secret") && is_whiteout("mask/local/etc"));
    assert_true(is_whiteout("mask/local/opt") && is_whiteout("mask/local/token"));
    assert_false(exists("mask/bin/open") || exists("mask/bin/link") ||
                 exists("mask/lib/deep/open"));
    assert_false(exists("mask/local/lib/open"));
    assert_int_equal(stat("mask/lib/deep", &st), 0);
    assert_int_equal(st.st_mode & 07777, 02775);
    assert_int_equal(st.st_gid, 50);
    assert_int_equal(usr_each_hidden("usr", true, count_hidden, &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(usr_each_hidden("mask", true, count_hidden, &n), 0);
    assert_int_equal(usr_each_hidden("none", false, count_hidden, &n), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(removing_follows_no_link),
        IN_DIRECTORY(a_link_is_removed_not_what_it_leads_to),
        IN_DIRECTORY(what_not_everybody_may_read_is_not_copied),
        IN_DIRECTORY(files_that_vanish_meanwhile_are_left_out),
        IN_DIRECTORY(modes_are_bounded),
        IN_DIRECTORY(writing_replaces_links),
        IN_DIRECTORY(a_template_is_there_when_it_is_whole),
        IN_DIRECTORY(a_template_that_is_replaced_is_never_missing),
        IN_DIRECTORY(the_sweep_takes_what_is_left_and_nothing_else),
        IN_DIRECTORY(a_sweep_beside_a_removal_takes_nothing_from_it),
        IN_DIRECTORY(every_template_has_the_user_and_sudo),
        IN_DIRECTORY(only_sources_of_the_suite_are_used),
        IN_DIRECTORY(without_the_registry_a_tree_has_no_node),
        IN_DIRECTORY(what_not_everybody_may_read_is_hidden),
        cmocka_unit_test(a_program_is_run_and_heard),
    };

    say_to(open("/dev/null", O_WRONLY | O_CLOEXEC));
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
