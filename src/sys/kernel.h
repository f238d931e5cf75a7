#pragma once
/* Whether the kernel has the system calls that cay cannot do without. Asked once at a start, so
 * that an old kernel, or a filter around us, is told by name, rather than by the first step that
 * fails. */

#include "base/util.h"

#define KERNEL_MAJOR 5 /* overlays over idmapped mounts */
#define KERNEL_MINOR 19

/* 0; -ENOSYS or -EPERM and in why which calls are missing or forbidden. Each call is made with
 * arguments that it refuses before it does anything. */
int kernel_check(char *why, size_t why_size) WARN_UNUSED;
