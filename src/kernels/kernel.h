#pragma once
/* A Jupyter kernel: a process, its connection file and three channels (shell, control, iopub).
 *
 *   STARTING --answers on shell and iopub--> READY --kernel_stop--> gone
 *      |  the process ends, or KERNEL_START_MS pass      | the process ends
 *      +-------------------> ended(arg, why) <-----------+
 *
 * The iopub channel is a subscription that reaches the kernel some time after it listens: when the
 * answer to kernel_info_request has come on shell alone, it is asked again. Ports of loopback are
 * chosen as jupyter_client does (bound, read, closed); when another program was faster the kernel
 * ends, and its owner starts it again. The process leads a session and a process group of its own,
 * so that an interrupt reaches what it started.
 *
 * The owner is told by callbacks on the loop; after `ended`, or kernel_stop, none comes. */

#include "kernels/spec.h"
#include "kernels/wire.h"

#include <uv.h>

#define KERNEL_START_MS 60000u

struct kernel;

struct kernel_events {
    void (*ready)(void *arg);
    void (*message)(void *arg, const struct wire_message *m); /* from shell or iopub */
    void (*ended)(void *arg, const char *why);
};

struct kernel_start {
    uv_loop_t *loop;
    void *zmq;
    const char *dir; /* of connection files, mode 0700 */
    const char *cwd;
    const struct spec *spec;
};

/* ERR_OK: callbacks come later, none in this call. */
enum err_code kernel_new(const struct kernel_start *s, const struct kernel_events *events,
                         void *arg, struct kernel **out, struct err *e);

/* Asks it to execute; id has WIRE_ID_LEN characters, and is the parent of what comes. silent: no
 * history, no output. 0 or -errno. */
int kernel_execute(struct kernel *k, const char *id, const char *code, bool silent);

/* As Ctrl-C does. */
void kernel_interrupt(struct kernel *k);

/* Kills it with its process group and frees it when the loop has turned. NULL is none. */
void kernel_stop(struct kernel *k);
