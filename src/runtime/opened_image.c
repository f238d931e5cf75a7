/* cay-seal writes the files as the slot's first id. When it has ended they become root's, and the
 * mount one that is only read, so that of one image many sandboxes can begin: neither of them,
 * nor the slot in which it was opened, can change what another one reads. Only who holds the
 * directory's descriptor gets there: it has no name.
 *
 * It is used again as long as the sealed file is the same by its inode, its length and the time of
 * its last change, which a snapshot has of the file that it is of. */

#include "runtime/opened_image.h"

#include "base/io.h"
#include "runtime/memory_image.h"
#include "runtime/state.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define NANOSECONDS 1000000000ull

/* Places in a result's values; the first is PID 1. */
enum { RESULT_INODE = 1, RESULT_BYTES, RESULT_CHANGED, RESULT_HELD, RESULT_AGENT };

static int inspect(int file_fd, struct runtime_opened *out)
{
    struct stat st;

    if (fstat(file_fd, &st) < 0)
        return -errno;
    *out = (struct runtime_opened){.fd = -1,
                                   .inode = st.st_ino,
                                   .bytes = (uint64_t)st.st_size,
                                   .changed_ns = (uint64_t)st.st_ctim.tv_sec * NANOSECONDS +
                                                 (uint64_t)st.st_ctim.tv_nsec};
    return 0;
}

static bool is_same(const struct runtime_opened *a, const struct runtime_opened *b)
{
    return a->inode == b->inode && a->bytes == b->bytes && a->changed_ns == b->changed_ns;
}

struct giving {
    int dir_fd, rc;
};

/* A regular file, as cay-seal has made it. */
static bool give_one(void *arg, const char *name)
{
    struct giving *g = arg;
    struct stat st;
    CLEANUP_CLOSE int fd = openat(g->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        g->rc = -errno;
    else if (!S_ISREG(st.st_mode))
        g->rc = -EINVAL;
    else if (fchown(fd, 0, 0) < 0 || fchmod(fd, 0444) < 0)
        g->rc = -errno;
    return g->rc == 0;
}

/* The directory first: nothing in it is replaced from then on. */
static int give_to_all(int mount_fd, int dir_fd)
{
    struct giving g = {.dir_fd = dir_fd};

    if (fchown(dir_fd, 0, 0) < 0 || fchmod(dir_fd, 0555) < 0)
        return -errno;
    int rc = io_each_name_at(dir_fd, ".", give_one, &g);
    if (rc == 0)
        rc = g.rc;
    return rc == 0 ? mnt_set_read_only(mount_fd) : rc;
}

static uint64_t held_bytes(int dir_fd)
{
    struct statvfs s;

    return fstatvfs(dir_fd, &s) == 0 ? (uint64_t)(s.f_blocks - s.f_bfree) * s.f_frsize : UINT64_MAX;
}

static int begin_anew(const struct process_start_args *a, int file_fd, struct image_begun *o,
                      char why[static TASK_WHY_SIZE])
{
    const struct runtime_image *image = a->start->image;
    uint32_t uid = runtime_slot_uid(a->rt, a->slot->number);
    CLEANUP_CLOSE int mount = memory_image_mount(uid, image->memory_bytes);
    CLEANUP_CLOSE int dir = mount < 0 ? mount
                                      : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return mount < 0 ? mount : -errno;
    int rc = memory_image_seal_begin(a->rt, "open", uid, dir, file_fd, image, &o->seal, why);
    if (rc < 0)
        return rc;
    o->mount_fd = TAKE_FD(mount);
    o->dir_fd = TAKE_FD(dir);
    return 0;
}

int opened_image_begin(const struct process_start_args *a, char why[static TASK_WHY_SIZE],
                       struct image_begun *o, struct runtime_opened *out)
{
    const struct disk *d = &a->rt->disk;
    const struct runtime_opened *before = &a->start->opened;
    CLEANUP_CLOSE int file = d->backend->image_open(d, a->slot->number, a->slot->gen, false);
    int rc = file < 0 ? file : inspect(file, out);

    *o = (struct image_begun){.mount_fd = -1, .dir_fd = -1};
    if (rc < 0)
        return rc;
    if (before->fd >= 0 && is_same(before, out)) {
        *out = *before;
        return 0;
    }
    return begin_anew(a, file, o, why);
}

int opened_image_end(struct image_begun *o, char why[static TASK_WHY_SIZE],
                     struct runtime_opened *out)
{
    CLEANUP_CLOSE int mount = TAKE_FD(o->mount_fd);
    CLEANUP_CLOSE int dir = TAKE_FD(o->dir_fd);

    if (dir < 0)
        return out->fd;
    int rc = memory_image_end(&o->seal, why);
    if (rc == 0)
        rc = give_to_all(mount, dir);
    if (rc < 0)
        return rc;
    out->fd = TAKE_FD(dir);
    out->held_bytes = held_bytes(out->fd);
    return out->fd;
}

void opened_image_to_result(const struct runtime_opened *o, struct task_result *out)
{
    out->values[RESULT_INODE] = o->inode;
    out->values[RESULT_BYTES] = o->bytes;
    out->values[RESULT_CHANGED] = o->changed_ns;
    out->values[RESULT_HELD] = o->held_bytes;
    out->values[RESULT_AGENT] = o->agent;
    out->fds[out->n_fds++] = o->fd;
}

struct runtime_opened opened_image_from_result(const struct task_result *r)
{
    return (struct runtime_opened){.fd = r->fds[r->n_fds - 1],
                                   .inode = r->values[RESULT_INODE],
                                   .bytes = r->values[RESULT_BYTES],
                                   .changed_ns = r->values[RESULT_CHANGED],
                                   .held_bytes = r->values[RESULT_HELD],
                                   .agent = r->values[RESULT_AGENT]};
}
