/* Copies of layers, and what the next start must not find in one: the marks of the overlay before,
 * sealed memory, the files with a name. As root, on a loop image. */
#include "runtime/disk.h"
#include "runtime/image.h"

#include "base/log.h"
#include "skip.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>

#define NUMBER 5

static char state_dir[64];
static struct disk disk = {.root_fd = -1};
static int state_fd = -1;
static const char *skip_reason;

#define NEEDS_DISK SKIP_FOR(skip_reason)

static void shell(const char *place, const char *script)
{
    char command[1024];

    snprintf(command, sizeof(command), "cd %s/disk/%s && { %s; }", state_dir, place, script);
    assert_int_equal(system(command), 0);
}

/* A layer that a sandbox has used becomes number NUMBER by a copy. */
static void copy_used_layer(void)
{
    const struct disk_backend *b = disk.backend;

    assert_int_equal(b->layer_make(&disk, 1, 1), 0);
    shell("layers/1.1",
          "mkdir root/etc && touch root/etc/hosts root/etc/hostname root/etc/mine image && "
          "mkdir root/etc/machine-id && touch root/etc/machine-id/x && "
          "for d in root usr; do mkdir -p $d.work/work/incompat/volatile && "
          "touch $d.work/work/incompat/volatile/dirty; done && touch root.work/work/left");
    assert_int_equal(b->layer_copy(&disk, 1, 1, NUMBER), 0);
}

static void drop(uint32_t ahead)
{
    assert_int_equal(disk.backend->kept_drop(&disk, NUMBER, ahead), 0);
    assert_int_equal(disk.backend->layer_destroy(&disk, 1, 1), 0);
}

#define FRESH                                                                             \
    "test -e root/etc/mine && test ! -e root/etc/hosts && test ! -e root/etc/hostname &&" \
    "test ! -e root/etc/machine-id && test -e root/etc/machine-id.1/x && test ! -e image"
#define UNMARKED \
    "test ! -e root.work/work/incompat && test -e root.work/work/left && test ! -e usr.work/work"

static void test_copies_made_ahead_have_nothing_to_forget(void **state)
{
    char place[32];

    NEEDS_DISK;
    copy_used_layer();
    assert_int_equal(disk.backend->kept_copies_ahead(&disk, NUMBER, 3), 0);
    for (uint32_t slot = 2; slot < 5; slot++) {
        assert_int_equal(disk.backend->layer_from(&disk, slot, 1, NUMBER, 3), DISK_FORGOT);
        snprintf(place, sizeof(place), "layers/%u.1", slot);
        shell(place, FRESH " && " UNMARKED);
        assert_int_equal(disk.backend->layer_destroy(&disk, slot, 1), 0);
    }
    drop(3);
}

/* A number of creates that is not true any more forgets nothing by itself. */
static void test_a_copy_of_its_own_is_to_be_forgotten(void **state)
{
    NEEDS_DISK;
    copy_used_layer();
    assert_int_equal(disk.backend->layer_from(&disk, 2, 1, NUMBER, 3), 0);
    shell("layers/2.1", UNMARKED " && test -e root/etc/hosts && test -e image");
    assert_int_equal(disk.backend->layer_forget(&disk, 2, 1), 0);
    shell("layers/2.1", FRESH);
    shell("kept/5", "test -e root/etc/hosts && test -e root.work/work/incompat/volatile/dirty");
    assert_int_equal(disk.backend->layer_destroy(&disk, 2, 1), 0);
    drop(0);
}

static void test_a_layer_that_was_not_used_is_given_back(void **state)
{
    NEEDS_DISK;
    assert_int_equal(disk.backend->layer_make(&disk, 1, 1), 0);
    assert_int_equal(disk.backend->layer_give_back(&disk, 1, 1), 0);
    shell("layers", "test ! -e 1.1");
    shell("spare", "test -d 1.1/usr.work");
    assert_int_equal(disk.backend->layer_make(&disk, 2, 1), 0);
    shell("spare", "test ! -e 1.1");
    shell("layers", "test -d 2.1/usr.work");
    assert_int_equal(disk.backend->layer_destroy(&disk, 2, 1), 0);
}

static int set_up(void **state)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        skip_reason = "needs root and a mount namespace";
        return 0;
    }
    log_init("test", LOG_INFO);
    snprintf(state_dir, sizeof(state_dir), "/var/tmp/cay-test-XXXXXX");
    if (!mkdtemp(state_dir))
        return -1;
    struct runtime_config config = {
        .state_dir = state_dir, .disk = RUNTIME_DISK_BTRFS, .disk_bytes = UINT64_C(512) << 20};
    state_fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (disk_open(&config, state_fd, &disk) < 0)
        skip_reason = "no btrfs here (see above)";
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    if (disk.root_fd >= 0 && disk_unmount(&disk, state_fd) < 0)
        return -1;
    snprintf(command, sizeof(command), "rm -rf %s", state_dir);
    return *state_dir && system(command) != 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_made_ahead_have_nothing_to_forget),
        cmocka_unit_test(test_a_copy_of_its_own_is_to_be_forgotten),
        cmocka_unit_test(test_a_layer_that_was_not_used_is_given_back),
    };
    return cmocka_run_group_tests_name("layer copies", tests, set_up, tear_down);
}
