#include "sys/loopdev.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define DEVICES_MAX  1024
#define ATTACH_TRIES 32
#define NAME_SIZE    32

static int open_device(int index, char name[static NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "/dev/loop%d", index);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int configure(int device_fd, int file_fd, uint32_t flags, uint64_t size_bytes)
{
    struct loop_config config = {
        .fd = (uint32_t)file_fd,
        .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO | flags,
                 .lo_sizelimit = size_bytes},
    };
    if (ioctl(device_fd, LOOP_CONFIGURE, &config) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    /* a file system without direct I/O, such as tmpfs */
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | flags;
    return ioctl(device_fd, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

static int attach(int file_fd, uint32_t flags, uint64_t size_bytes, unsigned devices_max,
                  char name[static 32])
{
    CLEANUP_CLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return -errno;
    /* Another process may take the free device between the two calls: then ask again. */
    for (int try = 0; try < ATTACH_TRIES; try++) {
        int index = ioctl(control, LOOP_CTL_GET_FREE);
        if (index < 0)
            return -errno;
        if ((unsigned)index >= devices_max)
            return -EAGAIN;
        CLEANUP_CLOSE int fd = open_device(index, name);
        if (fd < 0)
            return fd;
        int rc = configure(fd, file_fd, flags, size_bytes);
        if (rc == 0)
            return TAKE_FD(fd);
        if (rc != -EBUSY)
            return rc;
    }
    return -EBUSY;
}

int loopdev_attach(int file_fd, char name[static 32])
{
    return attach(file_fd, 0, 0, UINT_MAX, name);
}

int loopdev_attach_read_only(int file_fd, uint64_t size_bytes, unsigned devices_max,
                             char name[static 32])
{
    return attach(file_fd, LO_FLAGS_READ_ONLY, size_bytes, devices_max, name);
}

int loopdev_find(int file_fd, char name[static 32])
{
    struct stat st;
    struct loop_info64 info;

    if (fstat(file_fd, &st) < 0)
        return -errno;
    for (int index = 0; index < DEVICES_MAX; index++) {
        CLEANUP_CLOSE int fd = open_device(index, name);
        if (fd == -ENOENT)
            break;
        if (fd < 0 || ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
            continue;
        if (info.lo_device == st.st_dev && info.lo_inode == st.st_ino)
            return TAKE_FD(fd);
    }
    return -ENOENT;
}

int loopdev_grow(int device_fd)
{
    return ioctl(device_fd, LOOP_SET_CAPACITY) < 0 ? -errno : 0;
}
