#pragma once
/* The steps of a start as the host's root, before it is given up: limits, control groups, the boot
 * block and devices. Private to the runtime. */

#include "runtime/process_trees.h"

/* In a task. The limit of the slot's layer, with room for a start on kept files (disk_room.h). 0 or
 * -errno. */
int process_limit_layer(const struct process_start_args *a) WARN_UNUSED;

/* In a task, which is in the slot's control group afterwards. 0 or -errno, noted in *out. */
int process_prepare(const struct process_start_args *a, struct inside *in, struct task_result *out);
