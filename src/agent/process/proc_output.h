#pragma once
/* A process's output, and its way to subscribers. */

#include "agent/process/proc.h"

/* Of the table, once. */
void proc_output_init(struct process_table *t);

/* Nothing is read before proc_output_start. */
int proc_output_open(struct proc *p, struct proc_output *o, enum proc_output_kind kind, int fd);
void proc_output_start(struct proc *p);
void proc_output_close(struct proc_output *o);

/* Reads and sends what is there now, at most one pipe's worth, without waiting. */
void proc_output_drain(struct proc_output *o);

/* Subscribes an exchange: begins the stream and sends the start event. stream_ms: how long the
 * stream may last, 0 for ever. -ENOSPC over a limit, then nothing was sent. */
int proc_subscribe(struct proc *p, struct http_exchange *x, bool starter, uint64_t stream_ms);

/* Sends the end event, or the deadline, to all subscribers, and lets go of them. */
void proc_report_end(struct proc *p);
void proc_report_deadline(struct proc *p);
