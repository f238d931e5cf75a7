/* Archives of tar's, made by tar with the options of a dump, and unpacked without it. */
#include "checkpoint/plain_tar.h"

#include "base/io.h"
#include "base/util.h"
#include "skip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MADE                                                                                     \
    "mkdir -p run/a/b dev/shm; printf one >run/a/f; test $(id -u) != 0 || chown 12:34 run/a/f; " \
    "chmod 4751 run/a/f; chmod 1777 dev/shm; "                                                   \
    "head -c 1500 /dev/zero | tr '\\0' x >dev/shm/g; : >run/none; chmod 500 run/a/b; "           \
    "touch -d @1000000007 run/a/f run/a; "

struct world {
    char base[64];
    int root_fd, tar_fd;
};

static void run_in(const struct world *w, const char *text)
{
    char command[1024];

    snprintf(command, sizeof(command), "set -e; cd %s/from; %s", w->base, text);
    assert_int_equal(system(command), 0);
}

/* An archive of what the text makes. */
static struct world world_of(const char *text)
{
    struct world w = {.base = "/tmp/cay-test-tar-XXXXXX"};
    char path[160];

    assert_non_null(mkdtemp(w.base));
    snprintf(path, sizeof(path), "mkdir %.60s/from %.60s/to", w.base, w.base);
    assert_int_equal(system(path), 0);
    run_in(&w, text);
    run_in(&w, "tar -cf ../tar --numeric-owner --sparse --one-file-system run dev/shm");
    snprintf(path, sizeof(path), "%s/to/", w.base);
    w.root_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/tar", w.base);
    w.tar_fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(w.root_fd >= 0 && w.tar_fd >= 0);
    assert_int_equal(mkdirat(w.root_fd, "dev", 0755), 0);
    return w;
}

static void world_end(const struct world *w)
{
    run_in(w, "cd /; chmod -R u+rwx $OLDPWD/..; rm -r $OLDPWD/../to $OLDPWD/../tar");
    run_in(w, "cd ..; rm -r from; rmdir $PWD");
    close(w->root_fd);
    close(w->tar_fd);
}

static void it_is_as_tar_makes_it(void **state UNUSED)
{
    struct world w = world_of(MADE);

    assert_int_equal(plain_tar_unpack(w.tar_fd, w.root_fd), 0);
    /* all that tar keeps, in its own words */
    run_in(&w,
           "l() { find run dev/shm -printf '%p %y %m %U %G %s %Ts\\n' | sed 's/ d \\(.*\\) [0-9]* "
           "/ d \\1 /'"
           " | sort; }; l >../a; cd ../to; l >../b; cd ..; cmp a b; cmp from/run/a/f to/run/a/f;"
           " cmp from/dev/shm/g to/dev/shm/g; rm a b");
    /* and once more over what is there */
    assert_int_equal(plain_tar_unpack(w.tar_fd, w.root_fd), 0);
    world_end(&w);
}

static void others_are_left_to_tar(void **state UNUSED)
{
    static const char *const more[] = {
        "ln -s a run/link",
        "ln run/a/f run/hard",
        "mkfifo run/fifo",
        "truncate -s 1M run/hole",
        "mkdir -p run/volumes/0",
        "touch -d 1960-01-01 run/old",
        "touch run/$(printf %0120d 1)",
        "head -c 200000 /dev/zero | tr '\\0' x >run/large",
    };

    for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
        char text[1024];
        snprintf(text, sizeof(text), MADE "%s", more[i]);
        struct world w = world_of(text);
        assert_int_equal(plain_tar_unpack(w.tar_fd, w.root_fd), 1);
        assert_int_equal(faccessat(w.root_fd, "run", F_OK, 0), -1);
        world_end(&w);
    }
}

static void damage_is_left_to_tar(void **state UNUSED)
{
    struct world w = world_of(MADE);
    char byte;

    /* of each field of the first two heads, and a cut in each block */
    for (off_t at = 0; at < 1024; at += 7) {
        assert_int_equal(pread(w.tar_fd, &byte, 1, at), 1);
        byte ^= 1;
        assert_int_equal(pwrite(w.tar_fd, &byte, 1, at), 1);
        assert_int_equal(plain_tar_unpack(w.tar_fd, w.root_fd), 1);
        byte ^= 1;
        assert_int_equal(pwrite(w.tar_fd, &byte, 1, at), 1);
    }
    for (off_t n = 2048; n >= 0; n -= 500) {
        assert_int_equal(ftruncate(w.tar_fd, n), 0);
        assert_int_equal(plain_tar_unpack(w.tar_fd, w.root_fd), 1);
    }
    assert_int_equal(faccessat(w.root_fd, "run", F_OK, 0), -1);
    world_end(&w);
}

static void it_goes_through_no_link(void **state UNUSED)
{
    struct world w = world_of(MADE);

    assert_int_equal(mkdirat(w.root_fd, "else", 0755), 0);
    assert_int_equal(symlinkat("else", w.root_fd, "run"), 0);
    assert_int_equal(plain_tar_unpack(w.tar_fd, w.root_fd), -ELOOP);
    assert_int_equal(unlinkat(w.root_fd, "else", AT_REMOVEDIR), 0); /* it is empty */
    world_end(&w);
}

static void it_stays_below_its_root(void **state UNUSED)
{
    struct world w = world_of(MADE);

    run_in(&w, "tar -cPf ../tar --transform 's,^run/a/f,../out,' run dev/shm");
    assert_int_equal(plain_tar_unpack(w.tar_fd, w.root_fd), -EXDEV);
    run_in(&w, "test ! -e ../out");
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_as_tar_makes_it),   cmocka_unit_test(others_are_left_to_tar),
        cmocka_unit_test(damage_is_left_to_tar),   cmocka_unit_test(it_goes_through_no_link),
        cmocka_unit_test(it_stays_below_its_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
