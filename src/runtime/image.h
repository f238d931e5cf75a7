#pragma once
/* The state disk as a loop image with btrfs on it. Private to the runtime; blocks up to seconds. */

#include "runtime/runtime.h"

/* Makes the image when there is none, attaches it, mounts it at state_dir/disk (nosuid, nodev),
 * turns quotas on. An image that is mounted there already is used as it is; one that is smaller
 * than configured is grown. Returns a descriptor of its root, or -errno after logging why. */
int image_mount(const struct runtime_config *config, int state_fd);

/* Is there one, whole or not? */
bool image_exists(int state_fd);

/* Unmounts it; the loop device gives itself back. 0 or -errno. */
int image_unmount(int state_fd);
