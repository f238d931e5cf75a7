#include "job/inodes.h"

#include "job/say.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEEPER_PATH "../" INODES_KEEPER

static int number_of(int fd, uint64_t *out)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    *out = st.st_ino;
    return 0;
}

/* Uses up a number: the file is gone when this returns. */
static int pass_one(uint64_t *out)
{
    CLEANUP_CLOSE int fd = open(".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

    return number_of(fd, out);
}

/* Takes the place of the keeper that there is. Another job may do the same: one of both stays. */
static int keep_one(uint32_t number, uint64_t *out)
{
    CLEANUP_CLOSE int fd = -1;
    char path[64];
    int r;

    snprintf(path, sizeof(path), KEEPER_PATH "-%u", number);
    (void)unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    r = number_of(fd, out);
    return r < 0 || rename(path, KEEPER_PATH) == 0 ? r : -errno;
}

static uint64_t kept(void)
{
    struct stat st;

    return lstat(KEEPER_PATH, &st) == 0 ? st.st_ino : 0;
}

/* On btrfs each number is higher than the one before; elsewhere the loop still ends. */
static int count_up(uint32_t number, uint64_t at, uint64_t first)
{
    uint64_t keeper = kept();
    int r = 0;

    for (uint64_t i = 0; r == 0 && i < first && at < first; i++) {
        if (i % INODES_KEEP_EACH != 0) {
            r = pass_one(&at);
            continue;
        }
        say_progress(
            1, "inode numbers of templates, once for this state disk: %" PRIu64 " of %" PRIu64, at,
            first);
        r = keep_one(number, &keeper);
        at = MAX(at, keeper);
    }
    if (r == 0 && at < first)
        r = -EOVERFLOW;
    return r < 0 || keeper >= first ? r : keep_one(number, &keeper);
}

int inodes_raise(uint32_t number, uint64_t first)
{
    uint64_t at = 0;
    int r;

    if (first == 0)
        return 0;
    r = pass_one(&at);
    if (r == 0)
        r = count_up(number, at, first);
    return r < 0 ? say_failure(r, "cannot raise inode numbers of templates: %s", strerror(-r)) : 0;
}
