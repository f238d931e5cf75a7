/* Making, showing, resizing and ending terminals.
 *
 * struct pty is the call's state. Which terminals there are is asked of the agent each time
 * (pty_find): processes with a tag of ours. A create looks for the id first, starts the shell and
 * lets go of its output. The WebSocket to one is pty_connect.c's, which uses pty_fill and
 * pty_find. */
#include "toolbox/pty.h"

#include "base/clock.h"
#include "base/plain_name.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/process.h"
#include "toolbox/pty_internal.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/toolbox_internal.h"

#include <stdio.h>
#include <string.h>

#define PTY_LIST_MAX (8u * 1024u * 1024u)

/* $1 to $4: id, columns, rows, when it was made: for who lists processes. */
static const char shell[] = "b=${SHELL:-/bin/bash}; [ -x \"$b\" ] || b=/bin/sh; exec \"$b\" -i -l";

struct pty {
    struct toolbox_call *call;
    struct pty_shape shape;
    bool made;
    void (*found)(void *arg, const json_t *info, const struct err *why);
    void *found_arg;
    const char *wanted; /* NULL: all */
};

static struct pty *pty_new(struct toolbox_call *c)
{
    struct pty *p = calloc(1, sizeof(*p));

    if (!p) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return NULL;
    }
    p->call = c;
    c->state = p;
    c->state_free = free;
    return p;
}

bool pty_is_id(const char *id)
{
    return plain_name_is_valid(id, PTY_ID_SIZE - 1);
}

void pty_tag(const char *id, char out[static PTY_TAG_SIZE])
{
    snprintf(out, PTY_TAG_SIZE, PTY_TAG "%.*s", PTY_ID_SIZE - 1, id);
}

void pty_fill(const struct pty_shape *s, struct pty_words *words, struct toolbox_run *r)
{
    char now[CLOCK_RFC3339_SIZE];

    pty_tag(s->id, words->tag);
    snprintf(words->cols, sizeof(words->cols), "%d", (int)s->cols);
    snprintf(words->rows, sizeof(words->rows), "%d", (int)s->rows);
    clock_format_rfc3339(clock_real_ms(), now);
    snprintf(words->created, sizeof(words->created), "%s", now);
    words->envs = s->envs ? json_deep_copy(s->envs) : json_object();
    if (!json_object_get(words->envs, "TERM"))
        json_object_set_new(words->envs, "TERM", json_string("xterm-256color"));
    toolbox_script(r, shell,
                   (const char *const[]){s->id, words->cols, words->rows, words->created, NULL});
    r->tag = words->tag;
    r->envs = words->envs;
    r->cwd = s->cwd;
    r->stdin_open = true;
    r->cols = (uint16_t)s->cols;
    r->rows = (uint16_t)s->rows;
}

/* -- show -------------------------------------------------------------------------------------- */

/* The terminal that the arguments of a process describe; NULL: it is none of the toolbox's. */
static json_t *info_json(const json_t *process)
{
    const char *tag = json_string_value(json_object_get(process, "tag"));
    const json_t *config = json_object_get(process, "config"),
                 *args = json_object_get(config, "args");
    const char *cols = json_string_value(json_array_get(args, 4));
    const char *rows = json_string_value(json_array_get(args, 5));
    const char *created = json_string_value(json_array_get(args, 6));
    const char *cwd = json_string_value(json_object_get(config, "cwd"));
    json_t *envs = json_object_get(config, "envs");

    if (!tag || strncmp(tag, PTY_TAG, strlen(PTY_TAG)) != 0)
        return NULL;
    return json_pack("{s:s, s:s, s:O, s:i, s:i, s:s, s:b, s:b}", "id", tag + strlen(PTY_TAG), "cwd",
                     cwd ? cwd : "", "envs", envs ? envs : json_null(), "cols",
                     cols ? atoi(cols) : 0, "rows", rows ? atoi(rows) : 0, "createdAt",
                     created ? created : "", "active", true, "lazyStart", false);
}

/* NULL: it is no list, or memory is out. */
static json_t *infos(const char *body, size_t len, const char *wanted)
{
    json_t *o = json_load_answer(body, len), *out = json_is_object(o) ? json_array() : NULL;
    json_t *process;
    size_t i;

    json_array_foreach (json_object_get(o, "processes"), i, process) {
        json_t *info = info_json(process);

        if (info &&
            (!wanted || strcmp(json_string_value(json_object_get(info, "id")), wanted) == 0))
            json_array_append(out, info);
        json_decref(info);
    }
    json_decref(o);
    if (json_was_cut())
        json_decref(TAKE_PTR(out));
    return out;
}

struct finding {
    void (*done)(void *arg, const json_t *info, const struct err *why);
    void *arg;
    char id[PTY_ID_SIZE];
};

static void listed(void *arg, const struct http_head *head, const char *body, size_t len,
                   const struct err *why)
{
    struct finding *f = arg;
    json_t *all = !why && head->status == 200 ? infos(body, len, f->id[0] ? f->id : NULL) : NULL;
    struct err e;

    if (!why && !all && json_memory_was_out())
        err_set(&e, ERR_UNAVAILABLE, "memory is out");
    else if (!why && !all)
        err_set(&e, ERR_INTERNAL, "the sandbox's agent does not list its processes");
    if (f->id[0])
        f->done(f->arg, json_array_get(all, 0), why ? why : all ? NULL : &e);
    else
        f->done(f->arg, all, why ? why : all ? NULL : &e);
    json_decref(all);
    free(f);
}

void pty_find(struct toolbox_call *c, const char *id,
              void (*done)(void *arg, const json_t *info, const struct err *why), void *arg)
{
    struct finding *f = calloc(1, sizeof(*f));
    struct toolbox_agent_request r = {.method = "POST",
                                      .target = strdup("/process.Process/List"),
                                      .body = strdup("{}"),
                                      .body_len = 2,
                                      .type = "application/json",
                                      .max_response_bytes = PTY_LIST_MAX,
                                      .timeout_ms = c->toolbox->config.agent_timeout_ms,
                                      .done = listed,
                                      .arg = f};

    if (!f) {
        struct err e;

        free(r.target);
        free(r.body);
        err_set(&e, ERR_UNAVAILABLE, "memory is out");
        done(arg, NULL, &e);
        return;
    }
    f->done = done;
    f->arg = arg;
    snprintf(f->id, sizeof(f->id), "%s", id ? id : "");
    toolbox_agent(c, &r);
}

static void shown_all(void *arg, const json_t *all, const struct err *why)
{
    struct toolbox_call *c = arg;

    if (why)
        toolbox_fail_err(c, why);
    else
        toolbox_reply_json(c, 200, json_pack("{s:O}", "sessions", all));
}

void pty_list(struct toolbox_call *c)
{
    pty_find(c, NULL, shown_all, c);
}

static bool good_id(struct toolbox_call *c)
{
    if (pty_is_id(c->params[0]))
        return true;
    toolbox_fail(c, 404, NULL, "PTY session not found: %s", c->params[0]);
    return false;
}

static void shown(void *arg, const json_t *info, const struct err *why)
{
    struct toolbox_call *c = arg;

    if (why)
        toolbox_fail_err(c, why);
    else if (!info)
        toolbox_fail(c, 404, NULL, "PTY session not found: %s", c->params[0]);
    else
        toolbox_reply_json(c, 200, json_deep_copy(info));
}

void pty_get(struct toolbox_call *c)
{
    if (good_id(c))
        pty_find(c, c->params[0], shown, c);
}

/* -- create ------------------------------------------------------------------------------------ */

static bool on_output(void *arg UNUSED, int which UNUSED, const char *bytes UNUSED,
                      size_t len UNUSED)
{
    return false; /* it runs: what it prints is for who connects */
}

static void started(void *arg, struct toolbox_run_op *op UNUSED, int64_t pid UNUSED)
{
    struct pty *p = arg;

    p->made = true;
    toolbox_reply_json(p->call, 201, json_pack("{s:s}", "sessionId", p->shape.id));
}

static void start_ended(void *arg, const struct toolbox_result *r UNUSED, const struct err *why)
{
    struct pty *p = arg;

    if (!p->made && why)
        toolbox_fail_err(p->call, why);
}

static void on_info(void *arg, const json_t *info, const struct err *why)
{
    struct pty *p = arg;
    struct pty_words words = {.envs = NULL};
    struct toolbox_run r = {
        .on_output = on_output, .on_started = started, .done = start_ended, .arg = p};

    if (why) {
        toolbox_fail_err(p->call, why);
    } else if (info) {
        toolbox_fail(p->call, 409, "CONFLICT", "PTY session with ID '%s' already exists",
                     p->shape.id);
    } else if (p->call->x) {
        pty_fill(&p->shape, &words, &r);
        toolbox_run(p->call, &r);
        json_decref(words.envs);
    }
}

void pty_create(struct toolbox_call *c)
{
    struct pty *p = pty_new(c);
    const char *id = "", *cwd = "";
    struct err e;

    if (!p)
        return;
    p->shape.cols = 80;
    p->shape.rows = 24;
    if (json_get_str(c->body, "id", NULL, JSON_REQUIRED, PTY_ID_SIZE - 1, &id, &e) ||
        json_get_str(c->body, "cwd", NULL, JSON_OPTIONAL, TOOLBOX_PATH_SIZE - 1, &cwd, &e) ||
        toolbox_read_envs(c->body, "envs", &p->shape.envs, &e) ||
        json_get_int(c->body, "cols", NULL, JSON_OPTIONAL, 1, PTY_SIZE_MAX, &p->shape.cols, &e) ||
        json_get_int(c->body, "rows", NULL, JSON_OPTIONAL, 1, PTY_SIZE_MAX, &p->shape.rows, &e)) {
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", e.text);
        return;
    }
    if (!pty_is_id(id)) {
        toolbox_fail(c, 400, "BAD_REQUEST", "id must be 1 to %d letters, digits, '.', '_' and '-'",
                     PTY_ID_SIZE - 1);
        return;
    }
    snprintf(p->shape.id, sizeof(p->shape.id), "%s", id);
    snprintf(p->shape.cwd, sizeof(p->shape.cwd), "%s", cwd);
    pty_find(c, id, on_info, p);
}

/* -- resize and delete ------------------------------------------------------------------------- */

static void resized_info(void *arg, const json_t *info, const struct err *why)
{
    struct pty *p = arg;
    json_t *out = info ? json_deep_copy(info) : NULL;

    if (why || !out) {
        shown(p->call, info, why);
        return;
    }
    json_object_set_new(out, "cols", json_integer(p->shape.cols));
    json_object_set_new(out, "rows", json_integer(p->shape.rows));
    toolbox_reply_json(p->call, 200, out);
}

static void resized(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct pty *p = arg;

    if (!why && head->status == 404)
        toolbox_fail(p->call, 404, NULL, "PTY session not found: %s", p->call->params[0]);
    else if (why || head->status != 200)
        toolbox_fail_file(p->call, head, body, len, why, "the terminal");
    else if (p->call->x)
        pty_find(p->call, p->call->params[0], resized_info, p);
}

void pty_resize(struct toolbox_call *c)
{
    struct pty *p = good_id(c) ? pty_new(c) : NULL;
    char tag[PTY_TAG_SIZE];
    struct err e;

    if (!p)
        return;
    if (json_get_int(c->body, "cols", NULL, JSON_REQUIRED, 1, PTY_SIZE_MAX, &p->shape.cols, &e) ||
        json_get_int(c->body, "rows", NULL, JSON_REQUIRED, 1, PTY_SIZE_MAX, &p->shape.rows, &e)) {
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", e.text);
        return;
    }
    pty_tag(c->params[0], tag);
    toolbox_rpc(c, "/process.Process/Update",
                json_pack("{s:{s:s}, s:{s:{s:I, s:I}}}", "process", "tag", tag, "pty", "size",
                          "cols", (json_int_t)p->shape.cols, "rows", (json_int_t)p->shape.rows),
                resized, p);
}

static void killed(void *arg, const struct http_head *head, const char *body, size_t len,
                   const struct err *why)
{
    struct toolbox_call *c = arg;

    if (!why && head->status == 404)
        toolbox_fail(c, 404, NULL, "PTY session not found: %s", c->params[0]);
    else if (why || head->status != 200)
        toolbox_fail_file(c, head, body, len, why, "the terminal");
    else
        toolbox_reply_json(c, 200, json_pack("{s:s}", "message", "PTY session deleted"));
}

void pty_delete(struct toolbox_call *c)
{
    char tag[PTY_TAG_SIZE];

    if (!good_id(c))
        return;
    pty_tag(c->params[0], tag);
    toolbox_rpc(c, "/process.Process/SendSignal",
                json_pack("{s:{s:s}, s:s}", "process", "tag", tag, "signal", "SIGNAL_SIGKILL"),
                killed, c);
}
