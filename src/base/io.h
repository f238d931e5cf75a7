#pragma once
/* Whole reads and writes on blocking descriptors, and small files. EINTR is retried. Functions
 * return 0 or -errno. They block as long as the descriptor does: not for event loops. */

#include "base/util.h"

#include <stdarg.h>
#include <stdbool.h>

/* A read(2) that is repeated where a signal came: bytes, 0 at the end, or -errno. */
ssize_t io_read_some(int fd, void *out, size_t n) WARN_UNUSED;

/* Exactly n bytes; -ENODATA when the other side ends first. */
int io_read_full(int fd, void *out, size_t n) WARN_UNUSED;
int io_write_full(int fd, const void *bytes, size_t n) WARN_UNUSED;

/* Reads dir_fd/path (AT_FDCWD allowed) into out as NUL-terminated text without its last newline.
 * -EMSGSIZE when it does not fit in size - 1 bytes. Returns the length, or -errno. */
ssize_t io_read_text_at(int dir_fd, const char *path, char *out, size_t size) WARN_UNUSED;

/* Opens an existing file for writing, writes text in one write(2), closes: for /proc, /sys,
 * cgroup. */
int io_write_text_at(int dir_fd, const char *path, const char *text) WARN_UNUSED;

/* Writes a whole file by a temporary name, fsync and rename in the same directory. */
int io_replace_file_at(int dir_fd, const char *name, const void *bytes, size_t n,
                       unsigned mode) WARN_UNUSED;

/* The same for a file that must not be there yet, among several processes: -EEXIST for all but the
 * first. It is on the disk when it is there. */
int io_create_file_at(int dir_fd, const char *name, const void *bytes, size_t n,
                      unsigned mode) WARN_UNUSED;

/* Calls each(arg, name) for every name in the directory dir_fd/path but "." and "..", in no order,
 * until it answers false. Names that come or go meanwhile may be told or not. */
int io_each_name_at(int dir_fd, const char *path, bool (*each)(void *arg, const char *name),
                    void *arg);

/* A pipe for splice(2) that holds so many bytes, or fewer where its user's share of pipe memory is
 * used up: slower, not wrong. Both ends do not block. 0, or -errno and neither end is open. */
int io_big_pipe(int *in, int *out, size_t bytes) WARN_UNUSED;

int io_set_nonblock(int fd, bool on) WARN_UNUSED;
int io_set_cloexec(int fd, bool on) WARN_UNUSED;

/* A TCP peer that is silent is probed after idle_s seconds, then every again_s, and taken for gone
 * after so many probes without an answer. A socket that cannot be set stays as it was. */
void io_set_keepalive(int fd, int idle_s, int again_s, int times);
