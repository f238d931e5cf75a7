#pragma once
/* Archives of layers (contract/archive.h) as cay-privd's tasks have them. Private to the runtime
 * but for what runtime.h declares. */

#include "runtime/process_trees.h"
#include "runtime/task.h"

/* In the task that starts a sandbox, as the host's root: all MACs of its layer's archive are
 * checked by cay-seal, then the kernel mounts it. A detached, read-only mount with the ids of that
 * user namespace; -ENOENT: it has none; -EBADMSG and where: it is not as it was written. */
int archive_tree(const struct process_start_args *a, int userns_fd,
                 char why[static TASK_WHY_SIZE]) WARN_UNUSED;

/* Whether a slot's layer has one. */
bool archive_is_below(const struct runtime *rt, uint32_t slot, uint32_t gen);
