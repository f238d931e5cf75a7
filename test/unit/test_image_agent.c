/* The program of PID 1 of a memory image (runtime/image_agent.h): the server's own where it has the
 * same bytes, and else a copy of the image's. */
#include "runtime/image_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 200000 /* more than is compared at a time, and no multiple of it */

static char text[BYTES], dir[64];
static int dir_fd, agent_fd;

static void put(int fd, const char *bytes, size_t n)
{
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
}

static void put_program(const char *bytes, size_t n)
{
    int fd = openat(dir_fd, "cay-init", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    put(fd, bytes, n);
    close(fd);
}

static int set_up(void **state)
{
    (void)state;
    memset(text, 'a', sizeof(text));
    snprintf(dir, sizeof(dir), "/tmp/test_image_agent.XXXXXX");
    assert_non_null(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    agent_fd = memfd_create("agent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    put(agent_fd, text, sizeof(text));
    return dir_fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlinkat(dir_fd, "cay-init", 0);
    close(dir_fd);
    close(agent_fd);
    return rmdir(dir);
}

static struct stat status_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return st;
}

/* The server's file, by a description that has no part in its own. */
static void is_the_servers(int fd)
{
    assert_true(fd >= 0);
    assert_int_equal(status_of(fd).st_ino, status_of(agent_fd).st_ino);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
    assert_int_equal(lseek(agent_fd, 0, SEEK_CUR), BYTES);
    close(fd);
}

static void is_a_copy(int fd, const char *bytes, size_t n)
{
    static char found[BYTES + 1];

    assert_true(fd >= 0);
    assert_int_not_equal(status_of(fd).st_ino, status_of(agent_fd).st_ino);
    assert_int_equal(status_of(fd).st_mode & 07777, 0111);
    assert_int_equal(pread(fd, found, sizeof(found), 0), n);
    assert_memory_equal(found, bytes, n);
    assert_int_equal(fcntl(fd, F_GET_SEALS),
                     F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    close(fd);
}

static int take(uint64_t *same)
{
    return image_agent_take(dir_fd, geteuid(), agent_fd, same);
}

static void test_the_same_bytes_are_the_servers_file(void **state)
{
    uint64_t same = 0;

    (void)state;
    put_program(text, sizeof(text));
    is_the_servers(take(&same));
    assert_int_equal(same, status_of(agent_fd).st_ino);
    is_the_servers(take(&same));
}

static void test_each_other_byte_is_a_copy(void **state)
{
    static const size_t places[] = {0, 65535, 65536, BYTES - 1};

    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        static char other[BYTES];
        uint64_t same = 0;

        memcpy(other, text, sizeof(other));
        other[places[i]] = 'b';
        put_program(other, sizeof(other));
        is_a_copy(take(&same), other, sizeof(other));
        assert_int_equal(same, 0);
    }
}

static void test_another_length_is_a_copy(void **state)
{
    uint64_t same = 0;

    (void)state;
    put_program(text, BYTES - 1);
    is_a_copy(take(&same), text, BYTES - 1);
}

/* A cay-init that the server has no more says nothing of its new one. */
static void test_it_is_looked_at_again_after_an_upgrade(void **state)
{
    uint64_t same = status_of(agent_fd).st_ino + 1;

    (void)state;
    put_program("other", 5);
    is_a_copy(take(&same), "other", 5);
    assert_int_equal(same, 0);
}

static void test_an_older_image_has_none(void **state)
{
    uint64_t same = 0;

    (void)state;
    is_the_servers(take(&same));
}

static void test_nothing_but_a_file_is_taken(void **state)
{
    uint64_t same = 0;

    (void)state;
    put_program("", 0);
    assert_int_equal(take(&same), -ENOEXEC);
    assert_int_equal(unlinkat(dir_fd, "cay-init", 0), 0);
    assert_int_equal(symlinkat("/bin/true", dir_fd, "cay-init"), 0);
    assert_int_equal(take(&same), -ELOOP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_same_bytes_are_the_servers_file, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_each_other_byte_is_a_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_length_is_a_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_looked_at_again_after_an_upgrade, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_an_older_image_has_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_but_a_file_is_taken, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
