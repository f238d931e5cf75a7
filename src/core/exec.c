#include "core/exec.h"

#include "core/call.h"
#include "core/egress.h"
#include "core/exec_stream.h"
#include "policy/policy.h"

#include "base/base64.h"

#include <errno.h>
#include <stdio.h>

#define ANSWER_MAX     (64u * 1024u)
#define ENVS_MAX       (2u * 1024u * 1024u)
#define DENIALS_MAX    (256u * 1024u)
#define ASK_TIMEOUT_MS 10000u
#define GRACE_MS       15000u /* for the agent to say that the time is over */
#define PLAIN_SOCKETS  3u
#define ENVELOPE_HEAD  5u
#define STREAM_TYPE    "application/connect+json"

/* A room of a sandbox, as long as its policy is to be in force. */
struct exec_room {
    uint32_t number;
    json_t *policy;
    struct exec_room *next;
};

struct exec_op {
    struct core *core;
    char id[IDS_SANDBOX_SIZE];
    char *start_body; /* an envelope */
    size_t start_len;
    char *user, *input_body;
    uint64_t timeout_ms;
    json_t *policy; /* NULL: it runs in the sandbox's own network */

    uint8_t key[PRIVSEP_KEY_SIZE]; /* of the agent that is asked */
    int fds[PRIVSEP_MAX_FDS];      /* unconnected sockets to it */
    size_t n_fds;
    uint32_t slot, gen, room; /* room 0: none is there (any more) */
    json_t *envs;             /* of the sandbox's own agent */

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
};

/* -- rooms of a sandbox ------------------------------------------------------------------------ */

json_t *exec_rooms(const struct sandbox_obj *o)
{
    json_t *out = o->rooms ? json_array() : NULL;

    for (const struct exec_room *r = o->rooms; out && r; r = r->next)
        json_array_append_new(out, json_pack("{s:I, s:O, s:o}", "room", (json_int_t)r->number,
                                             "policy", r->policy, "credentials",
                                             credentials_for_command(o->core, &o->s, r->policy)));
    return out;
}

static bool add_room(struct sandbox_obj *o, uint32_t number, json_t *policy)
{
    struct exec_room *r = malloc(sizeof(*r));

    if (!r)
        return false;
    *r = (struct exec_room){number, json_incref(policy), o->rooms};
    o->rooms = r;
    return true;
}

static void free_room(struct exec_room *r)
{
    json_decref(r->policy);
    free(r);
}

static void remove_room(struct sandbox_obj *o, uint32_t number)
{
    struct exec_room **at = &o->rooms, *r;

    while (*at && (*at)->number != number)
        at = &(*at)->next;
    r = *at;
    if (!r)
        return;
    *at = r->next;
    free_room(r);
}

void exec_rooms_free(struct sandbox_obj *o)
{
    while (o->rooms) {
        struct exec_room *r = o->rooms;

        o->rooms = r->next;
        free_room(r);
    }
}

/* -- the end ----------------------------------------------------------------------------------- */

static void free_op(struct exec_op *op)
{
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
    op->core->execs--;
    free(op);
}

static void answer(struct exec_op *op)
{
    const struct exec_stream *s = &op->stream;
    struct core_exec_result r = {.exit_code = s->exit_code,
                                 .signal = s->signal[0] ? s->signal : NULL,
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
    answer(arg);
}

/* -- steps ------------------------------------------------------------------------------------- */

static void fail(struct exec_op *op, const struct err *why)
{
    if (op->why.code == ERR_OK)
        op->why = *why;
}

static void fail_text(struct exec_op *op, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    fail(op, &e);
}

/* One of the callbacks that a step waits for has come; the last goes on. When the server stops, privd ends
 * what is there, and nothing more is begun. */
static void came(struct exec_op *op)
{
    if (--op->waiting > 0)
        return;
    if (!op->core->stopping) {
        op->next(op);
        return;
    }
    err_set(&op->why, ERR_CANCELED, "the server is stopping");
    answer(op);
}

static struct sandbox_obj *sandbox_of(struct exec_op *op)
{
    struct sandbox_obj *o = sandbox_get(op->core, NULL, op->id);

    if (o && o->known_to_privd && o->s.slot == op->slot && o->s.gen == op->gen)
        return o;
    return NULL;
}

static void ask_agent(struct exec_op *op, const struct call_agent_request *r, call_agent_cb cb)
{
    op->waiting++;
    call_agent_at(op->core, op->id, op->fds[--op->n_fds], op->key, r, cb, op);
}

/* An agent's own refusal, {"code", "message"}, as this call's error. */
static void fail_by_agent(struct exec_op *op, const char *what, int status, const char *body,
                          size_t len)
{
    json_t *o = body ? json_loadb(body, len, 0, NULL) : NULL;
    const char *message = json_string_value(json_object_get(o, "message"));
    struct err e;

    err_set(&e,
            status == 400 || status == 401 || status == 404 ? ERR_INVALID
            : status == 429                                 ? ERR_EXHAUSTED
                                                            : ERR_INTERNAL,
            "%s: %.200s", what, message ? message : "its agent refused it");
    json_decref(o);
    fail(op, &e);
}

/* -- 5: nothing of it is left ------------------------------------------------------------------ */

static void on_room_end(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg)
{
    struct exec_op *op = arg;

    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    if (status < 0 && status != -ENOENT && status != -ESTALE && !call_is_channel_error(status))
        log_warn("sandbox %s: room %u: not ended: %s", id, op->room, strerror(-status));
    came(op);
}

static void end_room(struct exec_op *op)
{
    struct privsep_msg m = {.op = PRIVSEP_ROOM_END, .slot = op->slot, .gen = op->gen};
    struct sandbox_obj *o = sandbox_of(op);

    op->next = answer;
    op->waiting = 1;
    m.u.room.number = op->room;
    if (o && op->room) {
        remove_room(o, op->room);
        egress_touch(o);
    }
    /* Where it cannot be told, the room has ended with its sandbox, or with the channel. */
    if (!op->room || call_privd(op->core, op->id, &m, on_room_end, op) < 0)
        came(op);
}

/* -- 4: what it was refused -------------------------------------------------------------------- */

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
    json_t *o = !why && status == 200 ? json_loadb(body, len, 0, NULL) : NULL, *denial;
    size_t i;

    json_array_foreach (json_object_get(o, "denials"), i, denial)
        if (is_of_its_time(op, denial))
            json_array_append(op->violations, denial);
    json_decref(o);
    came(op);
}

static void ask_denials(struct exec_op *op)
{
    struct call_agent_request r = {
        .method = "GET", .max_response_bytes = DENIALS_MAX, .timeout_ms = ASK_TIMEOUT_MS};
    struct core *c = op->core;
    char target[96], room[32] = "";

    op->next = end_room;
    op->waiting = 1;
    if (egress_count(c) == 0 || op->why.code != ERR_OK) {
        came(op);
        return;
    }
    if (op->room)
        (void)snprintf(room, sizeof(room), "/rooms/%u", op->room);
    (void)snprintf(target, sizeof(target), "/v1/sandboxes/%u/%u%s/denials", op->slot, op->gen,
                   room);
    r.target = target;
    call_unix(c, op->id, egress_path(c, op->slot % egress_count(c)), &r, on_denials, op);
}

/* -- 3: the program ---------------------------------------------------------------------------- */

static void on_input_closed(struct core *c, const char *id, const struct err *why, int status,
                            const char *body, size_t len, void *arg)
{
    came(arg); /* a program that has not read it all, or has ended, is not a failure */
}

static void on_input(struct core *c, const char *id, const struct err *why, int status,
                     const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;
    struct call_agent_request r = {.method = "POST",
                                   .target = "/process.Process/CloseStdin",
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = ASK_TIMEOUT_MS};

    if (!c->stopping && !why && op->n_fds > 0 &&
        asprintf(&r.body, "{\"process\":{\"pid\":%lld}}", (long long)op->stream.pid) > 0)
        ask_agent(op, &r, on_input_closed);
    came(op);
}

static void send_input(struct exec_op *op)
{
    struct call_agent_request r = {.method = "POST",
                                   .target = "/process.Process/SendInput",
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = op->timeout_ms + GRACE_MS};
    char *input = TAKE_PTR(op->input_body);

    if (!input)
        return;
    if (op->n_fds > 0 &&
        asprintf(&r.body, "{\"process\":{\"pid\":%lld},\"input\":{\"stdin\":\"%s\"}}",
                 (long long)op->stream.pid, input) > 0)
        ask_agent(op, &r, on_input);
    explicit_bzero(input, strlen(input));
    free(input);
}

static bool on_output(void *arg, const char *data, size_t len)
{
    struct exec_op *op = arg;

    if (!exec_stream_feed(&op->stream, data, len))
        return false;
    if (op->stream.started)
        send_input(op);
    return true;
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

/* What the stream's end means. Its time is over: the agent has killed it. */
static void judge(struct exec_op *op, const struct err *why, int status, const char *body,
                  size_t len)
{
    const struct exec_stream *s = &op->stream;

    if (strcmp(s->error, "deadline_exceeded") == 0 || (why && why->code == ERR_TIMEOUT))
        op->timed_out = true;
    else if (s->ended)
        return;
    else if (s->error[0])
        fail_text(op, code_of(s->error), s->message[0] ? s->message : s->error);
    else if (!why && status / 100 != 2)
        fail_by_agent(op, "the program was not started", status, body, len);
    else if (!sandbox_of(op))
        fail_text(op, ERR_NOT_FOUND, "the sandbox has ended, and the program with it");
    else
        fail_text(op, ERR_UNAVAILABLE, "the connection to the program was lost: it was ended");
}

static void on_end(struct core *c, const char *id, const struct err *why, int status,
                   const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;

    op->took_ms = clock_mono_ms() - op->begun_ms;
    judge(op, why, status, body, len);
    came(op);
}

static void start(struct exec_op *op)
{
    struct call_agent_request r = {.method = "POST",
                                   .target = "/process.Process/Start",
                                   .body = op->start_body,
                                   .body_len = op->start_len,
                                   .type = STREAM_TYPE,
                                   .user = op->user,
                                   .agent_timeout_ms = op->timeout_ms,
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = op->timeout_ms + GRACE_MS,
                                   .on_data = on_output};

    op->next = ask_denials;
    op->waiting = 0;
    if (op->why.code != ERR_OK) {
        ask_denials(op);
        return;
    }
    op->start_body = NULL; /* the call's */
    op->begun_ms = clock_mono_ms();
    op->begun_real_ms = clock_real_ms();
    ask_agent(op, &r, on_end);
}

/* -- 2: its room gets policy and environment --------------------------------------------------- */

static void on_policy(void *arg, const struct sandbox *s, const struct err *why)
{
    struct exec_op *op = arg;

    if (why)
        fail(op, why);
    came(op);
}

static void on_init(struct core *c, const char *id, const struct err *why, int status,
                    const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;

    if (why)
        fail(op, why);
    else if (status / 100 != 2)
        fail_by_agent(op, "the command's room", status, body, len);
    came(op);
}

/* As create.c says it to the sandbox's own agent, but that the environment is that one's. */
static char *make_init(struct exec_op *op, const struct sandbox *s)
{
    char *text;
    json_t *body = create_init_body(op->core, s, op->envs);

    text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

static void prepare_room(struct exec_op *op)
{
    struct sandbox_obj *o = sandbox_of(op);
    struct call_agent_request r = {.method = "POST",
                                   .target = "/init",
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = ASK_TIMEOUT_MS};

    op->next = start;
    op->waiting = 1;
    if (!o)
        fail_text(op, ERR_NOT_FOUND, "the sandbox has ended");
    else if (op->why.code == ERR_OK && !(r.body = make_init(op, &o->s)))
        fail_text(op, ERR_EXHAUSTED, "memory is out");
    else if (op->why.code == ERR_OK && !add_room(o, op->room, op->policy))
        fail_text(op, ERR_EXHAUSTED, "memory is out");
    if (op->why.code == ERR_OK) {
        op->waiting++;
        egress_touch_and_tell(o, on_policy, op);
        ask_agent(op, &r, on_init);
    }
    came(op);
}

/* -- 1: a room, or sockets --------------------------------------------------------------------- */

static void keep_sockets(struct exec_op *op, const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (op->n_fds < ARRAY_SIZE(op->fds))
            op->fds[op->n_fds++] = fds[i];
        else
            close(fds[i]);
}

static void fail_room(struct exec_op *op, int status, uint32_t stage)
{
    struct err e;

    if (status == -EMFILE) {
        err_set(&e, ERR_EXHAUSTED,
                "%d commands with policies of their own run in this sandbox, which is the limit",
                PRIVSEP_ROOMS_MAX);
        err_hint(&e, "wait for one to end");
    } else if (call_is_channel_error(status) || status == -ESHUTDOWN || status == -ESTALE) {
        call_privd_err(&e, status, "making a network for the command");
    } else {
        err_set_sys(&e, status == -EAGAIN ? ERR_EXHAUSTED : ERR_INTERNAL, status,
                    "making a network for the command (stage %s)", privsep_stage_name(stage));
    }
    fail(op, &e);
}

static void on_room(struct core *c, const char *id, int status, const struct privsep_msg *m,
                    int *fds, size_t n_fds, void *arg)
{
    struct exec_op *op = arg;

    keep_sockets(op, fds, n_fds);
    if (status == 0 && n_fds < PRIVSEP_ROOM_SOCKETS)
        status = -EPROTO;
    if (status < 0)
        fail_room(op, status, m ? m->stage : PRIVSEP_STAGE_NONE);
    else
        op->room = m->u.room.number;
    came(op);
}

static void on_envs(struct core *c, const char *id, const struct err *why, int status,
                    const char *body, size_t len, void *arg)
{
    struct exec_op *op = arg;

    op->envs = !why && status == 200 ? json_loadb(body, len, 0, NULL) : NULL;
    if (why)
        fail(op, why);
    else if (!json_is_object(op->envs))
        fail_text(op, ERR_UNIMPLEMENTED,
                  "the sandbox's agent does not tell its environment: it is too old for commands "
                  "with a policy of their own");
    came(op);
}

static void begin_room(struct exec_op *op, struct sandbox_obj *o)
{
    const struct call_agent_request envs = {.method = "GET",
                                            .target = "/envs",
                                            .max_response_bytes = ENVS_MAX,
                                            .timeout_ms = ASK_TIMEOUT_MS};
    struct privsep_msg m = {.op = PRIVSEP_ROOM, .slot = o->s.slot, .gen = o->s.gen};
    int64_t rc;

    op->next = prepare_room;
    op->waiting = 2;
    ids_random_bytes(op->key, sizeof(op->key));
    memcpy(m.u.room.key, op->key, sizeof(m.u.room.key));
    call_agent(o, &envs, on_envs, op);
    rc = call_privd(op->core, op->id, &m, on_room, op);
    explicit_bzero(&m, sizeof(m));
    if (rc >= 0)
        return;
    fail_room(op, (int)rc, PRIVSEP_STAGE_NONE);
    op->waiting--; /* on_envs is still to come */
}

static void on_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    struct exec_op *op = arg;

    if (why)
        fail(op, why);
    else
        keep_sockets(op, fds, n);
    came(op);
}

static void begin_plain(struct exec_op *op, struct sandbox_obj *o)
{
    op->next = start;
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
                           struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code == ERR_OK)
        code = sandbox_visible(c, tenant, id, out, e);
    if (code == ERR_OK && (*out)->s.state != SANDBOX_RUNNING)
        code = err_set(e, ERR_CONFLICT, "sandbox %s does not run: it is %s", id,
                       sandbox_state_name((*out)->s.state));
    if (code == ERR_OK && c->execs > CORE_EXECS_MAX)
        code = err_set(e, ERR_EXHAUSTED, "%u commands run for such calls, which is the limit",
                       CORE_EXECS_MAX);
    if (code == ERR_OK && r->policy)
        code = check_policy(c, &(*out)->s, r->policy, e);
    return code;
}

static char *make_start(const struct core_exec_request *r, size_t *len)
{
    json_t *request = json_pack("{s:O, s:b}", "process", r->process, "stdin", r->input != NULL);
    size_t n = request ? json_dumpb(request, NULL, 0, JSON_COMPACT) : 0;
    uint8_t *body = n ? malloc(ENVELOPE_HEAD + n) : NULL;

    if (body) {
        body[0] = 0;
        for (int i = 0; i < 4; i++)
            body[1 + i] = (uint8_t)(n >> (24 - 8 * i));
        json_dumpb(request, (char *)body + ENVELOPE_HEAD, n, JSON_COMPACT);
        *len = ENVELOPE_HEAD + n;
    }
    json_decref(request);
    return (char *)body;
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
    struct exec_op *op = calloc(1, sizeof(*op));

    if (!op)
        abort(); /* nothing is left that could tell the caller */
    op->core = c;
    (void)snprintf(op->id, sizeof(op->id), "%s", id);
    op->timeout_ms = MIN(r->timeout_ms ? r->timeout_ms : CORE_EXEC_TIMEOUT_MS,
                         CORE_EXEC_TIMEOUT_MAX_MS);
    exec_stream_init(&op->stream, MIN(r->max_output_bytes, CORE_EXEC_OUTPUT_MAX));
    op->start_body = make_start(r, &op->start_len);
    op->user = r->user && *r->user ? strdup(r->user) : NULL;
    op->input_body = encode(r->input, r->input_len);
    op->policy = json_deep_copy(r->policy);
    op->violations = json_array();
    op->done = done;
    op->arg = arg;
    c->execs++;
    if (!op->start_body || !op->violations || (r->input && !op->input_body) ||
        (r->policy && !op->policy) || (r->user && *r->user && !op->user))
        fail_text(op, ERR_EXHAUSTED, "memory is out");
    return op;
}

void core_exec(struct core *c, const char *tenant, const char *id,
               const struct core_exec_request *r, core_exec_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct exec_op *op = new_op(c, id, r, done, arg);
    struct err e;

    if (op->why.code == ERR_OK && check(c, tenant, id, r, &o, &e) != ERR_OK)
        fail(op, &e);
    if (op->why.code != ERR_OK) {
        core_defer(c, answer_deferred, op);
        return;
    }
    op->slot = o->s.slot;
    op->gen = o->s.gen;
    metrics_touch(o, op->timeout_ms);
    if (op->policy)
        begin_room(op, o);
    else
        begin_plain(op, o);
}
