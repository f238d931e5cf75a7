/* Contexts of the interpreter: making, listing and ending them.
 *
 * struct making is the call's state. Which contexts there are is asked of the agent each time:
 * processes with a tag of ours, whose arguments say the rest. A create counts them, then starts one
 * and lets go of it when it has said where it runs. */
#include "toolbox/interpreter.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/plain_name.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/toolbox_internal.h"

#include <stdio.h>
#include <string.h>

#define TAG                  "daytona-context-"
#define TAG_SIZE             (sizeof(TAG) + INTERPRETER_ID_SIZE)
#define INTERPRETER_LIST_MAX (8u * 1024u * 1024u)
#define READY_MAX            65536u
/* Among a context's arguments: env python3 -c PROGRAM serve ID CREATED. */
#define ARG_CREATED 5

const char interpreter_program[] = {
#include "interpreter.inc"
};

struct making {
    struct toolbox_call *call;
    char id[INTERPRETER_ID_SIZE], created[CLOCK_RFC3339_SIZE];
    const char *cwd;
    struct buf ready;
    bool made;
};

bool interpreter_is_id(const char *id)
{
    return plain_name_is_valid(id, INTERPRETER_ID_SIZE - 1);
}

static void making_free(void *state)
{
    struct making *m = state;

    buf_free(&m->ready);
    free(m);
}

/* -- list -------------------------------------------------------------------------------------- */

static json_t *context_json(const char *id, const char *cwd, const char *created)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:s}", "id", id, "cwd", cwd, "createdAt", created,
                     "active", true, "language", "python");
}

/* NULL: the process is no context. */
static json_t *context_of(const json_t *process)
{
    const char *tag = json_string_value(json_object_get(process, "tag"));
    const json_t *config = json_object_get(process, "config");
    const char *cwd = json_string_value(json_object_get(config, "cwd"));
    const char *created = json_string_value(
        json_array_get(json_object_get(config, "args"), ARG_CREATED));

    if (!tag || strncmp(tag, TAG, strlen(TAG)) != 0 || !created)
        return NULL;
    return context_json(tag + strlen(TAG), cwd ? cwd : "", created);
}

/* NULL: the answer is no list. */
static json_t *contexts(const struct http_head *head, const char *body, size_t len)
{
    json_t *o = head->status == 200 ? json_load_answer(body, len) : NULL;
    json_t *out = json_is_object(o) ? json_array() : NULL, *process;
    size_t i;

    json_array_foreach (json_object_get(o, "processes"), i, process) {
        json_t *one = out ? context_of(process) : NULL;

        if (one)
            json_array_append_new(out, one);
    }
    json_decref(o);
    return out;
}

static void request_list(struct toolbox_call *c,
                         void (*done)(void *arg, const struct http_head *head, const char *body,
                                      size_t len, const struct err *why),
                         void *arg)
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .target = strdup("/process.Process/List"),
                                      .body = strdup("{}"),
                                      .body_len = 2,
                                      .type = "application/json",
                                      .max_response_bytes = INTERPRETER_LIST_MAX,
                                      .timeout_ms = c->toolbox->config.agent_timeout_ms,
                                      .done = done,
                                      .arg = arg};

    toolbox_agent(c, &r);
}

static void listed(void *arg, const struct http_head *head, const char *body, size_t len,
                   const struct err *why)
{
    struct toolbox_call *c = arg;
    json_t *all = why ? NULL : contexts(head, body, len);

    if (all)
        toolbox_reply_json(c, 200, json_pack("{s:o}", "contexts", all));
    else
        toolbox_fail_file(c, head, body, len, why, "the contexts");
}

void interpreter_list(struct toolbox_call *c)
{
    request_list(c, listed, c);
}

/* -- create ------------------------------------------------------------------------------------ */

/* The one line that it says when it is there: {"cwd": ...}. */
static bool on_ready(void *arg, int which, const char *bytes, size_t len)
{
    struct making *m = arg;
    const char *cwd, *line_end;
    json_t *said;

    if (which != 0 || buf_append(&m->ready, bytes, len) < 0)
        return true;
    line_end = memchr(m->ready.data, '\n', m->ready.len);
    if (!line_end)
        return true;
    said = json_load_output(m->ready.data, (size_t)(line_end - m->ready.data));
    cwd = json_string_value(json_object_get(said, "cwd"));
    m->made = cwd != NULL;
    if (cwd)
        toolbox_reply_json(m->call, 200, context_json(m->id, cwd, m->created));
    json_decref(said);
    return false;
}

static void start_ended(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct making *m = arg;

    if (m->made)
        return;
    if (why)
        toolbox_fail_err(m->call, why);
    else if (r->exit_code == 127)
        toolbox_fail(m->call, 409, NULL, "the interpreter needs python3, which is not there");
    else
        toolbox_fail(m->call, 500, NULL, "the context did not begin: python3 ended with status %d",
                     r->exit_code);
}

static void start(struct making *m)
{
    char tag[TAG_SIZE];
    struct toolbox_run r = {.argv = {"/usr/bin/env", "python3", "-c", interpreter_program, "serve",
                                     m->id, m->created, NULL},
                            .tag = tag,
                            .cwd = m->cwd,
                            .on_output = on_ready,
                            .done = start_ended,
                            .arg = m};

    snprintf(tag, sizeof(tag), TAG "%s", m->id);
    toolbox_run(m->call, &r);
}

static void counted(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct making *m = arg;
    json_t *all = why ? NULL : contexts(head, body, len);

    if (!all)
        toolbox_fail_file(m->call, head, body, len, why, "the contexts");
    else if (json_array_size(all) >= INTERPRETER_CONTEXTS_MAX)
        toolbox_fail(m->call, 409, "CONFLICT",
                     "there are %u contexts in this sandbox: delete one first",
                     INTERPRETER_CONTEXTS_MAX);
    else if (m->call->x)
        start(m);
    json_decref(all);
}

void interpreter_create(struct toolbox_call *c)
{
    struct making *m = calloc(1, sizeof(*m));
    const char *language = "python";
    struct err e;

    if (!m) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return;
    }
    c->state = m;
    c->state_free = making_free;
    m->call = c;
    buf_init(&m->ready, READY_MAX);
    if (json_get_str(c->body, "language", NULL, JSON_OPTIONAL, 64, &language, &e) ||
        json_get_str(c->body, "cwd", NULL, JSON_OPTIONAL, TOOLBOX_PATH_SIZE - 1, &m->cwd, &e)) {
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", e.text);
        return;
    }
    if (strcmp(language, "python") != 0) {
        toolbox_fail(c, 400, "BAD_REQUEST", "unsupported language: %s (only python is)", language);
        return;
    }
    ids_random_text(m->id, 24);
    clock_format_rfc3339(clock_real_ms(), m->created);
    request_list(c, counted, m);
}

/* -- delete ------------------------------------------------------------------------------------ */

static void killed(void *arg, const struct http_head *head, const char *body, size_t len,
                   const struct err *why)
{
    struct toolbox_call *c = arg;

    if (!why && head->status == 404)
        toolbox_fail(c, 404, NULL, "context not found: %s", c->params[0]);
    else if (why || head->status != 200)
        toolbox_fail_file(c, head, body, len, why, "the context");
    else
        toolbox_reply_json(c, 200, json_pack("{s:s}", "message", "Context deleted successfully"));
}

/* The agent ends all that it has started, and answers when it was reaped. */
void interpreter_delete(struct toolbox_call *c)
{
    char tag[TAG_SIZE];

    if (strcmp(c->params[0], "default") == 0) {
        toolbox_fail(c, 400, "BAD_REQUEST", "cannot delete default context");
        return;
    }
    if (!interpreter_is_id(c->params[0])) {
        toolbox_fail(c, 404, NULL, "context not found: %s", c->params[0]);
        return;
    }
    snprintf(tag, sizeof(tag), TAG "%.*s", INTERPRETER_ID_SIZE - 1, c->params[0]);
    toolbox_rpc(c, "/process.Process/SendSignal",
                json_pack("{s:{s:s}, s:s}", "process", "tag", tag, "signal", "SIGNAL_SIGKILL"),
                killed, c);
}
