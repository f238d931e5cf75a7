#pragma once
/* A dump, from its checks to its end. */

#include "checkpoint/checkpoint.h"
#include "checkpoint/criu.h"

/* Dumps the sandbox of CHECKPOINT_PID_FD into CHECKPOINT_DIR_FD. 0: its processes have ended, as
 * was answered. -ETIMEDOUT, -ECHILD: they have to be ended. Otherwise -errno, and they go on: -EIO
 * where they were not told to end. */
int dump_run(const struct criu_limits *limits, struct checkpoint_why *why);

#define DUMP_ACTION "post-dump"

/* The hook that CRIU starts when all processes stand still and are dumped: self is the name that it
 * starts this program by. The exit status: 0, they end; else they go on. */
int dump_hook(const char *self, const char *pid_text);
