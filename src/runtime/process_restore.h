#pragma once
/* A start from memory: a dumped sandbox goes on, in a new slot. Private to the runtime. */

#include "runtime/process_trees.h"

/* In a task: slot and start in one. a->start->image says whose memory; it is in the kept layer that
 * is taken. When this returns 0 PID 1 is in *out, and nothing of the sandbox runs before the boot
 * socket has brought a claim. */
int process_restore(const struct process_start_args *a, struct inside *in, struct task_result *out);
