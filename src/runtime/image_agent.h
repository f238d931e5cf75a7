#pragma once
/* The program of PID 1 in a memory image. CRIU takes programs for files that are there at the
 * restore, and writes of them only what a process changed; cay-init's is in memory alone, and after
 * an upgrade the server's is another one, with which no process of the older one goes on. Private
 * to the runtime. */

#include "base/util.h"

#include <stdint.h>

/* In a task: copies the program of PID 1, which stands still, into the image's directory, as a file
 * of uid's. 0 or -errno: -EEXIST where there is a file of that name. */
int image_agent_put(int dir_fd, uint32_t uid, int pidfd) WARN_UNUSED;

/* The same as a sealed memory file that can only be read and executed: agent_fd's, the server's,
 * where that has the same bytes, or where the image was made before programs were in them; or else
 * one of uid's, a copy of the image's. *same is the inode of the agent_fd of which that was found
 * before, of the same image, or 0; and then the one of which it is found now. A new descriptor or
 * -errno. */
int image_agent_take(int dir_fd, uint32_t uid, int agent_fd, uint64_t *same) WARN_UNUSED;
