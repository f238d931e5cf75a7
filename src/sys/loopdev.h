#pragma once
/* Loop devices: a file as a block device. Calls take up to milliseconds. */

#include "base/util.h"

#include <stdint.h>

/* Attaches the file to a free device, with direct I/O where the file system can; the device gives
 * itself back when its last user (descriptor or mount) is gone. Returns a descriptor of the device
 * and its path in name[32], or -errno. */
int loopdev_attach(int file_fd, char name[static 32]) WARN_UNUSED;

/* The first size_bytes of the file, which nothing can write through the device; of those devices
 * there are no more than devices_max in all (-EAGAIN). Otherwise the same. */
int loopdev_attach_read_only(int file_fd, uint64_t size_bytes, unsigned devices_max,
                             char name[static 32]) WARN_UNUSED;

/* A device that has this very file (device and inode number) attached; as above, or -ENOENT. */
int loopdev_find(int file_fd, char name[static 32]) WARN_UNUSED;

/* Tells the device that its file has grown. 0 or -errno. */
int loopdev_grow(int device_fd);
