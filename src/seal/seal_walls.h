#pragma once
/* The privileges that cay-seal gives up before it reads a byte of an image: root, every capability,
 * all of the file system but one directory, and every system call that the work does not need. */

#include <stdint.h>
#include <sys/types.h>

/* Bytes of memory: two buffers of a piece for each of a few threads, and OpenSSL's own. */
#define SEAL_WALLS_MEMORY_BYTES (128u * 1024 * 1024)

/* dir_fd becomes the root of the file system; uid, which is not root's, the process's ids; no
 * file is written beyond file_bytes_max. Called by root. 0 or -errno; what: the failed step. */
int seal_walls_enter(int dir_fd, uid_t uid, uint64_t file_bytes_max, const char **what);
