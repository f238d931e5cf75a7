#pragma once
/* A memory image as files in memory: opened from the sealed one, or as an earlier task has opened
 * it. Private to the runtime. */

#include "runtime/memory_image.h"
#include "runtime/process_trees.h"

/* An image that is being opened. */
struct image_begun {
    struct image_program seal;
    int mount_fd, dir_fd; /* -1: there is nothing to be opened */
};

/* In a task: begins to open the image in the layer of a->slot, into a tmpfs that can be read only
 * and that no slot has a part of; or has that of a->start->opened, where the sealed file is still
 * the one that it was opened from. *out says which file it is of. 0 or -errno and why. */
int opened_image_begin(const struct process_start_args *a, char why[static TASK_WHY_SIZE],
                       struct image_begun *o, struct runtime_opened *out) WARN_UNUSED;

/* Waits for it: before that nothing has been told of the image's being whole. A descriptor of the
 * directory, which out has too, or -errno and why. */
int opened_image_end(struct image_begun *o, char why[static TASK_WHY_SIZE],
                     struct runtime_opened *out) WARN_UNUSED;

/* To a task's result and from it. */
void opened_image_to_result(const struct runtime_opened *o, struct task_result *out);
struct runtime_opened opened_image_from_result(const struct task_result *r);
