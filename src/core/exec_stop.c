/* A command that its caller gives up: its agent is asked to kill it and all that it started
 * (agent/process/ proc_signal.c), and its call then ends as any other does. Where the agent cannot
 * be asked, the command goes on to the end of its time. */
#include "core/core_internal.h"
#include "core/exec_internal.h"
#include "core/sandbox.h"

#include <stdio.h>

static void on_stopped(struct core *c, const char *id, const struct err *why, int status,
                       const char *body, size_t len, void *arg)
{
    exec_op_step_done(arg); /* it has ended meanwhile, or ends now: the stream tells */
}

/* A program in a command sandbox is asked over one of the sockets that were made there, any other
 * over a new one. */
static void call_stop(struct exec_op *op)
{
    struct call_agent_request r = {.method = "POST",
                                   .target = "/process.Process/SendSignal",
                                   .max_response_bytes = EXEC_ANSWER_MAX,
                                   .timeout_ms = EXEC_CALL_TIMEOUT_MS};
    struct sandbox_obj *o = exec_op_sandbox(op);

    if (op->core->stopping || op->stream.ended || op->stream.over || !o ||
        (op->command_sandbox && op->n_fds == 0) ||
        asprintf(&r.body, "{\"process\":{\"pid\":%lld},\"signal\":\"SIGNAL_SIGKILL\"}",
                 (long long)op->stream.pid) < 0)
        return;
    if (op->command_sandbox) {
        exec_op_call(op, &r, on_stopped);
        return;
    }
    op->waiting++;
    call_agent(o, &r, on_stopped, op);
}

void core_exec_stop(struct core *c, uint64_t number)
{
    struct exec_op *op = c->exec_ops;

    while (op && op->number != number)
        op = op->next_op;
    if (!op)
        return;
    if (op->stream.started)
        call_stop(op);
    else
        op->on_started = call_stop;
}
