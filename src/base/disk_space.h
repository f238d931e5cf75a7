#pragma once
/* Space that writers of large files leave on a disk, for what else is on it. */

#include <stdint.h>

/* Whether so many bytes more would leave so much of the disk of fd free. 1, 0 or -errno. */
int disk_space_leaves(int fd, uint64_t bytes, unsigned percent);
