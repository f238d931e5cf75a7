/* The steps of a command, of which each starts the next, in this order: the request is checked;
 * sockets are fetched (or exec_command_sandbox.c makes the command sandbox and puts its policy
 * in force); the program is started, and its output taken as it comes while the input is sent;
 * its end, its refusals by cay-egress; the answer. A step may wait for several callbacks
 * (exec_op_step_done counts them). The first failure decides the answer, and the steps after it
 * are left out, but for the end of the command sandbox. Nothing keeps the sandbox: each step
 * looks it up again. */

#include "core/exec_internal.h"

#include "policy/policy.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/envelope.h"
#include "base/share.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/metrics.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "http/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DENIALS_MAX   (256u * 1024u)
#define GRACE_MS      15000u /* for the agent to say that the time is over */
#define PLAIN_SOCKETS 3u
#define STREAM_TYPE   "application/connect+json"

/* -- the end ----------------------------------------------------------------------------------- */

static void free_op(struct exec_op *op)
{
    struct sandbox_obj *o = op->counted ? sandbox_get(op->core, NULL, op->id) : NULL;

    if (o)
        o->commands--;
    *op->prev_op = op->next_op;
    if (op->next_op)
        op->next_op->prev_op = op->prev_op;
    for (size_t i = 0; i < op->n_fds; i++)
        close(op->fds[i]);
    if (op->start_body)
        explicit_bzero(op->start_body, op->start_len); /* its environment may hold secrets */
    free(op->start_body);
    free(op->user);
    if (op->input_body)
        explicit_bzero(op->input_body, strlen(op->input_body));
    free(op->input_body);
    explicit_bzero(op->key, sizeof(op->key));
    json_decref(op->policy);
    json_decref(op->envs);
    json_decref(op->violations);
    exec_stream_free(&op->stream);
    share_return(op->share);
    tenant_refund(&op->charge);
    tenant_refund(&op->command_sandbox_charge);
    free(op);
}

void exec_op_answer(struct exec_op *op)
{
    const struct exec_stream *s = &op->stream;
    struct core_exec_result r = {.exit_code = s->exit_code,
                                 .signal = s->signal[0] ? s->signal : NULL,
                                 .reason = s->reason[0] ? s->reason : NULL,
                                 .truncated = s->truncated,
                                 .timed_out = op->timed_out,
                                 .duration_ms = op->took_ms,
                                 .violations = op->violations};

    for (size_t i = 0; i < ARRAY_SIZE(r.output); i++) {
        r.output[i] = s->out[i].len ? s->out[i].data : "";
        r.output_len[i] = s->out[i].len;
    }
    if (op->why.code == ERR_OK)
        op->done(op->arg, &r, NULL);
    else
        op->done(op->arg, NULL, &op->why);
    free_op(op);
}

static void answer_deferred(void *arg)
{
    exec_op_answer(arg);
}

/* -- steps ------------------------------------------------------------------------------------- */

void exec_op_fail(struct exec_op *op, const struct err *why)
{
    if (op->why.code == ERR_OK)
        op->why = *why;
}

void exec_op_fail_text(struct exec_op *op, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    exec_op_fail(op, &e);
}

/* A callback that a step waits for has come; the last begins the next step. When the server stops,
 * privd ends what is there, and nothing more is begun. */
void exec_op_step_done(struct exec_op *op)
{
    if (--op->waiting > 0)
        return;
    if (!op->core->stopping) {
        op->next(op);
        return;
    }
    err_set(&op->why, ERR_CANCELED, "the server is stopping");
    exec_op_answer(op);
}

struct sandbox_obj *exec_op_sandbox(struct exec_op *op)
{
    struct sandbox_obj *o = sandbox_get(op->core, NULL, op->id);

    if (o && o->known_to_privd && o->s.slot == op->slot && o->s.gen == op->gen)
        return o;
    return NULL;
}

void exec_op_call(struct exec_op *op, const struct call_agent_request *r, call_agent_cb cb)
{
    op->waiting++;
    call_agent_at(op->core, op->id, op->fds[--op->n_fds], op->key, r, cb, op);
}

/* An agent's own refusal, {"code", "message"}, as this call's error. */
void exec_op_fail_by_agent(struct exec_op *op, const char *what, int status, const char *body,
                           size_t len)
{
    json_t *o = body ? json_load_answer(body, len) : NULL;
    const char *message = json_string_value(json_object_get(o, "message"));
    struct err e;

    err_set(&e,
            status == 400 || status == 401 || status == 404 ? ERR_INVALID
            : status == 429                                 ? ERR_EXHAUSTED
                                                            : ERR_INTERNAL,
            "%s: %.200s", what, message ? message : "its agent refused it");
    json_decref(o);
    exec_op_fail(op, &e);
}

/* -- then: what it was refused ----------------------------------------------------------------- */

static bool is_of_its_time(const struct exec_op *op, const json_t *denial)
{
    const char *time = json_string_value(json_object_get(denial, "time"));
    int64_t at_ms;

    return time && clock_parse_rfc3339(time, &at_ms) == 0 && at_ms >= op->begun_real_ms;
}

static void on_denials(struct core *c, const char *id, const struct err *why, int status,
                       const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;
    json_t *o = !why && status == 200 ? json_load(body, len) : NULL, *denial;
    size_t i;

    json_array_foreach (json_object_get(o, "denials"), i, denial)
        if (is_of_its_time(op, denial))
            json_array_append(op->violations, denial);
    json_decref(o);
    exec_op_step_done(op);
}

static void get_denials(struct exec_op *op)
{
    struct call_agent_request r = {
        .method = "GET", .max_response_bytes = DENIALS_MAX, .timeout_ms = EXEC_CALL_TIMEOUT_MS};
    struct core *c = op->core;
    char target[96], command_sandbox[32] = "";

    op->next = exec_command_sandbox_end;
    op->waiting = 1;
    if (egress_count(c) == 0 || op->why.code != ERR_OK) {
        exec_op_step_done(op);
        return;
    }
    if (op->command_sandbox)
        (void)snprintf(command_sandbox, sizeof(command_sandbox), "/command_sandboxes/%u",
                       op->command_sandbox);
    (void)snprintf(target, sizeof(target), "/v1/sandboxes/%u/%u%s/denials", op->slot, op->gen,
                   command_sandbox);
    r.target = target;
    call_unix(c, op->id, egress_path(c, op->slot % egress_count(c)), &r, on_denials, op);
}

/* -- then: the program ------------------------------------------------------------------------- */

static void on_input_closed(struct core *c, const char *id, const struct err *why, int status,
                            const char *body, size_t len, void *arg)
{
    exec_op_step_done(arg); /* a program that has not read it all, or has ended, is not a failure */
}

static void on_input(struct core *c, const char *id, const struct err *why, int status,
                     const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;
    struct call_agent_request r = {.method = "POST",
                                   .target = "/process.Process/CloseStdin",
                                   .max_response_bytes = EXEC_ANSWER_MAX,
                                   .timeout_ms = EXEC_CALL_TIMEOUT_MS};

    if (!c->stopping && !why && op->n_fds > 0 &&
        asprintf(&r.body, "{\"process\":{\"pid\":%lld}}", (long long)op->stream.pid) > 0)
        exec_op_call(op, &r, on_input_closed);
    exec_op_step_done(op);
}

static void send_input(struct exec_op *op)
{
    struct call_agent_request r = {.method = "POST",
                                   .target = "/process.Process/SendInput",
                                   .max_response_bytes = EXEC_ANSWER_MAX,
                                   .timeout_ms = op->timeout_ms + GRACE_MS};
    char *input = TAKE_PTR(op->input_body);

    if (!input)
        return;
    if (op->n_fds > 0 &&
        asprintf(&r.body, "{\"process\":{\"pid\":%lld},\"input\":{\"stdin\":\"%s\"}}",
                 (long long)op->stream.pid, input) > 0)
        exec_op_call(op, &r, on_input);
    explicit_bzero(input, strlen(input));
    free(input);
}

static bool on_output(void *arg, const char *data, size_t len)
{
    struct exec_op *op = arg;

    if (!exec_stream_feed(&op->stream, data, len))
        return false;
    if (!op->stream.started)
        return true;
    if (op->on_started)
        TAKE_PTR(op->on_started)(op);
    send_input(op);
    if (!op->stream.output || op->stream.over)
        return true;
    return op->stream.output(op->arg, EXEC_STDOUT, "",
                             0); /* each sign of life asks whether to go on */
}

static enum err_code code_of(const char *connect)
{
    static const struct {
        const char *name;
        enum err_code code;
    } codes[] = {{"invalid_argument", ERR_INVALID},
                 {"unauthenticated", ERR_INVALID},
                 {"not_found", ERR_INVALID},
                 {"resource_exhausted", ERR_EXHAUSTED},
                 {"unimplemented", ERR_UNIMPLEMENTED}};

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (strcmp(codes[i].name, connect) == 0)
            return codes[i].code;
    return ERR_INTERNAL;
}

/* The end of the stream as a result. Its time is over: the agent has killed it. */
static void evaluate(struct exec_op *op, const struct err *why, int status, const char *body,
                     size_t len)
{
    const struct exec_stream *s = &op->stream;

    if (strcmp(s->error, "deadline_exceeded") == 0 || (why && why->code == ERR_TIMEOUT))
        op->timed_out = true;
    else if (s->ended)
        return;
    else if (s->error[0])
        exec_op_fail_text(op, code_of(s->error), s->message[0] ? s->message : s->error);
    else if (!why && status / 100 != 2)
        exec_op_fail_by_agent(op, "the program was not started", status, body, len);
    else if (!exec_op_sandbox(op))
        exec_op_fail_text(op, ERR_NOT_FOUND, "the sandbox has ended, and the program with it");
    else
        exec_op_fail_text(op, ERR_UNAVAILABLE,
                          "the connection to the program was lost: it was ended");
}

static void on_end(struct core *c, const char *id, const struct err *why, int status,
                   const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;

    op->took_ms = clock_mono_ms() - op->begun_ms;
    evaluate(op, why, status, body, len);
    exec_op_step_done(op);
}

void exec_op_start(struct exec_op *op)
{
    struct call_agent_request r = {.method = "POST",
                                   .target = "/process.Process/Start",
                                   .body = op->start_body,
                                   .body_len = op->start_len,
                                   .type = STREAM_TYPE,
                                   .user = op->user,
                                   .agent_timeout_ms = op->timeout_ms,
                                   .agent_beat_ms = op->stream.output ? CORE_EXEC_CALL_MS : 0,
                                   .max_response_bytes = EXEC_ANSWER_MAX,
                                   .timeout_ms = op->timeout_ms + GRACE_MS,
                                   .on_data = on_output};

    op->next = get_denials;
    op->waiting = 0;
    if (op->why.code != ERR_OK) {
        get_denials(op);
        return;
    }
    op->start_body = NULL; /* the call's */
    op->begun_ms = clock_mono_ms();
    op->begun_real_ms = clock_real_ms();
    exec_op_call(op, &r, on_end);
}

/* -- first: sockets, where there is no command sandbox ----------------------------------------- */

void exec_op_keep_sockets(struct exec_op *op, const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (op->n_fds < ARRAY_SIZE(op->fds))
            op->fds[op->n_fds++] = fds[i];
        else
            close(fds[i]);
}

static void on_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    struct exec_op *op = arg;

    if (why)
        exec_op_fail(op, why);
    else
        exec_op_keep_sockets(op, fds, n);
    exec_op_step_done(op);
}

static void begin_plain(struct exec_op *op, struct sandbox_obj *o)
{
    op->next = exec_op_start;
    op->waiting = 1;
    memcpy(op->key, o->s.agent_key, sizeof(op->key));
    sockets_get(o, PLAIN_SOCKETS, on_sockets, op);
}

/* -- the request ------------------------------------------------------------------------------- */

/* Its own policy may use what the sandbox's does, and nothing besides. */
static enum err_code check_policy(struct core *c, const struct sandbox *s, const json_t *policy,
                                  struct err *e)
{
    struct policy *own = NULL, *outer = NULL;
    const char *name;
    enum err_code code;

    if (json_dumpb(policy, NULL, 0, JSON_COMPACT) > CORE_EXEC_POLICY_MAX)
        return err_set(e, ERR_INVALID, "policy: a command's may have %u bytes at most",
                       CORE_EXEC_POLICY_MAX);
    code = policy_new(policy, &own, e);
    if (code == ERR_OK)
        code = policy_new(s->policy, &outer, e);
    for (size_t i = 0; code == ERR_OK && (name = policy_credential(own, i)); i++)
        if (!policy_uses_credential(outer, name))
            code = err_set(e, ERR_INVALID,
                           "inject: the sandbox's policy does not use the credential \"%.64s\", so "
                           "no command of it may",
                           name);
    policy_free(own);
    policy_free(outer);
    if (code == ERR_OK && egress_count(c) == 0)
        return err_set(e, ERR_UNAVAILABLE,
                       "this server has no cay-egress: no command can have a policy of its own");
    return code;
}

static enum err_code check(struct core *c, const char *tenant, const char *id,
                           const struct core_exec_request *r, struct sandbox_obj **out,
                           struct share **share, struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code == ERR_OK)
        code = sandbox_reachable(c, tenant, id, out, e);
    if (code == ERR_OK)
        *share = share_take(c->execs, tenant, id);
    if (code == ERR_OK && !*share && share_may_take(c->execs, tenant, id))
        code = err_set(e, ERR_EXHAUSTED, "memory is out");
    else if (code == ERR_OK && !*share)
        code = err_set(
            e, ERR_EXHAUSTED,
            "%zu commands of this sandbox run for such calls, %zu of its tenant, of %u on this "
            "server: that is its share; wait for one to end",
            share_held(c->execs, tenant, id), share_held(c->execs, tenant, NULL), CORE_EXECS_MAX);
    if (code == ERR_OK && r->policy)
        code = check_policy(c, &(*out)->s, r->policy, e);
    return code;
}

static char *make_start(const struct core_exec_request *r, size_t *len)
{
    json_t *request = json_pack("{s:O, s:b}", "process", r->process, "stdin", r->input != NULL);
    size_t n = request ? json_dumpb(request, NULL, 0, JSON_COMPACT) : 0;
    char *body = n ? malloc(ENVELOPE_HEAD_BYTES + n) : NULL;

    if (body && json_dumpb(request, body + ENVELOPE_HEAD_BYTES, n, JSON_COMPACT) != n)
        free(TAKE_PTR(body)); /* each of the two takes memory */
    if (body) {
        envelope_write_head(body, 0, (uint32_t)n);
        *len = ENVELOPE_HEAD_BYTES + n;
    }
    json_decref(request);
    return body;
}

static char *encode(const char *bytes, size_t n)
{
    char *text = bytes ? malloc(base64_encoded_len(n) + 1) : NULL;

    if (text)
        base64_encode(bytes, n, text);
    return text;
}

static struct exec_op *new_op(struct core *c, const char *id, const struct core_exec_request *r,
                              core_exec_cb done, void *arg)
{
    struct exec_op *op = RESERVE_NEW(&c->reserve, struct exec_op);

    op->core = c;
    op->number = ++c->exec_last;
    op->next_op = c->exec_ops;
    op->prev_op = &c->exec_ops;
    if (op->next_op)
        op->next_op->prev_op = &op->next_op;
    c->exec_ops = op;
    (void)snprintf(op->id, sizeof(op->id), "%s", id);
    op->timeout_ms = MIN(r->timeout_ms ? r->timeout_ms : CORE_EXEC_TIMEOUT_MS,
                         CORE_EXEC_TIMEOUT_MAX_MS);
    exec_stream_init(&op->stream, MIN(r->max_output_bytes, CORE_EXEC_OUTPUT_MAX));
    op->stream.output = r->on_output;
    op->stream.arg = arg;
    op->start_body = make_start(r, &op->start_len);
    op->user = r->user && *r->user ? strdup(r->user) : NULL;
    op->input_body = encode(r->input, r->input_len);
    op->policy = json_deep_copy(r->policy);
    op->violations = json_array();
    op->done = done;
    op->arg = arg;
    if (!op->start_body || !op->violations || (r->input && !op->input_body) ||
        (r->policy && !op->policy) || (r->user && *r->user && !op->user))
        exec_op_fail_text(op, ERR_EXHAUSTED, "memory is out");
    return op;
}

uint64_t core_exec(struct core *c, const char *tenant, const char *id,
                   const struct core_exec_request *r, core_exec_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct exec_op *op = new_op(c, id, r, done, arg);
    struct err e;

    if (op->why.code == ERR_OK && check(c, tenant, id, r, &o, &op->share, &e) != ERR_OK)
        exec_op_fail(op, &e);
    if (op->why.code != ERR_OK) {
        core_defer(c, &op->later, answer_deferred, op);
        return op->number;
    }
    tenant_charge(o->tenant, TENANT_EXECS, 1, &op->charge);
    core_sandbox_used(c, id);
    o->commands++;
    op->counted = true;
    op->slot = o->s.slot;
    op->gen = o->s.gen;
    metrics_touch(o, op->timeout_ms);
    if (op->policy)
        exec_command_sandbox_begin(op, o);
    else
        begin_plain(op, o);
    return op->number;
}
