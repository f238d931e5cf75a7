#pragma once
/* Files of volumes that programs of an image have open. While the memory is on the disk another
 * sandbox may have the volume, and put a FIFO in the place of such a file: CRIU would wait in its
 * opening until the time of the restore is over, with a place that others could have. */

#include "checkpoint/checkpoint.h"

/* Before CRIU starts: each file of a volume that the image names as a file or a directory is one
 * still, or is not there. root: the sandbox's tree of files, which nothing changes meanwhile. 0, or
 * -errno and the file. */
int volume_files_check(int dir_fd, const char *root, struct checkpoint_why *why) WARN_UNUSED;
