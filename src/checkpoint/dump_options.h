#pragma once
/* The words that CRIU is started with for a dump. */

#include "checkpoint/checkpoint.h"

#include <stdbool.h>
#include <sys/types.h>

#define DUMP_OPTIONS_MAX 256 /* a sandbox has some fifty mounts */
#define DUMP_OPTION_SIZE 128

struct dump_options {
    char *argv[DUMP_OPTIONS_MAX + 1];
    char text[DUMP_OPTIONS_MAX][DUMP_OPTION_SIZE];
    size_t n;
};

/* For the sandbox whose PID 1 is pid; self: the program that CRIU asks when all is dumped. 0 or
 * -errno with *why. */
int dump_options_make(struct dump_options *o, pid_t pid, const char *self,
                      struct checkpoint_why *why);

/* One line of mountinfo: whether CRIU is told of that mount, and at which path it is. */
bool dump_options_mount(const char *line, char path[static DUMP_OPTION_SIZE / 2]);
