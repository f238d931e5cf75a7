#include "runtime/copies_ahead.h"

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "runtime/disk_name.h"
#include "sys/btrfs.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* No name of a layer (disk_name_layer) has a '+', so that a scan of layers passes them over. */
static const char *copy_name(char name[static DISK_NAME_SIZE], uint32_t n, uint32_t i)
{
    snprintf(name, DISK_NAME_SIZE, "%u+%u", n, i);
    return name;
}

int copies_ahead_dir(const struct disk *d, uint32_t i)
{
    char name[DISK_NAME_SIZE];

    return mnt_open_beneath(d->making_fd, disk_name_number(name, i % DISK_MAKING_DIRS),
                            O_RDONLY | O_DIRECTORY, 0);
}

/* The part of one thread: every DISK_MAKING_DIRSth copy from `first` on, all in one directory. */
struct part {
    const struct disk *d;
    int kept_fd;
    uint32_t n, first, count;
    int rc;
};

static void *make_part(void *arg)
{
    struct part *p = arg;
    CLEANUP_CLOSE int dir = copies_ahead_dir(p->d, p->first);
    char name[DISK_NAME_SIZE];

    p->rc = dir < 0 ? dir : 0;
    for (uint32_t i = p->first; p->rc == 0 && i < p->count; i += DISK_MAKING_DIRS)
        p->rc = btrfs_snapshot(p->kept_fd, dir, copy_name(name, p->n, i), false);
    return NULL;
}

/* Without a thread (memory is short) a part is made by the caller, which is as good, but later. */
int copies_ahead_make(const struct disk *d, int kept_fd, uint32_t n, uint32_t count)
{
    pthread_t threads[DISK_MAKING_DIRS];
    struct part parts[DISK_MAKING_DIRS];
    bool joins[DISK_MAKING_DIRS] = {false};
    const uint32_t n_parts = MIN(count, DISK_MAKING_DIRS);
    int rc = 0;

    for (uint32_t i = 0; i < n_parts; i++) {
        parts[i] = (struct part){.d = d, .kept_fd = kept_fd, .n = n, .first = i, .count = count};
        joins[i] = pthread_create(&threads[i], NULL, make_part, &parts[i]) == 0;
        if (!joins[i])
            make_part(&parts[i]);
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        if (joins[i])
            pthread_join(threads[i], NULL);
        rc = rc < 0 ? rc : parts[i].rc;
    }
    return rc;
}

int copies_ahead_take(const struct disk *d, uint32_t n, uint32_t count, uint32_t seed,
                      const char *name)
{
    char copy[DISK_NAME_SIZE];

    for (uint32_t tries = 0; tries < count; tries++) {
        uint32_t i = (seed + tries) % count;
        CLEANUP_CLOSE int dir = copies_ahead_dir(d, i);

        if (dir < 0)
            return dir;
        if (renameat2(dir, copy_name(copy, n, i), d->layers_fd, name, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != ENOENT)
            return -errno;
    }
    return -ENOENT;
}

int copies_ahead_drop(const struct disk *d, uint32_t n, uint32_t count)
{
    char name[DISK_NAME_SIZE];

    for (uint32_t first = 0; first < MIN(count, DISK_MAKING_DIRS); first++) {
        CLEANUP_CLOSE int dir = copies_ahead_dir(d, first);

        if (dir < 0)
            return dir;
        for (uint32_t i = first; i < count; i += DISK_MAKING_DIRS) {
            int rc = btrfs_subvolume_destroy(dir, copy_name(name, n, i));

            if (rc < 0 && rc != -ENOENT)
                return rc;
        }
    }
    return 0;
}

struct undo {
    int dir_fd;
};

static bool undo_one(void *arg, const char *name)
{
    const struct undo *u = arg;
    int rc = strchr(name, '+') ? btrfs_subvolume_destroy(u->dir_fd, name) : 0;

    if (rc < 0 && rc != -ENOENT)
        log_error("disk: the copy %s, which no create has taken, is not removed: %s", name,
                  strerror(-rc));
    return true;
}

void copies_ahead_undo(const struct disk *d)
{
    for (uint32_t i = 0; i < DISK_MAKING_DIRS; i++) {
        CLEANUP_CLOSE int dir = copies_ahead_dir(d, i);
        struct undo u = {dir};

        if (dir >= 0)
            (void)io_each_name_at(dir, ".", undo_one, &u);
    }
}
