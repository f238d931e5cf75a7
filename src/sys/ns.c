#include "sys/ns.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>

pid_t ns_fork(uint64_t flags, int exit_signal, int *pidfd)
{
    int fd = -1;
    struct clone_args args = {
        .flags = flags | CLONE_PIDFD,
        .pidfd = (uint64_t)(uintptr_t)(pidfd ? pidfd : &fd),
        .exit_signal = (uint64_t)exit_signal,
    };

    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid < 0)
        return -errno;
    if (pid == 0)
        return 0;
    util_close(&fd);
    return (pid_t)pid;
}

int ns_write_maps(pid_t pid, uint32_t first, uint32_t count)
{
    char path[64], map[48];
    int rc;

    snprintf(map, sizeof(map), "0 %u %u", first, count);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    rc = io_write_text_at(AT_FDCWD, path, map);
    if (rc < 0)
        return rc;
    snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    return io_write_text_at(AT_FDCWD, path, map);
}

int ns_open(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int ns_enter(int fd, int type)
{
    return setns(fd, type) < 0 ? -errno : 0;
}

int ns_become(uid_t uid, gid_t gid)
{
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -errno;
    return 0;
}
