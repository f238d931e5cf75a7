#pragma once
/* Input on its way to a process. */

#include "base/err.h"

#include <sys/types.h>

struct agent;
struct http_exchange;
struct proc;

int proc_input_open(struct proc *p, int fd);

/* Queues bytes; done is called once when all were written (why NULL) or cannot be (why says so),
 * perhaps before it returns; not when the exchange closed first, which proc_input_forget tells.
 * -ENOSPC when too much waits already. */
int proc_input_write(struct proc *p, const void *bytes, size_t n, struct http_exchange *x,
                     void (*done)(struct http_exchange *x, const struct err *why));
void proc_input_forget(struct agent *a, struct http_exchange *x);

/* Closes stdin once all that waits was written. */
void proc_input_finish(struct proc *p);
void proc_input_close(struct proc *p, const char *why);
