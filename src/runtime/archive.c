/* The archive of a layer: the archive that a job has made is signed and put in the layer's place,
 * and is checked before each mount. The kernel parses SquashFS, so that it is given only files that
 * carry the MACs of privd's key; cay-seal, which has no right on the host, reads them. Between
 * check and mount nothing can write: the file is root's, in a directory that no mount shows. */

#include "runtime/archive.h"

#include "base/io.h"
#include "base/util.h"
#include "contract/archive.h"
#include "runtime/memory_image.h"
#include "runtime/state.h"
#include "sys/loopdev.h"
#include "sys/mnt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All have the same label: whose layer it is follows from where the file lies. */
static int run_seal(const struct runtime *rt, const char *what, uint32_t uid, int file_fd,
                    char why[static TASK_WHY_SIZE])
{
    CLEANUP_CLOSE int nothing = rt->seal_path ? memory_image_dir(uid, 1 << 20) : -EOPNOTSUPP;

    if (nothing < 0)
        return nothing;
    return memory_image_sign(rt, what, "cay archive 1", uid, nothing, file_fd,
                             2 * ARCHIVE_BYTES_MAX, why);
}

static int mount_file(int file_fd, int userns_fd, char why[static TASK_WHY_SIZE])
{
    char device[32];
    uint64_t bytes;
    int rc = archive_length(file_fd, &bytes);

    if (rc < 0)
        return rc;
    CLEANUP_CLOSE int loop = loopdev_attach_read_only(file_fd, bytes, RUNTIME_ARCHIVE_DEVICES_MAX,
                                                      device);
    if (loop < 0) {
        snprintf(why, TASK_WHY_SIZE, "no loop device for the archive: %s", strerror(-loop));
        return loop;
    }
    CLEANUP_CLOSE int tree = mnt_new_on("squashfs", device, RUNTIME_LOWER_ATTR);
    rc = tree < 0 ? tree : mnt_clone_idmapped(tree, "", RUNTIME_LOWER_ATTR, userns_fd);
    if (rc < 0)
        snprintf(why, TASK_WHY_SIZE, "the archive cannot be mounted: %s", strerror(-rc));
    return rc;
}

int archive_tree(const struct process_start_args *a, int userns_fd, char why[static TASK_WHY_SIZE])
{
    const struct disk *d = &a->rt->disk;
    CLEANUP_CLOSE int file = d->backend->archive_open
                                 ? d->backend->archive_open(d, a->slot->number, a->slot->gen)
                                 : -ENOENT;

    if (file < 0)
        return file;
    int rc = run_seal(a->rt, "check", runtime_slot_uid(a->rt, a->slot->number), file, why);
    return rc < 0 ? rc == -ENOENT ? -EIO : rc : mount_file(file, userns_fd, why);
}

bool archive_is_below(const struct runtime *rt, uint32_t slot, uint32_t gen)
{
    const struct disk *d = &rt->disk;
    CLEANUP_CLOSE int file = d->backend->archive_open ? d->backend->archive_open(d, slot, gen)
                                                      : -ENOENT;

    return file >= 0;
}

/* -- putting it in its place ------------------------------------------------------------------- */

struct swap_args {
    const struct runtime *rt;
    uint32_t number;
    int records_fd;
};

static int sign_and_swap(void *arg, struct task_result *out)
{
    const struct swap_args *a = arg;
    const struct disk *d = &a->rt->disk;
    CLEANUP_CLOSE int file = d->backend->archive_open_new(d, a->number);

    if (file < 0)
        return file;
    int rc = run_seal(a->rt, "sign", runtime_slot_uid(a->rt, 0), file, out->why);
    if (rc == 0 && fdatasync(a->records_fd) < 0)
        rc = -errno;
    return rc == 0 ? d->backend->archive_swap(d, a->number) : rc;
}

int runtime_archive_begin(struct runtime *rt, uint32_t number, int records_fd, struct task *out)
{
    struct swap_args args = {.rt = rt, .number = number, .records_fd = records_fd};

    return rt->disk.backend->archive_swap ? task_spawn(sign_and_swap, &args, out) : -EOPNOTSUPP;
}

int runtime_archive_finish(struct task *t, char why[static TASK_WHY_SIZE])
{
    return task_collect_status(t, why);
}

int runtime_archive_undo(const struct runtime *rt, uint32_t number)
{
    const struct disk *d = &rt->disk;

    return d->backend->archive_undo ? d->backend->archive_undo(d, number) : 0;
}

static bool undo_one(void *arg, const char *name)
{
    const struct runtime *rt = arg;

    (void)runtime_archive_undo(rt, (uint32_t)strtoul(name, NULL, 10));
    return true;
}

void runtime_archive_undo_all(struct runtime *rt)
{
    (void)io_each_name_at(rt->disk.archiving_fd, ".", undo_one, rt);
}

bool runtime_is_archived(const struct runtime *rt, uint32_t number)
{
    const struct disk *d = &rt->disk;
    CLEANUP_CLOSE int file = d->backend->archive_open_kept
                                 ? d->backend->archive_open_kept(d, number)
                                 : -ENOENT;

    return file >= 0;
}

bool runtime_is_away(const struct runtime *rt, uint32_t number)
{
    const struct disk *d = &rt->disk;

    return d->backend->archive_is_away && d->backend->archive_is_away(d, number);
}
