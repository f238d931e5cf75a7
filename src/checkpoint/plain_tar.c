/* The archive is read into memory and looked at twice: whether all of its entries are plain, before
 * the first is made; and to make them. Runs as the sandbox's root, without a right on the host, on
 * what that root had archived: a name leads to no place that it could not write to itself. */

#include "checkpoint/plain_tar.h"

#include "base/io.h"
#include "base/util.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK         512u
#define TYPE_FILE     '0'
#define TYPE_FOLDER   '5'
#define PLACE_VOLUMES "run/volumes/" /* CHECKPOINT_NO_VOLUMES are below it */

/* GNU's form, of which `rest` is for other kinds of entries. */
struct block {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
    char type, link[100], magic[8], user[32], group[32], rest[183];
};

_Static_assert(sizeof(struct block) == BLOCK, "as it is in the archive");

struct entry {
    char name[sizeof(((struct block *)0)->name)]; /* without a slash at its end */
    uint64_t mode, uid, gid, size, mtime;
    bool is_folder;
    const uint8_t *bytes;
};

struct archive {
    const uint8_t *at;
    size_t left;
};

/* -- reading ----------------------------------------------------------------------------------- */

/* All of the field but its last byte; other forms, of numbers that have no room in that, are not
 * plain. */
static bool take_octal(const char *field, size_t n, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n - 1; i++) {
        if (field[i] < '0' || field[i] > '7')
            return false;
        *out = *out << 3 | (uint64_t)(field[i] - '0');
    }
    return field[n - 1] == '\0' || field[n - 1] == ' ';
}

/* The sum is of the block with spaces in its own place: six digits, a zero and a space. */
static bool is_sum_right(const struct block *b)
{
    const uint8_t *bytes = (const uint8_t *)b;
    uint64_t expected, sum = 0;

    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= offsetof(struct block, sum) && i < offsetof(struct block, type) ? ' '
                                                                                    : bytes[i];
    return take_octal(b->sum, sizeof(b->sum) - 1, &expected) && expected == sum;
}

static bool take_name(const struct block *b, struct entry *e)
{
    size_t n = strnlen(b->name, sizeof(b->name));

    if (n == sizeof(b->name) || strncmp(b->name, PLACE_VOLUMES, strlen(PLACE_VOLUMES)) == 0)
        return false;
    if (n > 0 && b->name[n - 1] == '/')
        n--;
    memcpy(e->name, b->name, n);
    e->name[n] = '\0';
    return n > 0;
}

static bool take_head(const struct block *b, struct entry *e)
{
    e->is_folder = b->type == TYPE_FOLDER;
    return (e->is_folder || b->type == TYPE_FILE) &&
           memcmp(b->magic, "ustar  ", sizeof(b->magic)) == 0 && is_sum_right(b) &&
           take_name(b, e) && take_octal(b->mode, sizeof(b->mode), &e->mode) &&
           take_octal(b->uid, sizeof(b->uid), &e->uid) &&
           take_octal(b->gid, sizeof(b->gid), &e->gid) &&
           take_octal(b->size, sizeof(b->size), &e->size) &&
           take_octal(b->mtime, sizeof(b->mtime), &e->mtime);
}

/* 1; 0: the archive's end; -EBADMSG: no entry that is plain. */
static int next_entry(struct archive *a, struct entry *e)
{
    static const uint8_t end[BLOCK];
    const uint8_t *head = a->at;

    if (a->left < BLOCK)
        return -EBADMSG;
    if (memcmp(head, end, BLOCK) == 0)
        return 0;
    if (!take_head((const struct block *)head, e) || (e->is_folder && e->size > 0) ||
        e->size > a->left - BLOCK)
        return -EBADMSG;
    size_t n = BLOCK + ((size_t)e->size + BLOCK - 1) / BLOCK * BLOCK;
    if (n > a->left)
        return -EBADMSG;
    e->bytes = head + BLOCK;
    a->at += n;
    a->left -= n;
    return 1;
}

static bool is_plain(struct archive a)
{
    struct entry e;
    int more;

    do
        more = next_entry(&a, &e);
    while (more > 0);
    return more == 0;
}

/* -- making ------------------------------------------------------------------------------------ */

/* The directory in which the entry is, and its name there. */
static int open_parent(int root_fd, struct entry *e, const char **name)
{
    char *slash = strrchr(e->name, '/');

    *name = slash ? slash + 1 : e->name;
    if (!slash)
        return mnt_open_beneath(root_fd, ".", O_PATH | O_DIRECTORY, 0);
    *slash = '\0';
    int fd = mnt_open_beneath(root_fd, e->name, O_PATH | O_DIRECTORY, 0);
    *slash = '/';
    return fd;
}

/* The mode after the owner, of which a change takes bits of it. */
static int give(int fd, const struct entry *e)
{
    const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)e->mtime}};

    return fchown(fd, (uid_t)e->uid, (gid_t)e->gid) < 0 ||
                   fchmod(fd, (mode_t)e->mode & 07777) < 0 || futimens(fd, times) < 0
               ? -errno
               : 0;
}

static int make_file(int parent_fd, const char *name, const struct entry *e)
{
    if (unlinkat(parent_fd, name, 0) < 0 && errno != ENOENT)
        return -errno;
    CLEANUP_CLOSE int fd = openat(parent_fd, name,
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int rc = io_write_full(fd, e->bytes, (size_t)e->size);
    return rc < 0 ? rc : give(fd, e);
}

static int make_folder(int parent_fd, const char *name)
{
    return mkdirat(parent_fd, name, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int make(int root_fd, struct entry *e)
{
    const char *name;
    CLEANUP_CLOSE int parent = open_parent(root_fd, e, &name);

    if (parent < 0)
        return parent;
    return e->is_folder ? make_folder(parent, name) : make_file(parent, name, e);
}

/* After all that is in it, which changes its time. */
static int end_folder(int root_fd, struct entry *e)
{
    if (!e->is_folder)
        return 0;
    CLEANUP_CLOSE int fd = mnt_open_beneath(root_fd, e->name, O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? fd : give(fd, e);
}

static int each(struct archive a, int root_fd, int (*work)(int root_fd, struct entry *e))
{
    struct entry e;
    int rc = 0;

    while (rc == 0 && next_entry(&a, &e) == 1)
        rc = work(root_fd, &e);
    return rc;
}

int plain_tar_unpack(int tar_fd, int root_fd)
{
    struct stat st;

    if (fstat(tar_fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > PLAIN_TAR_BYTES_MAX)
        return 1;
    CLEANUP_FREE uint8_t *bytes = malloc((size_t)st.st_size + 1);
    const struct archive a = {bytes, (size_t)st.st_size};
    if (!bytes)
        return -ENOMEM;
    ssize_t n = pread(tar_fd, bytes, a.left, 0);
    if (n != (ssize_t)a.left || !is_plain(a))
        return n < 0 ? -errno : 1;
    int rc = each(a, root_fd, make);
    return rc < 0 ? rc : each(a, root_fd, end_folder);
}
