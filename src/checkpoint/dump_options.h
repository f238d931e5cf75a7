#pragma once
/* The words that CRIU is started with for a dump. */

#include "checkpoint/checkpoint.h"
#include "checkpoint/words.h"

#include <sys/types.h>

/* For the sandbox whose PID 1 is pid; self: the program that CRIU asks when all is dumped. 0 or
 * -errno with *why. */
int dump_options_make(struct words *w, pid_t pid, const char *self, struct checkpoint_why *why);

/* The name that CRIU has for that PID 1's program. 0 or -errno. */
int dump_options_program(pid_t pid, char name[static WORD_SIZE]);
