#pragma once
/* Work that may take longer than 100 µs, done in a child of its own so that the caller never
 * blocks.
 *
 * The child runs one function and sends exactly one struct task_result (with descriptors) over a
 * private SOCK_SEQPACKET pair, then exits. The parent watches `pidfd` (readable when the child has
 * ended, with a result or without one) and calls task_collect, which also reaps.
 * The child holds a copy of the parent's memory and descriptors (but not of those that
 * task_move_high_fd moved), runs with default signal handling and dies with its parent. Callers
 * must be single-threaded. */

#include "base/util.h"

#include <stdbool.h>
#include <sys/types.h>

#define TASK_MAX_FDS    8
#define TASK_MAX_VALUES 8
#define TASK_WHY_SIZE   192
/* the least number of a descriptor that was moved by task_move_high_fd */
#define TASK_HIGH_FD 1024

struct task {
    pid_t pid;
    int pidfd;     /* readable when the child has ended: what to watch */
    int result_fd; /* non-blocking */
};

#define TASK_NONE ((struct task){.pid = -1, .pidfd = -1, .result_fd = -1})

struct task_result {
    int32_t status; /* 0 or -errno */
    uint32_t stage; /* enum privsep_stage on failure */
    uint64_t values[TASK_MAX_VALUES];
    uint32_t n_fds;
    int fds[TASK_MAX_FDS];   /* in the child: what to send (it keeps ownership until it exits) */
    char why[TASK_WHY_SIZE]; /* why it failed, where a number does not say it; NUL-terminated */
};

/* Runs in the child. Fills *out; what it returns is out->status. */
typedef int (*task_fn)(void *arg, struct task_result *out);

/* Moves a descriptor that is held for as long as a sandbox lives to TASK_HIGH_FD or above, where
 * tasks may get no copy of it: the kernel would close the copies one by one, in each task, and
 * again in what a task starts. A descriptor that cannot be moved (RLIMIT_NOFILE) stays as it is, at
 * that cost. *fd is set anew; -1 is left alone. */
void task_move_high_fd(int *fd);

/* Starts fn(arg) in a child. arg may point to the caller's stack: the child has its own copy.
 * Descriptors that fn needs must not have been moved by task_move_high_fd. About 0.1 to 0.3 ms. 0
 * or -errno. The caller owns *out until task_collect or task_cancel. */
int task_spawn(task_fn fn, void *arg, struct task *out) WARN_UNUSED;

/* Reaps a child that has ended and takes its result. Does not block.
 * 0: *out is filled and t is TASK_NONE again; the caller owns out->fds[0..n_fds).
 * -EAGAIN: it has not ended yet. -ECHILD: the child died without a result; t is TASK_NONE again. */
int task_collect(struct task *t, struct task_result *out) WARN_UNUSED;

/* Likewise of a task whose result has no descriptors: its status; why is set with it, and left
 * untouched where the task ended without a result. */
int task_collect_status(struct task *t, char why[static TASK_WHY_SIZE]) WARN_UNUSED;

/* Kills, and drops whatever result there was; t is TASK_NONE then. Blocks for 50 ms at most: a
 * process that is killed takes microseconds, but for one in a call of the kernel that nothing
 * interrupts (a disk that does not answer) or in a control group that is frozen (version 1), which
 * the caller thaws first where it is the task's own. -1: the child is gone and reaped. Else its
 * pidfd, which the caller owns: readable when it has ended, then to be reaped. */
int task_cancel(struct task *t) WARN_UNUSED;
