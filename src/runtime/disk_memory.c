#include "runtime/disk_memory.h"

#include "base/util.h"
#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

static int memory_nothing(struct disk *d, uint32_t slot, uint32_t gen)
{
    return 0;
}

static int memory_layer_limit(struct disk *d, uint32_t slot, uint32_t gen, uint64_t bytes,
                              struct disk_rooms *rooms)
{
    return 0; /* it is the size of the tmpfs */
}

static int memory_layer_usage(const struct disk *d, uint32_t slot, uint32_t gen,
                              uint64_t *used_bytes, uint64_t *limit_bytes)
{
    return -EOPNOTSUPP; /* process_stat asks the mounted file system */
}

static int memory_layer_tree(struct disk *d, uint32_t slot, uint32_t gen, int userns_fd)
{
    return -EOPNOTSUPP;
}

const struct disk_backend disk_memory_backend = {
    .name = "memory",
    .layer_make = memory_nothing,
    .layer_destroy = memory_nothing,
    .layer_give_back = memory_nothing,
    .layer_limit = memory_layer_limit,
    .layer_usage = memory_layer_usage,
    .layer_tree = memory_layer_tree,
};

/* An overlay in a user namespace keeps its marks in user.* attributes: tmpfs has them since 6.6. */
int disk_memory_probe(void)
{
    CLEANUP_CLOSE int fd = mnt_new("tmpfs", NULL, 0);
    if (fd < 0)
        return fd;
    CLEANUP_CLOSE int dir = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    return fsetxattr(dir, "user.cay", "1", 1, 0) < 0 ? -errno : 0;
}
