#include "base/io.h"

#include "base/ids.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

int io_read_full(int fd, void *out, size_t n)
{
    char *p = out;

    while (n > 0) {
        ssize_t got = read(fd, p, n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return -ENODATA;
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

int io_write_full(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;

    while (n > 0) {
        ssize_t put = write(fd, p, n);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

ssize_t io_read_some(int fd, void *out, size_t n)
{
    for (;;) {
        ssize_t got = read(fd, out, n);

        if (got >= 0 || errno != EINTR)
            return got < 0 ? -errno : got;
    }
}

ssize_t io_read_text_at(int dir_fd, const char *path, char *out, size_t size)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;

    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t got = io_read_some(fd, out + len, size - len);

        if (got < 0)
            return got;
        if (got == 0)
            break;
        len += (size_t)got;
        if (len == size)
            return -EMSGSIZE;
    }
    if (len > 0 && out[len - 1] == '\n')
        len--;
    out[len] = '\0';
    return (ssize_t)len;
}

int io_write_text_at(int dir_fd, const char *path, const char *text)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, path, O_WRONLY | O_CLOEXEC);
    size_t len = strlen(text);
    ssize_t put;

    if (fd < 0)
        return -errno;
    do
        put = write(fd, text, len);
    while (put < 0 && errno == EINTR);
    if (put < 0)
        return -errno;
    return (size_t)put == len ? 0 : -EIO;
}

static int write_and_sync(int fd, const void *bytes, size_t n, unsigned mode)
{
    int r = io_write_full(fd, bytes, n);

    if (r < 0)
        return r;
    /* The umask must not decide: a mode is part of what the caller asked for. */
    if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
        return -errno;
    return 0;
}

int io_replace_file_at(int dir_fd, const char *name, const void *bytes, size_t n, unsigned mode)
{
    CLEANUP_CLOSE int fd = -1;
    char tmp[256];
    int r;

    if (snprintf(tmp, sizeof(tmp), ".%s.tmp", name) >= (int)sizeof(tmp))
        return -ENAMETOOLONG;
    fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r = write_and_sync(fd, bytes, n, mode);
    if (r == 0 && renameat(dir_fd, tmp, dir_fd, name) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(dir_fd, tmp, 0);
    return r;
}

int io_create_file_at(int dir_fd, const char *name, const void *bytes, size_t n, unsigned mode)
{
    CLEANUP_CLOSE int fd = -1;
    char tmp[256], random[9];
    int r;

    ids_random_text(random, sizeof(random) - 1);
    if (snprintf(tmp, sizeof(tmp), ".%s.%s", name, random) >= (int)sizeof(tmp))
        return -ENAMETOOLONG;
    fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    r = write_and_sync(fd, bytes, n, mode);
    if (r == 0 && renameat2(dir_fd, tmp, dir_fd, name, RENAME_NOREPLACE) < 0)
        r = -errno;
    if (r < 0)
        unlinkat(dir_fd, tmp, 0);
    else if (fsync(dir_fd) < 0)
        r = -errno;
    return r;
}

int io_each_name_at(int dir_fd, const char *path, bool (*each)(void *arg, const char *name),
                    void *arg)
{
    int fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int r = 0;

    if (!dir) {
        r = -errno;
        util_close(&fd);
        return r;
    }
    while ((entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            !each(arg, entry->d_name))
            break;
    closedir(dir);
    return r;
}

int io_big_pipe(int *in, int *out, size_t bytes)
{
    int fds[2];

    if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) < 0)
        return -errno;
    (void)!fcntl(fds[1], F_SETPIPE_SZ, (int)bytes);
    *out = fds[0];
    *in = fds[1];
    return 0;
}

static int change_flag(int fd, int get, int set, int flag, bool on)
{
    int flags = fcntl(fd, get);

    if (flags < 0)
        return -errno;
    flags = on ? flags | flag : flags & ~flag;
    return fcntl(fd, set, flags) < 0 ? -errno : 0;
}

int io_set_nonblock(int fd, bool on)
{
    return change_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int io_set_cloexec(int fd, bool on)
{
    return change_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

void io_set_keepalive(int fd, int idle_s, int again_s, int times)
{
    int one = 1;

    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &again_s, sizeof(again_s));
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
    (void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}
