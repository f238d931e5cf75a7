#include "runtime/rootfs_attach.h"

#include "sys/mnt.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

int rootfs_target_dir(int dir_fd, const char *path, unsigned mode)
{
    int fd = mnt_open_beneath(dir_fd, path, O_PATH | O_DIRECTORY, 0);
    if (fd != -ENOENT)
        return fd;
    if (mkdirat(dir_fd, path, mode) < 0)
        return -errno;
    return mnt_open_beneath(dir_fd, path, O_PATH | O_DIRECTORY, 0);
}

int rootfs_attach_at(int tree_fd, int dir_fd, const char *path)
{
    CLEANUP_CLOSE int target = rootfs_target_dir(dir_fd, path, 0755);
    return target < 0 ? target : mnt_attach(tree_fd, target, "");
}
