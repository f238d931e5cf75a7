#pragma once
/* Unpacks archives of tar's that are as those of /run and /dev/shm mostly are: small, and with
 * nothing but directories and files. A program of its own would take longer than that. */

#include <stddef.h>

#define PLAIN_TAR_BYTES_MAX (128u * 1024u)

/* Below root_fd, through no link, with owners, modes and times, as root of all its ids: as `tar
 * -xpf` does. 1: the archive is larger, or has anything else (a link, a hole, a long name, a place
 * of a volume), and nothing was written; 0; -errno: files that were written stay. */
int plain_tar_unpack(int tar_fd, int root_fd);
