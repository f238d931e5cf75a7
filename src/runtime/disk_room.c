#include "runtime/disk_room.h"

#include "base/log.h"
#include "sys/btrfs.h"
#include "sys/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The read ends when the other end is closed wherever it is. */
NORETURN static void run_child(int pipe_fd, int fd, uint64_t bytes)
{
    ssize_t n;
    int rc;

    prctl(PR_SET_NAME, "cay-room", 0, 0, 0);
    do
        n = read(pipe_fd, &(char){0}, 1);
    while (n < 0 && errno == EINTR);
    rc = btrfs_limit(fd, bytes);
    if (rc < 0)
        log_error("disk: a limit of %llu bytes, which was higher for a start: %s",
                  (unsigned long long)bytes, strerror(-rc));
    _exit(0);
}

static int begin_child(struct disk_rooms *rooms, int fd, uint64_t bytes)
{
    int pipes[2];

    if (rooms->n == DISK_ROOMS_MAX)
        return -ENOBUFS;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = ns_fork(0, SIGCHLD, NULL);
    if (pid == 0) {
        close(pipes[1]);
        run_child(pipes[0], fd, bytes);
    }
    close(pipes[0]);
    if (pid < 0) {
        close(pipes[1]);
        return pid;
    }
    rooms->children[rooms->n] = pid;
    rooms->pipes[rooms->n++] = pipes[1];
    return 0;
}

int disk_room_limit(struct disk_rooms *rooms, int root_fd, int fd, uint64_t bytes)
{
    uint64_t id = 0, used = 0, limit = 0;
    int rc = 0;

    if (!rooms || bytes == 0)
        return btrfs_limit(fd, bytes);
    rc = btrfs_subvolume_id(fd, &id);
    if (rc == 0)
        rc = btrfs_usage(root_fd, id, &used, &limit);
    if (rc < 0)
        return rc;
    if (used + DISK_ROOM_BYTES <= bytes)
        return btrfs_limit(fd, bytes);
    rc = begin_child(rooms, fd, bytes);
    return rc < 0 ? rc : btrfs_limit(fd, MAX(used, bytes) + DISK_ROOM_BYTES);
}

void disk_rooms_end(struct disk_rooms *rooms)
{
    int status;

    for (uint32_t i = 0; i < rooms->n; i++)
        util_close(&rooms->pipes[i]);
    for (uint32_t i = 0; i < rooms->n; i++)
        while (waitpid(rooms->children[i], &status, 0) < 0 && errno == EINTR)
            ;
    rooms->n = 0;
}
