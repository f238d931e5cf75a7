#pragma once
/* Processes by descriptor: no race with recycled pids. Nothing blocks. */

#include "base/util.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

/* A close-on-exec pidfd, or -errno (-ESRCH). */
int pid_open(pid_t pid) WARN_UNUSED;

/* The number of the process, in the namespace of the /proc that is mounted; -ESRCH: it has ended,
 * or is not in that; -errno. It is its own for as long as the process has not been reaped. */
pid_t pid_number(int pidfd) WARN_UNUSED;

/* A close-on-exec copy of a descriptor of that process, or -errno. Needs what tracing it needs. May
 * wait for an execve that the process is in. */
int pid_get_fd(int pidfd, int fd) WARN_UNUSED;

/* 0, or -errno; a process that has ended already is success. */
int pid_kill(int pidfd, int signal);

bool pid_has_ended(int pidfd);

/* Waits for its end, so long at most. False: it has not ended. */
bool pid_await_end(int pidfd, unsigned timeout_ms);

/* Reaps a child that has ended. 0; -EAGAIN: alive. Where it is not our child (its parent reaps it)
 * the kernel is asked for the status (Linux 6.15); -ECHILD: ended, status unknown. */
int pid_reap(int pidfd, int *code, int *status);

/* Same, but waits for the end. */
int pid_wait(int pidfd, int *code, int *status);
