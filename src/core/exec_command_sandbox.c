/* The command sandbox that a command with a policy of its own runs in: see exec.h. Two steps
 * before the program starts, each of two calls side by side: the environment from the sandbox's
 * agent and COMMAND_SANDBOX of cay-privd; then /init of the new agent and the policy's arrival
 * at cay-egress. exec.c goes on with op->next when all calls of a step are answered
 * (exec_op_step_done), also after a failure, so that no answer finds the op freed; op->why then
 * keeps later steps from beginning anything. The end withdraws the policy, asks cay-privd to end
 * the command sandbox and answers the client after that. */

#include "base/clock.h"
#include "base/log.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/exec_internal.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "http/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ENVS_MAX (2u * 1024u * 1024u)

/* -- one is made, and gets policy and environment ---------------------------------------------- */

/* Of a sandbox that is there and runs the reason is another's. */
static enum err_code blame_sandbox(struct exec_op *op, struct err *e)
{
    const struct sandbox_obj *o = sandbox_get(op->core, NULL, op->id);

    if (!o || !life_of(o->s.state)->visible)
        return err_set(e, ERR_NOT_FOUND, "the sandbox has ended");
    if (life_of(o->s.state)->reachable && exec_op_sandbox(op))
        return ERR_OK;
    err_set(e, ERR_CONFLICT, "the sandbox was paused, or rolled back, before the command began");
    err_hint(e, "resume it first: `cay resume %s`", op->id);
    return e->code;
}

static void on_policy(void *arg, const struct sandbox *s, const struct err *why)
{
    struct exec_op *op = arg;
    struct err e;

    if (why && !op->core->stopping)
        exec_op_fail(op, blame_sandbox(op, &e) == ERR_OK ? why : &e);
    else if (why)
        exec_op_fail(op, why);
    exec_op_step_done(op);
}

static void on_init(struct core *c, const char *id, const struct err *why, int status,
                    const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;

    if (why)
        exec_op_fail(op, why);
    else if (status / 100 != 2)
        exec_op_fail_by_agent(op, "the command's sandbox", status, body, len);
    exec_op_step_done(op);
}

/* As create.c says it to the sandbox's own agent, but that the environment is that one's, and that
 * all command sandboxes together may write as much as the sandbox itself. */
static char *make_init(struct exec_op *op, const struct sandbox_obj *o)
{
    char *text;
    json_t *body = create_init_body(o, op->envs,
                                    o->core->config.output_bytes / PRIVSEP_COMMAND_SANDBOXES_MAX);

    text = json_text(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static void prepare_command_sandbox(struct exec_op *op)
{
    struct sandbox_obj *o = exec_op_sandbox(op);
    struct call_agent_request r = {.method = "POST",
                                   .target = "/init",
                                   .max_response_bytes = EXEC_ANSWER_MAX,
                                   .timeout_ms = EXEC_CALL_TIMEOUT_MS};

    op->next = exec_op_start;
    op->waiting = 1;
    if (!o)
        exec_op_fail_text(op, ERR_NOT_FOUND, "the sandbox has ended");
    else if (op->why.code == ERR_OK && !(r.body = make_init(op, o)))
        exec_op_fail_text(op, ERR_EXHAUSTED, "memory is out");
    else if (op->why.code == ERR_OK && !exec_list_add(o, op->command_sandbox, op->policy))
        exec_op_fail_text(op, ERR_EXHAUSTED, "memory is out");
    if (op->why.code == ERR_OK) {
        op->waiting++;
        egress_touch_and_notify(o, on_policy, op);
        exec_op_call(op, &r, on_init);
    } else {
        free(r.body);
    }
    exec_op_step_done(op);
}

static void fail_command_sandbox(struct exec_op *op, int status, uint32_t stage)
{
    struct err e;

    if (!call_is_channel_error(status) && status != -ESHUTDOWN && blame_sandbox(op, &e) != ERR_OK) {
        exec_op_fail(op, &e);
        return;
    }
    if (status == -EMFILE) {
        err_set(&e, ERR_EXHAUSTED,
                "%d commands with policies of their own run in this sandbox, which is the limit",
                PRIVSEP_COMMAND_SANDBOXES_MAX);
        err_hint(&e, "wait for one to end");
    } else if (status == -ENOSPC && stage == PRIVSEP_STAGE_NAMESPACES) {
        err_set(&e, ERR_EXHAUSTED,
                "what earlier commands with policies of their own had is still there, as programs "
                "of the sandbox "
                "hold sockets or files of theirs");
        err_hint(&e, "end the programs that hold such descriptors");
    } else if (call_is_channel_error(status) || status == -ESHUTDOWN || status == -ESTALE ||
               status == -EBUSY) {
        call_privd_err(&e, status, "making a network for the command");
    } else {
        err_set_sys(&e, status == -EAGAIN ? ERR_EXHAUSTED : ERR_INTERNAL, status,
                    "making a network for the command (stage %s)", privsep_stage_name(stage));
    }
    exec_op_fail(op, &e);
}

static void ask_for_command_sandbox(struct exec_op *op);

static void ask_again(struct busy_wait *busy, struct sandbox_obj *o, int status)
{
    struct exec_op *op = CONTAINER_OF(busy, struct exec_op, busy);

    if (o) {
        ask_for_command_sandbox(op);
        return;
    }
    fail_command_sandbox(op, status, PRIVSEP_STAGE_NONE);
    exec_op_step_done(op);
}

static void on_command_sandbox(struct core *c, const char *id, int status,
                               const struct privsep_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct exec_op *op = arg;

    exec_op_keep_sockets(op, fds, n_fds);
    if (busy_wait_again(&op->busy, c, id, status))
        return;
    if (status == 0 && n_fds < PRIVSEP_COMMAND_SANDBOX_SOCKETS)
        status = -EPROTO;
    if (status < 0)
        fail_command_sandbox(op, status, m ? m->stage : PRIVSEP_STAGE_NONE);
    else
        op->command_sandbox = m->u.command_sandbox.number;
    exec_op_step_done(op);
}

static void ask_for_command_sandbox(struct exec_op *op)
{
    struct privsep_msg m = {.op = PRIVSEP_COMMAND_SANDBOX, .slot = op->slot, .gen = op->gen};
    int64_t rc;

    memcpy(m.u.command_sandbox.key, op->key, sizeof(m.u.command_sandbox.key));
    rc = call_privd(op->core, op->id, &m, on_command_sandbox, op);
    explicit_bzero(&m, sizeof(m));
    if (rc >= 0)
        return;
    fail_command_sandbox(op, (int)rc, PRIVSEP_STAGE_NONE);
    exec_op_step_done(op);
}

static void on_envs(struct core *c, const char *id, const struct err *why, int status,
                    const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;

    op->envs = call_agent_env(why, status, body, len);
    if (why)
        exec_op_fail(op, why);
    else if (!json_is_object(op->envs))
        exec_op_fail_text(
            op, ERR_UNIMPLEMENTED,
            "the sandbox's agent does not tell its environment: it is too old for commands "
            "with a policy of their own");
    exec_op_step_done(op);
}

void exec_command_sandbox_begin(struct exec_op *op, struct sandbox_obj *o)
{
    const struct call_agent_request envs = {.method = "GET",
                                            .target = "/envs",
                                            .max_response_bytes = ENVS_MAX,
                                            .timeout_ms = EXEC_CALL_TIMEOUT_MS};

    op->next = prepare_command_sandbox;
    op->waiting = 2;
    tenant_charge(o->tenant, TENANT_COMMAND_SANDBOXES, 1, &op->command_sandbox_charge);
    ids_random_bytes(op->key, sizeof(op->key));
    busy_wait_begin(&op->busy, ask_again);
    call_agent(o, &envs, on_envs, op);
    ask_for_command_sandbox(op); /* on_envs is still to come */
}

/* -- its end ----------------------------------------------------------------------------------- */

static void on_command_sandbox_end(struct core *c, const char *id, int status,
                                   const struct privsep_msg *m, int *fds, size_t n_fds, void *arg)
{
    struct exec_op *op = arg;

    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    if (status < 0 && status != -ENOENT && status != -ESTALE && !call_is_channel_error(status))
        log_warn("sandbox %s: command sandbox %u: not ended: %s", id, op->command_sandbox,
                 strerror(-status));
    exec_op_step_done(op);
}

static void on_end_of_paused(struct core *c, const char *id, int status,
                             const struct privsep_msg *m, int *fds, size_t n_fds, void *arg)
{
    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
}

/* In a sandbox that stands still it ends when that goes on (docs/privsep.md), for which its client
 * does not wait. False: there is nothing to wait for. */
static bool wait_for_end(struct exec_op *op, const struct sandbox_obj *o,
                         const struct privsep_msg *m)
{
    if (o && !life_of(o->s.state)->reachable) {
        (void)call_privd(op->core, op->id, m, on_end_of_paused, NULL);
        return false;
    }
    return call_privd(op->core, op->id, m, on_command_sandbox_end, op) >= 0;
}

void exec_command_sandbox_end(struct exec_op *op)
{
    struct privsep_msg m = {.op = PRIVSEP_COMMAND_SANDBOX_END, .slot = op->slot, .gen = op->gen};
    struct sandbox_obj *o = exec_op_sandbox(op);

    op->next = exec_op_answer;
    op->waiting = 1;
    m.u.command_sandbox.number = op->command_sandbox;
    if (o && op->command_sandbox) {
        exec_list_remove(o, op->command_sandbox);
        egress_touch(o);
    }
    /* Where it cannot be told, the command sandbox has ended with its sandbox, or with the
     * channel. */
    if (!op->command_sandbox || !wait_for_end(op, o, &m))
        exec_op_step_done(op);
}
