#include "runtime/recycled_layer.h"

#include "base/io.h"
#include "runtime/disk.h"
#include "sys/btrfs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OWN_FILE_MAX   4096 /* bytes; the names and addresses of one sandbox are less */
#define TRUST_FILE_MAX (1u << 20)
/* Left in the account. An empty tree takes a block of 16 KiB or 64; blocks of the files that were
 * just removed are still to be freed where they had been written. */
#define ACCOUNT_MAX    (1u << 20)
#define OWN_INODES_MAX 48 /* between the old root and the new: cay's and overlay's are 29 */

#define DIRECTORY 0

/* Files that cay and the kernel make in a layer, each directory after its contents, with the bytes
 * that one has at most. `usr` comes first: of a sandbox that was used it is the likeliest to hold
 * something. Those of etc/ssl are the certificates of the way out (agent/trust.c), which every
 * sandbox gets where there is one; a kill may come while one is written. */
static const struct {
    const char *dir, *name;
    off_t max; /* DIRECTORY: it is one */
} made[] = {
    {"", "usr", DIRECTORY},
    {"root/etc", "hosts", OWN_FILE_MAX},
    {"root/etc", "hostname", OWN_FILE_MAX},
    {"root/etc", "machine-id", OWN_FILE_MAX},
    {"root/etc", "environment", OWN_FILE_MAX},
    {"root/etc/ssl/certs/java", "cacerts", TRUST_FILE_MAX},
    {"root/etc/ssl/certs/java", ".cacerts.tmp", TRUST_FILE_MAX},
    {"root/etc/ssl/certs", "java", DIRECTORY},
    {"root/etc/ssl/certs", "ca-certificates.crt", TRUST_FILE_MAX},
    {"root/etc/ssl/certs", ".ca-certificates.crt.tmp", TRUST_FILE_MAX},
    {"root/etc/ssl/certs", "cay-egress.pem", TRUST_FILE_MAX},
    {"root/etc/ssl/certs", ".cay-egress.pem.tmp", TRUST_FILE_MAX},
    {"root/etc/ssl", "certs", DIRECTORY},
    {"root/etc", "ssl", DIRECTORY},
    {"root", "etc", DIRECTORY},
    {"", "root", DIRECTORY},
    {"root.work/work/incompat/volatile", "dirty", OWN_FILE_MAX},
    {"root.work/work/incompat", "volatile", DIRECTORY},
    {"root.work/work", "incompat", DIRECTORY},
    {"root.work", "work", DIRECTORY},
    {"", "root.work", DIRECTORY},
    {"usr.work/work/incompat/volatile", "dirty", OWN_FILE_MAX},
    {"usr.work/work/incompat", "volatile", DIRECTORY},
    {"usr.work/work", "incompat", DIRECTORY},
    {"usr.work", "work", DIRECTORY},
    {"", "usr.work", DIRECTORY},
};

int recycled_layer_make_dirs(int layer_fd)
{
    for (const char *const *dir = disk_layer_dirs; *dir; dir++)
        /* Its mode becomes that of / and /usr inside: the umask must not decide. */
        if (mkdirat(layer_fd, *dir, 0755) < 0 || fchmodat(layer_fd, *dir, 0755, 0) < 0)
            return -errno;
    return 0;
}

/* A file that a tenant made large would take long to free: that is the kernel's cleaner's work. */
static int remove_file(int dir_fd, const char *name, off_t max)
{
    struct stat st;
    if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > max)
        return -ENOTEMPTY;
    return unlinkat(dir_fd, name, 0) < 0 ? -errno : 0;
}

/* The directories may be a tenant's links: none is followed. */
static int remove_made(int layer_fd, size_t i)
{
    CLEANUP_CLOSE int dir = *made[i].dir
                                ? mnt_open_beneath(layer_fd, made[i].dir, O_PATH | O_DIRECTORY, 0)
                                : -1;
    if (*made[i].dir && dir < 0)
        return dir;
    int at = *made[i].dir ? dir : layer_fd;
    if (made[i].max != DIRECTORY)
        return remove_file(at, made[i].name, made[i].max);
    return unlinkat(at, made[i].name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int make_empty(int layer_fd)
{
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        int rc = remove_made(layer_fd, i);
        if (rc < 0 && rc != -ENOENT)
            return rc;
    }
    /* btrfs counts the names of a directory in its size. */
    if (fstat(layer_fd, &st) < 0)
        return -errno;
    return st.st_size == 0 ? 0 : -ENOTEMPTY;
}

/* Blocks of files that are gone may still be to be freed. */
static bool account_is_empty(int root_fd, int layer_fd)
{
    uint64_t id, used, limit;
    return btrfs_subvolume_id(layer_fd, &id) == 0 && btrfs_usage(root_fd, id, &used, &limit) == 0 &&
           used <= ACCOUNT_MAX;
}

bool recycled_layer_make_new(int root_fd, int layers_fd, const char *name, uint64_t last_inode)
{
    struct stat before, after;
    CLEANUP_CLOSE int layer = mnt_open_beneath(layers_fd, name, O_RDONLY | O_DIRECTORY, 0);

    if (layer < 0 || fstatat(layer, disk_layer_dirs[0], &before, AT_SYMLINK_NOFOLLOW) < 0 ||
        make_empty(layer) < 0 || !account_is_empty(root_fd, layer))
        return false;
    if (recycled_layer_make_dirs(layer) < 0 ||
        fstatat(layer, disk_layer_dirs[0], &after, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (last_inode && after.st_ino > last_inode)
        return false;
    return after.st_ino > before.st_ino && after.st_ino - before.st_ino <= OWN_INODES_MAX;
}

/* --- those that are kept ---------------------------------------------------------------------- */

static bool count_one(void *arg, const char *name)
{
    return ++*(unsigned *)arg < RECYCLED_LAYERS_MAX;
}

int recycled_layer_put(int recycled_fd, int layers_fd, const char *name)
{
    unsigned n = 0;
    int rc = io_each_name_at(recycled_fd, ".", count_one, &n);
    if (rc < 0)
        return rc;
    if (n >= RECYCLED_LAYERS_MAX)
        return -ENOSPC;
    return renameat(layers_fd, name, recycled_fd, name) < 0 ? -errno : 0;
}

struct taking {
    int recycled_fd, layers_fd, rc;
    const char *name;
};

/* Another task may have been faster. */
static bool take_one(void *arg, const char *name)
{
    struct taking *t = arg;
    t->rc = renameat(t->recycled_fd, name, t->layers_fd, t->name) < 0 ? -errno : 0;
    return t->rc == -ENOENT;
}

int recycled_layer_take(int recycled_fd, int layers_fd, const char *name)
{
    struct taking t = {
        .recycled_fd = recycled_fd, .layers_fd = layers_fd, .rc = -ENOENT, .name = name};
    int rc = io_each_name_at(recycled_fd, ".", take_one, &t);
    return rc < 0 ? rc : t.rc;
}
