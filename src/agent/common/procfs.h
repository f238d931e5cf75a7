#pragma once
/* The sandbox's processes as /proc shows them. Reads files: some microseconds a process. */

#include "base/util.h"

#include <stdbool.h>
#include <sys/types.h>

struct procfs_stat {
    pid_t pid;
    char state; /* of proc_pid_stat(5): 'Z' is a process that has ended and was not waited for */
    uint64_t cpu_ticks; /* own and of children that were waited for */
    uint64_t rss_pages;
};

/* Calls each for every process (not thread) until it answers false. 0 or -errno. */
int procfs_each(bool (*each)(const struct procfs_stat *s, void *arg), void *arg);

/* The hard limit RLIMIT_LOCKS of a process, 0 when it has none or the process has gone. */
uint64_t procfs_file_locks_limit(pid_t pid);

/* A field of /proc/meminfo in bytes, 0 when it is not there. */
uint64_t procfs_meminfo_bytes(const char *field);
