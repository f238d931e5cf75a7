#include "job/exchange.h"

#include "base/util.h"
#include "contract/archive.h"
#include "contract/exchange.h"
#include "job/say.h"
#include "sys/btrfs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define SPOOL       "../../../images" /* cayd's */
#define SPARE_BYTES (UINT64_C(64) << 20)

/* cayd's directories are not root's: no link in them is followed, and all but a plain file is
 * refused. A descriptor, or a negative errno after it was said. */
static int open_received(uint32_t number, uint64_t *bytes)
{
    CLEANUP_CLOSE int spool = open(SPOOL, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    char path[32];
    struct stat st;

    snprintf(path, sizeof(path), "%u/0", EXCHANGE_SPOOL_FIRST + number);
    CLEANUP_CLOSE int fd = spool < 0 ? -1 : mnt_open_beneath(spool, path, O_RDONLY | O_NONBLOCK, 0);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return say_failure(ENOENT, "the file that was sent is not there");
    if (st.st_size <= 0 || (uint64_t)st.st_size > EXCHANGE_FILE_MAX)
        return say_failure(EBADMSG, "it has no length that such a file may have");
    *bytes = (uint64_t)st.st_size;
    return TAKE_FD(fd);
}

static int refuse_space(int all_fd, uint64_t bytes)
{
    struct statvfs fs;

    if (fstatvfs(all_fd, &fs) < 0)
        return say_failure(errno, "the state disk cannot be looked at");
    if ((uint64_t)fs.f_bavail * fs.f_frsize < bytes + SPARE_BYTES)
        return say_failure(ENOSPC, "the state disk has less room than the %llu MiB that it takes",
                           (unsigned long long)(bytes >> 20));
    return 0;
}

/* So many bytes, whatever becomes of the file meanwhile. */
static int copy(int from, int to, uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t n = sendfile(to, from, NULL, (size_t)MIN(bytes, UINT64_C(1) << 20));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return say_failure(n < 0 ? errno : EBADMSG, "the file cannot be copied: %s",
                               n < 0 ? strerror(errno) : "it became shorter");
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int fill(int all_fd, const char *name, int from, uint64_t bytes)
{
    CLEANUP_CLOSE int layer = mnt_open_beneath(all_fd, name, O_RDONLY | O_DIRECTORY, 0);
    CLEANUP_CLOSE int to = layer < 0 ? -1
                                     : mnt_open_beneath(layer, ARCHIVE_FILE,
                                                        O_RDWR | O_CREAT | O_EXCL, 0600);

    return to < 0 ? say_failure(EIO, "no file for it on the state disk") : copy(from, to, bytes);
}

int exchange_receive(uint32_t number)
{
    CLEANUP_CLOSE int all = open("../" ARCHIVING_DIR,
                                 O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t bytes = 0;
    char name[16];
    CLEANUP_CLOSE int from = open_received(number, &bytes);

    if (from < 0)
        return from;
    int rc = all < 0 ? say_failure(ENOENT, "there is no place for it") : refuse_space(all, bytes);
    if (rc < 0)
        return rc;
    snprintf(name, sizeof(name), "%u", number);
    rc = btrfs_subvolume_destroy(all, name);
    if (rc == 0 || rc == -ENOENT)
        rc = btrfs_subvolume_create(all, name);
    if (rc < 0)
        return say_failure(-rc, "no layer for it: %s", strerror(-rc));
    rc = fill(all, name, from, bytes);
    if (rc < 0 && btrfs_subvolume_destroy(all, name) < 0)
        say_progress(100, "the new layer is left for the next start");
    return rc;
}
