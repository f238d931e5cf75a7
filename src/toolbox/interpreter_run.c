/* An execution of the interpreter, by WebSocket: the client sends the code once, and receives its
 * output, its error and its end.
 *
 * struct execution is the call's state; `socket` is valid while the call's exchange is. `ask`
 * prints JSON in the sandbox (interpreter.h), one object a line: each is a message for the client,
 * after it was found to be JSON. A client that goes has its code interrupted, because `ask` is
 * ended for it (stop_execution). */
#include "toolbox/interpreter.h"

#include "base/buf.h"
#include "base/share.h"
#include "http/json.h"
#include "http/server.h"
#include "http/websocket.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/collect.h"
#include "toolbox/process.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <stdio.h>
#include <string.h>

#define INTERPRETER_CODE_MAX (1024u * 1024u) /* of a client: the code */
#define INTERPRETER_LINE_MAX (1024u * 1024u) /* of an execution */
#define REQUEST_ENV_MAX      100000u         /* a longer one goes by a file */
#define INTERPRETER_RUN_S    600             /* where the client says none; 0: without */
#define EXECUTION_TAG        "daytona-execution-"
#define NO_CONTEXT           3 /* how `ask` ends (interpreter.py) */
#define NO_PYTHON            127

struct execution {
    struct toolbox_call *call;
    struct toolbox_run_op *run; /* NULL: it is over, or has not begun */
    struct websocket *socket;
    char tag[sizeof(EXECUTION_TAG) + TOOLBOX_TOKEN_SIZE];
    char path[64], id[INTERPRETER_ID_SIZE];
    bool begun, started, over;
    bool writing; /* a long code, into a file of the sandbox */
    struct buf line;
    struct share *said;    /* while more than WEBSOCKET_SMALL_BYTES of the client are held */
    struct share *printed; /* while the line has more than TOOLBOX_OUTPUT_BYTES */
};

static void execution_free(void *state)
{
    struct execution *e = state;

    share_return(e->said);
    share_return(e->printed);
    buf_free(&e->line);
    free(e);
}

static bool hold(void *arg)
{
    struct execution *e = arg;
    struct toolbox_call *c = e->call;

    if (!e->said)
        e->said = share_take(c->toolbox->bodies, c->tenant, c->id);
    return e->said != NULL;
}

static void release(void *arg)
{
    struct execution *e = arg;

    if (!e->writing)
        share_return(TAKE_PTR(e->said));
}

static void end(struct execution *e, enum websocket_code code, const char *why)
{
    e->over = true;
    if (e->call->x)
        websocket_close(e->socket, code, why);
}

/* -- what it prints ---------------------------------------------------------------------------- */

/* A line beyond TOOLBOX_OUTPUT_BYTES takes a place of the pool. */
static bool put_line(struct execution *e, const char *bytes, size_t len)
{
    struct toolbox_call *c = e->call;

    if (e->line.len + len > TOOLBOX_OUTPUT_BYTES && !e->printed &&
        !(e->printed = share_take(c->toolbox->outputs, c->tenant, c->id)))
        return false;
    return buf_append(&e->line, bytes, len) == 0;
}

static void lines_are_taken(struct execution *e)
{
    if (e->line.len > 0)
        return;
    buf_free(&e->line);
    share_return(TAKE_PTR(e->printed));
}

/* False: the line was its last. The sandbox made it: any but a message of ours ends the wait. */
static bool on_line(struct execution *e, const char *text, size_t len)
{
    json_t *o = json_load_output(text, len);
    const char *type = json_string_value(json_object_get(o, "type"));
    const char *said = json_string_value(json_object_get(o, "text"));
    bool last = type && strcmp(type, "control") == 0;

    if (!type) {
        end(e, WEBSOCKET_FAILED, "the context said what cannot be read");
    } else if (last && said && strcmp(said, "timeout") == 0) {
        end(e, WEBSOCKET_DAYTONA_TIMEOUT, "");
    } else {
        if (websocket_send(e->socket, true, text, len) == 1 && e->run && !last)
            toolbox_run_pause(e->run, true);
        if (last)
            end(e, WEBSOCKET_NORMAL, "");
    }
    json_decref(o);
    return !e->over;
}

static bool on_output(void *arg, int which, const char *bytes, size_t len)
{
    struct execution *e = arg;
    char *stop;
    size_t n;

    if (!e->call->x || e->over)
        return false;
    if (which != 0)
        return true;
    if (!put_line(e, bytes, len)) {
        end(e, WEBSOCKET_FAILED, "the context said more at once than is read");
        return false;
    }
    while (e->line.len > 0 && (stop = memchr(e->line.data, '\n', e->line.len))) {
        n = (size_t)(stop - e->line.data);
        if (!on_line(e, e->line.data, n))
            return false;
        buf_consume(&e->line, n + 1);
    }
    lines_are_taken(e);
    return true;
}

static void on_started(void *arg, struct toolbox_run_op *op, int64_t pid UNUSED)
{
    struct execution *e = arg;

    e->run = op;
    e->started = true;
}

static void on_done(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct execution *e = arg;
    char text[120];

    e->run = NULL;
    if (!e->call->x || e->over)
        return;
    if (why) {
        end(e, WEBSOCKET_FAILED, why->text);
    } else if (r->exit_code == NO_CONTEXT) {
        snprintf(text, sizeof(text), "context not found: %s", e->id);
        end(e, WEBSOCKET_POLICY, text);
    } else if (r->exit_code == NO_PYTHON) {
        end(e, WEBSOCKET_FAILED, "the interpreter needs python3, which is not there");
    } else {
        end(e, WEBSOCKET_FAILED, "the context has ended, or its execution was killed");
    }
}

static void on_drain(void *arg)
{
    struct execution *e = arg;

    if (e->run)
        toolbox_run_pause(e->run, false);
}

/* -- the client goes --------------------------------------------------------------------------- */

static void ignore(void *arg UNUSED, const struct http_head *head UNUSED, const char *body UNUSED,
                   size_t len UNUSED, const struct err *why UNUSED)
{
}

/* SIGTERM: the context that it may have begun is in another group. */
static void stop_execution(struct toolbox_call *c)
{
    struct execution *e = c->state;

    toolbox_agent_cancel(c);
    if (e->started && !e->over && !c->toolbox->stopping)
        toolbox_rpc(
            c, "/process.Process/SendSignal",
            json_pack("{s:{s:s}, s:s}", "process", "tag", e->tag, "signal", "SIGNAL_SIGTERM"),
            ignore, NULL);
}

/* -- the code ---------------------------------------------------------------------------------- */

/* Either text or path is NULL. */
static void run(struct execution *e, const char *text, const char *path)
{
    json_t *envs = json_pack("{s:s}", text ? "CAY_CODE" : "CAY_CODE_FILE", text ? text : path);
    struct toolbox_run r = {.argv = {"/usr/bin/env", "python3", "-I", "-S", "-c",
                                     interpreter_program, "ask", e->id, NULL},
                            .envs = envs,
                            .tag = e->tag,
                            .on_output = on_output,
                            .on_started = on_started,
                            .done = on_done,
                            .arg = e};

    toolbox_run(e->call, &r);
    json_decref(envs);
}

static void written(void *arg, const struct http_head *head, const char *body UNUSED,
                    size_t len UNUSED, const struct err *why)
{
    struct execution *e = arg;

    e->writing = false;
    release(e);
    if (!e->call->x)
        return;
    if (why || head->status != 200)
        end(e, WEBSOCKET_FAILED, why ? why->text : "the code cannot be written in the sandbox");
    else
        run(e, NULL, e->path);
}

/* A kernel takes no variable of more than 128 KiB. Takes text. */
static void write_request(struct execution *e, char *text)
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .body = text,
                                      .body_len = strlen(text),
                                      .type = "application/octet-stream",
                                      .max_response_bytes = 65536,
                                      .timeout_ms = e->call->toolbox->config.agent_timeout_ms,
                                      .done = written,
                                      .arg = e};

    e->writing = true;
    snprintf(e->path, sizeof(e->path), "/tmp/.code-%s", e->tag + strlen(EXECUTION_TAG));
    if (asprintf(&r.target, "/files?path=%s&username=" TOOLBOX_USER, e->path) < 0)
        r.target = NULL;
    toolbox_agent(e->call, &r);
}

static enum err_code read_timeout(const json_t *body, double *out_s, struct err *err)
{
    uint64_t ms = (uint64_t)INTERPRETER_RUN_S * 1000;
    const json_t *value = json_object_get(body, "timeout");
    enum err_code rc = value && !json_is_null(value) ? toolbox_read_timeout(body, &ms, err)
                                                     : ERR_OK;

    *out_s = (double)ms / 1000;
    return rc;
}

/* The request for `ask`; malloc'd. NULL: err says why. */
static char *read_request(struct execution *e, const json_t *body, struct err *err)
{
    const char *code = "", *id = "default";
    json_t *envs = NULL, *request;
    double timeout_s = 0;
    char *text;

    if (json_get_str(body, "code", NULL, JSON_REQUIRED, INTERPRETER_CODE_MAX, &code, err) ||
        json_get_str(body, "contextId", NULL, JSON_OPTIONAL, 256, &id, err) ||
        toolbox_read_envs(body, "envs", &envs, err) || read_timeout(body, &timeout_s, err))
        return NULL;
    if (code[0] == '\0') {
        err_set(err, ERR_INVALID, "code is required");
        return NULL;
    }
    if (!interpreter_is_id(id)) {
        err_set(err, ERR_NOT_FOUND, "context not found: %.60s", id);
        return NULL;
    }
    snprintf(e->id, sizeof(e->id), "%s", id);
    request = json_pack("{s:s, s:f, s:O?}", "code", code, "timeout", timeout_s, "envs", envs);
    text = json_text(request, JSON_COMPACT);
    json_decref(request);
    if (!text)
        err_set(err, ERR_UNAVAILABLE, "memory is out");
    return text;
}

/* Once: later messages are not looked at. */
static void on_message(void *arg, bool is_text UNUSED, const char *data, size_t len)
{
    struct execution *e = arg;
    json_t *body = NULL;
    struct err err;
    char *text;

    if (e->begun)
        return;
    e->begun = true;
    if (json_parse(data, len, true, &body, &err) != ERR_OK || !json_is_object(body)) {
        json_decref(body);
        end(e, WEBSOCKET_PROTOCOL, "invalid JSON payload");
        return;
    }
    text = read_request(e, body, &err);
    json_decref(body);
    if (!text) {
        end(e, WEBSOCKET_POLICY, err.text);
    } else if (strlen(text) > REQUEST_ENV_MAX) {
        write_request(e, text);
    } else {
        run(e, text, NULL);
        free(text);
    }
}

/* -- the request ------------------------------------------------------------------------------- */

void interpreter_execute(struct toolbox_call *c)
{
    static const struct websocket_callbacks callbacks = {
        .on_message = on_message, .on_drain = on_drain, .hold = hold, .release = release};
    struct execution *e = calloc(1, sizeof(*e));
    char protocol[128], token[TOOLBOX_TOKEN_SIZE];
    bool offered = websocket_offers(http_exchange_head(c->x), "", protocol, sizeof(protocol));

    if (!e) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return;
    }
    c->state = e;
    c->state_free = execution_free;
    e->call = c;
    buf_init(&e->line, INTERPRETER_LINE_MAX);
    toolbox_token(token);
    snprintf(e->tag, sizeof(e->tag), EXECUTION_TAG "%s", token);
    c->answered = true;
    e->socket = websocket_accept(c->x, offered ? protocol : NULL, INTERPRETER_CODE_MAX, &callbacks,
                                 e);
    if (e->socket)
        c->on_gone = stop_execution;
}
