#pragma once
/* Which processes of the machine lock ranges of files: the process of one call in `period` on each
 * processor, by the kernel's tracepoint filelock:posix_lock_inode and perf_event_open(2). Between
 * samples no process is woken; a call takes about a tenth of a microsecond more. Needs
 * CAP_SYS_ADMIN or CAP_PERFMON, tracefs and tracepoints. */

#include "base/util.h"

#include <sys/types.h>

struct lockcalls_cpu {
    int fd;
    void *page; /* the event's buffer; NULL until lockcalls_begin */
};

struct pollfd;

struct lockcalls {
    struct lockcalls_cpu *cpus;
    struct pollfd *fds; /* as many, for lockcalls_wait */
    unsigned n;
};

/* Opens an event for each processor that is there now. 0, or -errno: -ENOENT or -ENODEV where the
 * kernel has no such tracepoint. */
int lockcalls_open(uint32_t period, struct lockcalls *out) WARN_UNUSED;
void lockcalls_close(struct lockcalls *l);

/* Takes the samples from now on: in the process that will read them, as a child gets no copy of the
 * buffers. 0 or -errno. */
int lockcalls_begin(struct lockcalls *l) WARN_UNUSED;

/* Blocks until there is a sample; needs no memory. 0 or -errno. */
int lockcalls_wait(struct lockcalls *l);

/* Takes the samples that are there; those that do not fit are dropped. Threads' process ids in the
 * pid namespace of who opened. Returns how many. */
size_t lockcalls_take(struct lockcalls *l, pid_t *pids, size_t max);
