#pragma once
/* Names of sockets in a volume, or in a directory of the host. CRIU would remove such a name and
 * make it anew, in a directory that another sandbox may have replaced by a link while the memory of
 * this one was on the disk. Files of a volume are opened again by their names, through no link
 * (scripts/criu.patches). */

#include <stdbool.h>

/* Of the sandbox with this /proc, whose network namespace is this process's. 0 or -errno. */
int volume_sockets_find(int proc_fd, bool *found);
