#pragma once
/* Copies the contents of open files in bounded steps, inside the kernel where it can. */

#include "base/util.h"

#include <sys/types.h>

/* Copies up to max_bytes from in (at its offset) to the end of what was written to out. The number
 * of bytes, 0 at the end of in, or -errno. */
ssize_t fs_copy_piece(int in, int out, size_t max_bytes) WARN_UNUSED;
