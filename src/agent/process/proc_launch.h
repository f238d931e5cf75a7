#pragma once
/* A start whose child has not called exec yet. */

struct http_exchange;
struct proc;
struct proc_start;

/* In proc_launch.c: waits for what spawn_begin's descriptor says, which it owns from the call on,
 * and answers x then. path: PATH if cmd was looked for there, for an error's text. -errno: x is not
 * its own, the process is the caller's to end. */
int proc_launch_begin(struct proc *p, const struct proc_start *s, const char *path, int status_fd,
                      struct http_exchange *x);
