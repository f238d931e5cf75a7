/* The disk that images wait on is others' too: its free space is looked at before each piece of a
 * layer is written. */
#include "core/image_spool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define BLOCKS 1000u /* of 4096 bytes: a disk's */

static uint64_t blocks_free;

int __wrap_fstatvfs64(int fd, struct statvfs *out); /* what fstatvfs is, with files of any size */

int __wrap_fstatvfs64(int fd, struct statvfs *out)
{
    *out = (struct statvfs){.f_frsize = 4096,
                            .f_bsize = 4096,
                            .f_blocks = BLOCKS,
                            .f_bfree = blocks_free,
                            .f_bavail = blocks_free};
    return 0;
}

static off_t size_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return st.st_size;
}

static void test_a_disk_that_others_fill_meanwhile(void **state)
{
    static const char piece[4 * 4096];
    int fd = memfd_create("layer", MFD_CLOEXEC);
    struct err e = {0};

    assert_true(fd >= 0);
    blocks_free = BLOCKS * IMAGE_SPOOL_FREE_PERCENT / 100 + 4;
    assert_int_equal(image_spool_write(fd, piece, sizeof(piece), 0, &e), ERR_OK);
    assert_int_equal(size_of(fd), sizeof(piece));
    blocks_free--;
    assert_int_equal(image_spool_write(fd, piece, sizeof(piece), 0, &e), ERR_NO_SPACE);
    assert_non_null(strstr(e.text, "less than 5 % free"));
    assert_int_equal(size_of(fd), sizeof(piece));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_disk_that_others_fill_meanwhile)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
