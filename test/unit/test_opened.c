/* Images that stay opened (privd/opened.h): for whom, how many, and how long. Memory files stand for their directories. */
#include "base/clock.h"
#include "privd/opened.h"
#include "privd/privd.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static struct privd privd;

static struct runtime_image of_owner(uint8_t owner)
{
    return (struct runtime_image){.owner = {owner}, .template_number = 3, .template_made_ms = 5};
}

static struct runtime_opened files(uint64_t inode, uint64_t held_bytes)
{
    int fd = memfd_create("image", MFD_CLOEXEC);

    assert_true(fd >= 0);
    return (struct runtime_opened){
        .fd = fd, .inode = inode, .bytes = 1, .changed_ns = 7, .held_bytes = held_bytes};
}

static int put(uint32_t kept, uint8_t owner, uint64_t inode, uint64_t held_bytes)
{
    struct runtime_image image = of_owner(owner);
    struct runtime_opened f = files(inode, held_bytes);

    opened_put(&privd, kept, &image, &f);
    return f.fd;
}

static int get(uint32_t kept, uint8_t owner)
{
    struct runtime_image image = of_owner(owner);

    return opened_get(&privd, kept, &image).fd;
}

static bool is_closed(int fd)
{
    return fcntl(fd, F_GETFD) < 0 && errno == EBADF;
}

static int set_up(void **state)
{
    return loop_init(&privd.loop);
}

static int forget_all(void **state)
{
    opened_forget_all(&privd);
    return 0;
}

static int tear_down(void **state)
{
    loop_free(&privd.loop);
    return 0;
}

static void it_is_for_the_same_alone(void **state)
{
    struct runtime_image other = of_owner(1), older = of_owner(1);
    int fd = put(7, 1, 11, MIB);

    assert_int_equal(get(7, 1), fd);
    assert_int_equal(get(7, 2), -1);
    assert_int_equal(get(8, 1), -1);
    other.template_number = 4;
    assert_int_equal(opened_get(&privd, 7, &other).fd, -1);
    older.template_made_ms = 4;
    assert_int_equal(opened_get(&privd, 7, &older).fd, -1);
    opened_forget(&privd, 8);
    assert_int_equal(get(7, 1), fd);
    opened_forget(&privd, 7);
    assert_int_equal(get(7, 1), -1);
    assert_true(is_closed(fd));
}

/* Two starts at a time have each opened it, or one was given what there was and gives it back. */
static void a_second_of_the_same_file_is_closed(void **state)
{
    int first = put(7, 1, 11, MIB), second = put(7, 1, 11, MIB);

    assert_int_equal(get(7, 1), first);
    assert_true(is_closed(second));
}

static void one_of_a_file_that_changed_is_it_from_then_on(void **state)
{
    int first = put(7, 1, 11, MIB), second = put(7, 1, 12, MIB);

    assert_int_equal(get(7, 1), second);
    assert_true(is_closed(first));
}

static void the_number_of_another_owner_before_is_used_again(void **state)
{
    int first = put(7, 1, 11, MIB), second = put(7, 2, 11, MIB);

    assert_true(is_closed(first));
    assert_int_equal(get(7, 2), second);
}

static void the_longest_unused_goes_for_one_too_many(void **state)
{
    int fds[OPENED_MAX];

    for (uint32_t i = 0; i < OPENED_MAX; i++)
        fds[i] = put(10 + i, 1, 11, MIB);
    privd.opened.all[0].used_ms = privd.opened.all[1].used_ms + 5;
    privd.opened.all[1].used_ms -= 5;
    uint32_t oldest = privd.opened.all[1].kept;
    int fd = put(20, 1, 11, MIB);
    assert_int_equal(get(20, 1), fd);
    assert_int_equal(get(oldest, 1), -1);
    for (uint32_t i = 0; i < OPENED_MAX; i++)
        if (10 + i != oldest)
            assert_int_equal(get(10 + i, 1), fds[i]);
}

static void all_together_have_a_bound(void **state)
{
    int fd = put(7, 1, 11, OPENED_BYTES);

    assert_int_equal(get(7, 1), fd);
    int second = put(8, 1, 11, 1);
    assert_true(is_closed(fd));
    assert_int_equal(get(8, 1), second);
    assert_true(is_closed(put(9, 1, 11, OPENED_BYTES + 1)));
    assert_int_equal(get(9, 1), -1);
    assert_int_equal(get(8, 1), second);
}

static void it_goes_a_minute_after_its_last_use(void **state)
{
    int fd = put(7, 1, 11, MIB);
    uint64_t used_ms = privd.opened.all[0].kept ? privd.opened.all[0].used_ms : clock_mono_ms();

    opened_sweep(&privd, used_ms + OPENED_MS - 1);
    assert_int_equal(get(7, 1), fd); /* a use */
    for (size_t i = 0; i < OPENED_MAX; i++)
        if (privd.opened.all[i].kept)
            used_ms = privd.opened.all[i].used_ms;
    opened_sweep(&privd, used_ms + OPENED_MS);
    assert_int_equal(get(7, 1), -1);
    assert_true(is_closed(fd));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(it_is_for_the_same_alone, forget_all),
        cmocka_unit_test_teardown(a_second_of_the_same_file_is_closed, forget_all),
        cmocka_unit_test_teardown(one_of_a_file_that_changed_is_it_from_then_on, forget_all),
        cmocka_unit_test_teardown(the_number_of_another_owner_before_is_used_again, forget_all),
        cmocka_unit_test_teardown(the_longest_unused_goes_for_one_too_many, forget_all),
        cmocka_unit_test_teardown(all_together_have_a_bound, forget_all),
        cmocka_unit_test_teardown(it_goes_a_minute_after_its_last_use, forget_all),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
