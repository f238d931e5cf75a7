#pragma once
/* How a task speaks with the cay-init that it starts, a sandbox's or a command sandbox's: the boot
 * block, and the ends of their pipe and sockets. Private to the runtime. */

#include "base/util.h"
#include "runtime/task.h"

struct inside;

/* The socket over which cay-init gets its boot block and tells that it is ready, in a task's
 * arguments. */
struct process_boot {
    int agent_fd; /* cay-init's end */
    int own_fd;   /* the starter's end */
};

/* In the task: says what cay-init is to be, with the descriptors that *in has for it. filters: of
 * its limits. 0 or -errno. */
int process_write_boot(const struct process_boot *b, const struct inside *in, uint32_t open_files,
                       uint32_t filters) WARN_UNUSED;

/* Begins a task that starts a cay-init: fills *boot, which is part of args, then runs it. *boot_fd
 * is the caller's, non-blocking. 0 or -errno; nothing is open then. */
int process_begin(int (*run)(void *args, struct task_result *out), void *args,
                  struct process_boot *boot, struct task *out, int *boot_fd) WARN_UNUSED;

/* The channels between a task and the cay-init that it starts: a pipe whose end says that the
 * program was executed, before that why not, and a socket pair. Each end -1, or open and the
 * task's; close-on-exec. */
struct process_ends {
    int status_fd, status_end; /* read by the task; written by the child */
    int sock, sock_end;        /* the task's; the child's */
};

#define PROCESS_ENDS_NONE    ((struct process_ends){-1, -1, -1, -1})
#define CLEANUP_PROCESS_ENDS CLEANUP(process_ends_close)

/* 0 or -errno; opened descriptors are in *e either way. */
int process_ends_open(struct process_ends *e) WARN_UNUSED;
void process_ends_close(struct process_ends *e);

/* Waits until a child with in->status_fd has become cay-init, or says why not. */
int process_await_exec(int status_fd, struct task_result *out);
