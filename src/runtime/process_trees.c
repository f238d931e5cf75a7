#include "runtime/process_trees.h"

#include "runtime/archive.h"
#include "runtime/slot.h"
#include "runtime/state.h"
#include "sys/fdpass.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* Detached, read-only, idmapped copies of the template's trees. Only names that we make ourselves,
 * below directories that only root can change, and no link is followed. */
static int open_lower(const struct process_start_args *a, int userns_fd, struct inside *in)
{
    char name[16];
    snprintf(name, sizeof(name), "%u", a->start->template_number);
    CLEANUP_CLOSE int dir = mnt_open_beneath(a->rt->disk.templates_fd, name, O_PATH | O_DIRECTORY,
                                             0);
    if (dir < 0)
        return dir;
    in->lower_fd = mnt_clone_idmapped(dir, "rootfs", RUNTIME_LOWER_ATTR, userns_fd);
    if (in->lower_fd < 0)
        return in->lower_fd;
    if (a->rt->disk.view_fd >= 0) {
        in->view_fd = mnt_clone_idmapped(a->rt->disk.view_fd, "", RUNTIME_LOWER_ATTR, userns_fd);
        if (in->view_fd < 0)
            return in->view_fd;
    }
    in->mask_fd = mnt_clone_idmapped(dir, "usrmask", RUNTIME_LOWER_ATTR, userns_fd);
    if (in->mask_fd == -ENOENT)
        return 0;
    if (in->mask_fd < 0)
        return in->mask_fd;
    in->usr_fd = mnt_clone_idmapped(AT_FDCWD, "/usr", RUNTIME_LOWER_ATTR, userns_fd);
    return in->usr_fd < 0 ? in->usr_fd : 0;
}

static int open_layer(const struct process_start_args *a, int userns_fd, struct inside *in)
{
    struct disk *disk = &a->rt->disk;
    in->upper_fd = disk->backend->layer_tree(disk, a->slot->number, a->slot->gen, userns_fd);
    return in->upper_fd < 0 && in->upper_fd != -EOPNOTSUPP ? in->upper_fd : 0;
}

/* With the host's ids, which the sandbox has none of: the kernel lets its root, too, read only what
 * all users of the host may. From the descriptor of privd's start: no name is looked up. A
 * directory that was removed since is refused instead of shown empty. */
static int open_host_dir(const struct runtime *rt, uint32_t number)
{
    int fd = rt->host_dir_fds ? rt->host_dir_fds[number - 1] : -1;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0)
        return -ENODEV;
    return mnt_clone(fd, "", RUNTIME_LOWER_ATTR);
}

static int open_volume(const struct process_start_args *a, size_t i, int userns_fd)
{
    const struct privsep_mount *v = &a->start->volumes[i];
    const struct disk_volume volume = {.number = v->number,
                                       .read_only = v->flags & PRIVSEP_MOUNT_READ_ONLY,
                                       .bytes = a->start->volume_bytes[i],
                                       .rooms = a->rooms};
    const struct disk *disk = &a->rt->disk;

    if (v->flags == PRIVSEP_MOUNT_HOST_DIR)
        return open_host_dir(a->rt, v->number);
    return disk->backend->volume_tree ? disk->backend->volume_tree(disk, &volume, userns_fd)
                                      : -EOPNOTSUPP;
}

static int open_volumes(const struct process_start_args *a, int userns_fd, struct inside *in)
{
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++) {
        if (!a->start->volumes[i].number)
            continue;
        in->volume_fds[i] = open_volume(a, i, userns_fd);
        if (in->volume_fds[i] < 0)
            return in->volume_fds[i];
    }
    return 0;
}

/* The trees, with the ids of the slot's user namespace. */
int process_trees_open(const struct process_start_args *a, int userns_fd, struct inside *in,
                       struct task_result *out)
{
    int rc = open_lower(a, userns_fd, in);
    if (rc < 0)
        return process_fail(out, rc == -ENOENT ? PRIVSEP_STAGE_TEMPLATE : PRIVSEP_STAGE_MOUNTS, rc);
    rc = open_layer(a, userns_fd, in);
    if (rc < 0)
        return process_fail(out, PRIVSEP_STAGE_LAYER, rc);
    rc = a->start->kept ? archive_tree(a, userns_fd, out->why) : -ENOENT;
    if (rc >= 0)
        in->archive_fd = rc;
    else if (rc != -ENOENT)
        return process_fail(out, PRIVSEP_STAGE_ARCHIVE, rc);
    rc = open_volumes(a, userns_fd, in);
    return rc < 0 ? process_fail(out, PRIVSEP_STAGE_VOLUME, rc) : 0;
}

/* The trees that are opened for the child when its user namespace is there; -1: there is none. */
#define TREES (6 + PRIVSEP_CREATE_VOLUMES)
_Static_assert(TREES <= FDPASS_MAX, "one message");
_Static_assert(TREES <= 16, "a bit each");

static void list_trees(struct inside *in, int *trees[static TREES])
{
    trees[0] = &in->lower_fd;
    trees[4] = &in->view_fd;
    trees[1] = &in->mask_fd;
    trees[2] = &in->usr_fd;
    trees[3] = &in->upper_fd;
    trees[5] = &in->archive_fd;
    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++)
        trees[6 + i] = &in->volume_fds[i];
}

/* Which of them travel is told by a bit each. They are closed here once the message has them. */
int process_trees_send(int sock, struct inside *in)
{
    int *trees[TREES], fds[TREES];
    uint16_t which = 0;
    size_t n = 0;

    list_trees(in, trees);
    for (unsigned i = 0; i < TREES; i++) {
        if (*trees[i] < 0)
            continue;
        which |= (uint16_t)(1u << i);
        fds[n++] = *trees[i];
    }
    return fdpass_send(sock, &which, sizeof(which), fds, n, 0);
}

int process_trees_take(int sock, struct inside *in)
{
    int *trees[TREES], fds[TREES];
    uint16_t which = 0;
    size_t n = 0, at = 0;
    ssize_t got = fdpass_recv(sock, &which, sizeof(which), fds, TREES, &n, 0);

    if (got != (ssize_t)sizeof(which))
        return got < 0 ? (int)got : -ECHILD;
    list_trees(in, trees);
    for (unsigned i = 0; i < TREES && at < n; i++)
        if (which & (1u << i))
            *trees[i] = fds[at++];
    return 0;
}
