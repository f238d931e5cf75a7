#pragma once
/* Ending a process and what it started. */

struct proc;

/* In proc_signal.c: SIGTERM or SIGKILL to its process group; SIGKILL to all that it started. */
int proc_signal(struct proc *p, int sig);
