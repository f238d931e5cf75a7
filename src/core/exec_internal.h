#pragma once
/* Shared by the files of exec: a command that is under way. Its steps, each of which waits for one
 * or more callbacks and then goes on with op->next: a command sandbox (exec_command_sandbox.c) or
 * sockets; for a command sandbox, policy and environment; the program; what it was refused; the
 * command sandbox's end; the answer. */

#include "base/err.h"
#include "base/ids.h"
#include "contract/proto.h"
#include "core/busy_wait.h"
#include "core/call.h"
#include "core/deferred.h"
#include "core/egress.h"
#include "core/exec.h"
#include "core/exec_stream.h"
#include "core/tenant.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct share;

#define EXEC_ANSWER_MAX      (64u * 1024u)
#define EXEC_CALL_TIMEOUT_MS 10000u

struct exec_op {
    struct core *core;
    struct exec_op *next_op, **prev_op; /* of core->exec_ops */
    uint64_t number;
    bool counted;                           /* in its sandbox's commands */
    void (*on_started)(struct exec_op *op); /* once its program has; NULL: nothing waits for that */
    struct share *share;                    /* its place among all; NULL: none was given */
    struct tenant_charge charge, command_sandbox_charge;
    char id[IDS_SANDBOX_SIZE];
    char *start_body; /* an envelope */
    size_t start_len;
    char *user, *input_body;
    uint64_t timeout_ms;
    json_t *policy; /* NULL: it runs in the sandbox's own network */

    uint8_t key[PRIVSEP_KEY_SIZE]; /* of the agent that is asked */
    int fds[PRIVSEP_MAX_FDS];      /* unconnected sockets to it */
    size_t n_fds;
    uint32_t slot, gen, command_sandbox; /* 0: none is there (any more) */
    json_t *envs;                        /* of the sandbox's own agent */
    struct busy_wait busy;               /* for which a command sandbox is asked for again */

    struct exec_stream stream;
    unsigned waiting; /* callbacks that will come */
    void (*next)(struct exec_op *op);
    struct err why; /* the first failure; code ERR_OK: none */
    bool timed_out;
    int64_t begun_real_ms;
    uint64_t begun_ms, took_ms;
    json_t *violations;
    core_exec_cb done;
    void *arg;
    struct deferred later;
};

/* The first failure is the one that is told. */
void exec_op_fail(struct exec_op *op, const struct err *why);
void exec_op_fail_text(struct exec_op *op, enum err_code code, const char *text);

/* An agent's own refusal, {"code", "message"}, as this call's error. */
void exec_op_fail_by_agent(struct exec_op *op, const char *what, int status, const char *body,
                           size_t len);

/* A callback that a step waits for has come; the last begins the next step. */
void exec_op_step_done(struct exec_op *op);

/* Its sandbox, in the generation that it was begun in; NULL: that has ended. */
struct sandbox_obj *exec_op_sandbox(struct exec_op *op);

/* Asks the agent that it runs by, over one of op->fds; cb's arg is op. */
void exec_op_call(struct exec_op *op, const struct call_agent_request *r, call_agent_cb cb);

/* Takes them over. */
void exec_op_keep_sockets(struct exec_op *op, const int *fds, size_t n);

/* Steps. */
void exec_op_start(struct exec_op *op);
void exec_op_answer(struct exec_op *op);

/* exec_command_sandbox.c: a command sandbox for op->policy, then exec_op_start; without one nothing
 * is started. */
void exec_command_sandbox_begin(struct exec_op *op, struct sandbox_obj *o);

/* exec_command_sandbox.c: nothing of it is left, if there was one; then exec_op_answer. */
void exec_command_sandbox_end(struct exec_op *op);

/* exec_list.c: the policy of a command sandbox is sent from now on (false: memory is out), or no
 * more. */
bool exec_list_add(struct sandbox_obj *o, uint32_t number, json_t *policy);
void exec_list_remove(struct sandbox_obj *o, uint32_t number);
