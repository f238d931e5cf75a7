#include "privd/records.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "privd/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DIR_NAME   "slots"
#define TABLE_NAME "table"
#define BOOT_NAME  "boot_id"

/* Seconds since 2024 as the first generation after a boot: one slot is used far less than once a
 * second on average, so that no generation of an earlier boot comes again. */
#define GEN_EPOCH_MS 1704067200000ll

static uint64_t sum_of(const struct record *rec)
{
    return record_file_sum(rec, offsetof(struct record, sum));
}

static int open_dir(const char *run_dir)
{
    CLEANUP_CLOSE int run_fd = open(run_dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    struct stat st;
    int fd;

    if (run_fd < 0)
        return -errno;
    if (mkdirat(run_fd, DIR_NAME, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(run_fd, DIR_NAME, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || st.st_uid != 0 || (st.st_mode & 077) != 0) {
        close(fd);
        return -EPERM;
    }
    return fd;
}

/* Whether the table was written since the host came up. */
static bool is_of_this_boot(int dir_fd)
{
    char now[64], then[64];

    return io_read_text_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", now, sizeof(now)) > 0 &&
           io_read_text_at(dir_fd, BOOT_NAME, then, sizeof(then)) > 0 && strcmp(now, then) == 0;
}

static int begin_boot(int dir_fd)
{
    char now[64];
    ssize_t n = io_read_text_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", now, sizeof(now));

    if (unlinkat(dir_fd, TABLE_NAME, 0) < 0 && errno != ENOENT)
        return -errno;
    if (n < 0)
        return (int)n;
    return io_replace_file_at(dir_fd, BOOT_NAME, now, (size_t)n, 0600);
}

int records_open(struct records *r, const char *run_dir, uint32_t slots_max)
{
    CLEANUP_CLOSE int dir_fd = open_dir(run_dir);
    int fd, rc;

    if (dir_fd < 0)
        return dir_fd;
    if (!is_of_this_boot(dir_fd)) {
        rc = begin_boot(dir_fd);
        if (rc < 0)
            return rc;
    }
    fd = openat(dir_fd, TABLE_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r->fd = fd;
    r->slots_max = slots_max;
    r->first_gen = (uint32_t)((clock_real_ms() - GEN_EPOCH_MS) / 1000) & 0x7fffffff;
    return 0;
}

void records_close(struct records *r)
{
    util_close(&r->fd);
}

void records_remove(struct records *r, const char *run_dir)
{
    CLEANUP_CLOSE int run_fd = open(run_dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    CLEANUP_CLOSE int dir_fd = open_dir(run_dir);

    records_close(r);
    (void)unlinkat(dir_fd, TABLE_NAME, 0);
    (void)unlinkat(dir_fd, BOOT_NAME, 0);
    if (unlinkat(run_fd, DIR_NAME, AT_REMOVEDIR) < 0)
        log_warn("%s/%s stays: %s", run_dir, DIR_NAME, strerror(errno));
}

int records_write(const struct records *r, struct record *rec)
{
    ssize_t n;

    rec->magic = RECORDS_MAGIC;
    rec->version = RECORDS_VERSION;
    rec->sum = sum_of(rec);
    do
        n = pwrite(r->fd, rec, sizeof(*rec), (off_t)rec->slot * (off_t)sizeof(*rec));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return n == (ssize_t)sizeof(*rec) ? 0 : -ENOSPC;
}

int records_read(const struct records *r, uint32_t slot, struct record *out)
{
    struct record rec;
    ssize_t n;

    do
        n = pread(r->fd, &rec, sizeof(rec), (off_t)slot * (off_t)sizeof(rec));
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(rec) || rec.magic != RECORDS_MAGIC || rec.version != RECORDS_VERSION ||
        rec.slot != slot || rec.gen == 0 || rec.state >= SLOT_STATE_COUNT ||
        rec.sum != sum_of(&rec))
        return -ENOENT;
    *out = rec;
    return 0;
}

/* The name in parentheses may hold spaces and parentheses: fields are counted from the last ')'. */
int records_pid_start(pid_t pid, uint64_t *out)
{
    char path[64], text[1024], *p;
    ssize_t n;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    n = io_read_text_at(AT_FDCWD, path, text, sizeof(text));
    if (n < 0)
        return (int)n;
    p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++) {
        p = strchr(p, ' ');
        if (p)
            p++;
    }
    if (!p || *p < '0' || *p > '9')
        return -EINVAL;
    *out = strtoull(p, NULL, 10);
    return 0;
}
