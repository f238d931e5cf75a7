/* Which layers are used again, and that nothing of a tenant's is in them. As root, on a loop image. */
#include "runtime/disk.h"
#include "runtime/recycled_layer.h"

#include "base/log.h"
#include "skip.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define OWN_INODES 48 /* more than one use of a layer makes */

static char state_dir[64];
static struct disk disk = {.root_fd = -1};
static int state_fd = -1;
static const char *skip_reason;

#define NEEDS_DISK SKIP_FOR(skip_reason)

/* In the layer's directory. */
static void shell(uint32_t slot, const char *script)
{
    char command[1024];
    snprintf(command, sizeof(command), "cd %s/disk/layers/%u.1 && { %s; }", state_dir, slot,
             script);
    assert_int_equal(system(command), 0);
}

static unsigned count(const char *name)
{
    char path[128];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/disk/%s", state_dir, name);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static void make(uint32_t slot)
{
    assert_int_equal(disk.backend->layer_make(&disk, slot, 1), 0);
}

static void destroy(uint32_t slot)
{
    assert_int_equal(disk.backend->layer_destroy(&disk, slot, 1), 0);
}

/* The files that cay makes, and overlay at its mount. */
static void use(uint32_t slot)
{
    shell(slot, "mkdir root/etc && touch root/etc/hosts root/etc/hostname root/etc/machine-id && "
                "for d in root usr; do mkdir -p $d.work/work/incompat/volatile && "
                "touch $d.work/work/incompat/volatile/dirty; done && chmod 0 root.work/work");
}

/* The certificates of the way out, of the sizes of Debian's, which are on the disk by now. */
static void trust(uint32_t slot)
{
    shell(slot, "mkdir -p root/etc/ssl/certs/java && cd root/etc/ssl/certs && "
                "head -c 220000 /dev/urandom > ca-certificates.crt && "
                "head -c 166000 /dev/urandom > java/cacerts && echo mine > cay-egress.pem && "
                "echo A=b > ../../environment && sync -f .");
}

static void forget_recycled(void)
{
    for (uint32_t slot = 900; count("spare") > 0; slot++) {
        make(slot);
        shell(slot, "touch usr/x");
        destroy(slot);
    }
}

static void test_an_unused_layer_is_used_again(void **state)
{
    struct stat st;
    char path[128];
    NEEDS_DISK;
    make(1);
    use(1);
    trust(1);
    shell(1, "echo 127.0.0.1 localhost > root/etc/hosts && chmod 700 root && chown 5:5 usr && "
             "touch -d 2001-01-01 usr");
    snprintf(path, sizeof(path), "%s/disk/layers/1.1/root", state_dir);
    assert_int_equal(setxattr(path, "user.mine", "1", 1, 0), 0);
    destroy(1);
    assert_int_equal(count("layers"), 0);
    assert_int_equal(count("spare"), 1);
    make(2);
    assert_int_equal(count("spare"), 0);
    shell(2, "test \"$(find . | sort | tr '\\n' ' ')\" = '. ./root ./root.work ./usr ./usr.work '");
    for (const char *const *d = disk_layer_dirs; *d; d++) {
        snprintf(path, sizeof(path), "%s/disk/layers/2.1/%s", state_dir, *d);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0755);
        assert_int_equal(st.st_uid, 0);
        assert_true(st.st_mtime > 1000000000);
        assert_int_equal(listxattr(path, NULL, 0), 0);
    }
    destroy(2);
    forget_recycled();
}

static const char *const uses[] = {
    "touch root/x",
    "mkdir root/etc/x",
    "touch root/etc/.wh",
    "mknod root/bin c 0 0",
    "mkdir usr/local",
    "ln -s / usr/lib",
    "rm -r root/etc && ln -s ../../../../victim root/etc",
    "rm -r root/etc && ln -s $PWD/../../../victim root/etc",
    "rm root/etc/hosts && ln -s $PWD/../../../victim/hosts root/etc/hosts",
    "rm root/etc/hosts && mkdir root/etc/hosts",
    "rm root/etc/hosts && mkfifo root/etc/hosts",
    "ln root/etc/hosts root/etc/hosts2",
    "truncate -s 5000 root/etc/hostname",
    "touch root.work/work/x",
    "touch root/etc/ssl/certs/mine.pem",
    "touch root/etc/ssl/openssl.cnf",
    "truncate -s 2000000 root/etc/ssl/certs/ca-certificates.crt",
    "truncate -s 5000 root/etc/environment",
    "rm root/etc/ssl/certs/java/cacerts && mkdir root/etc/ssl/certs/java/cacerts",
    "rm -r root/etc/ssl && ln -s $PWD/../../../victim root/etc/ssl",
    "rm -r root/etc/ssl/certs && ln -s ../../../../../victim root/etc/ssl/certs",
    "mkdir root.work/index",
    "touch beside",
    /* nothing is there any more, but something was */
    "for i in $(seq 60); do touch root/x && rm root/x; done",
    "head -c 4000000 /dev/urandom > root/x && sync -f root/x && rm root/x",
};

static void test_a_layer_that_was_used_is_not_kept(void **state)
{
    char path[256];
    struct stat st;
    NEEDS_DISK;
    snprintf(path, sizeof(path),
             "mkdir -p %s/victim && cd %s/victim && touch hosts hostname "
             "ca-certificates.crt",
             state_dir, state_dir);
    assert_int_equal(system(path), 0);
    for (uint32_t i = 0; i < ARRAY_SIZE(uses); i++) {
        make(100 + i);
        use(100 + i);
        trust(100 + i);
        shell(100 + i, uses[i]);
        destroy(100 + i);
        if (count("spare") != 0 || count("layers") != 0)
            fail_msg("kept, or left: %s", uses[i]);
    }
    snprintf(path, sizeof(path), "%s/victim/hosts", state_dir);
    assert_int_equal(stat(path, &st), 0);
    snprintf(path, sizeof(path), "%s/victim/hostname", state_dir);
    assert_int_equal(stat(path, &st), 0);
    snprintf(path, sizeof(path), "%s/victim/ca-certificates.crt", state_dir);
    assert_int_equal(stat(path, &st), 0);
}

/* Its numbers go on with each use, and come no further than where a sandbox's may begin. */
static void test_a_layer_of_high_inode_numbers_is_not_kept(void **state)
{
    struct stat st;
    char path[128];
    NEEDS_DISK;
    snprintf(path, sizeof(path), "%s/disk/layers/301.1/root", state_dir);
    make(301);
    assert_int_equal(stat(path, &st), 0);
    disk.layer_inodes = (uint32_t)st.st_ino + OWN_INODES;
    destroy(301);
    assert_int_equal(count("spare"), 1);
    for (unsigned i = 0; i < OWN_INODES && count("spare") > 0; i++) {
        make(301);
        destroy(301);
    }
    assert_int_equal(count("spare"), 0);
    disk.layer_inodes = 0;
    for (unsigned i = 0; i < OWN_INODES; i++) {
        make(301);
        destroy(301);
    }
    assert_int_equal(count("spare"), 1);
    forget_recycled();
}

static void test_only_so_many_are_kept(void **state)
{
    NEEDS_DISK;
    for (uint32_t i = 0; i < RECYCLED_LAYERS_MAX + 2; i++)
        make(200 + i);
    for (uint32_t i = 0; i < RECYCLED_LAYERS_MAX + 2; i++)
        destroy(200 + i);
    assert_int_equal(count("spare"), RECYCLED_LAYERS_MAX);
    assert_int_equal(count("layers"), 0);
    forget_recycled();
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
        cmocka_unit_test(test_an_unused_layer_is_used_again),
        cmocka_unit_test(test_a_layer_that_was_used_is_not_kept),
        cmocka_unit_test(test_a_layer_of_high_inode_numbers_is_not_kept),
        cmocka_unit_test(test_only_so_many_are_kept),
    };
    return cmocka_run_group_tests_name("spare", tests, set_up, tear_down);
}
