#pragma once
/* A memory image as files in memory: opened from the sealed one, or as an earlier task has opened
 * it. Private to the runtime. */

#include "runtime/process_trees.h"

/* In a task: opens the image in the layer of a->slot, into a tmpfs that can be read only and that
 * no slot has a part of; or has that of a->start->opened, where the sealed file is still the one
 * that it was opened from. *out says which file it is of. A descriptor of the directory, which out
 * has too, or -errno and why. */
int opened_image(const struct process_start_args *a, char why[static TASK_WHY_SIZE],
                 struct runtime_opened *out) WARN_UNUSED;

/* To a task's result and from it. */
void opened_image_to_result(const struct runtime_opened *o, struct task_result *out);
struct runtime_opened opened_image_from_result(const struct task_result *r);
