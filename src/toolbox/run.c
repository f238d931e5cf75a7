/* A program in a sandbox, to its end or as a stream.
 *
 * struct toolbox_run_op belongs to the call of the agent that it makes: begun by toolbox_run, freed
 * with the answer (on_end, once). The agent's stream is taken apart by core/exec_stream.h; output
 * is handed on, or kept within places of the loop's pool. A token in the output counts as the end
 * (find_mark): what the program left behind may hold its outputs for longer. Called by the
 * handlers of programs, sessions, terminals and searches. */
#include "toolbox/run.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/share.h"
#include "base/signal_names.h"
#include "core/exec_stream.h"
#include "http/client.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/collect.h"
#include "toolbox/toolbox_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define BEAT_S        5u
#define SILENCE_MS    (12u * 1000u * BEAT_S) /* of an agent that shows every BEAT_S that it lives */
#define RUN_GRACE_MS  15000u /* beyond a program's time, for its agent to say that it is over */
#define START_MAX     (64u * 1024u) /* of an answer that is no stream */
#define ENVELOPE_HEAD 5u
#define BLOCKS_MAX    (TOOLBOX_OUTPUT_MAX / TOOLBOX_OUTPUT_BLOCK)
#define MARK          '\x1e'
#define KILLED        (128 + SIGKILL)
#define END_MS        1000u /* after the mark of one that was killed */

struct toolbox_run_op {
    struct toolbox_call *call;
    struct toolbox_run r;
    struct http_client *client; /* NULL: not connected yet */
    struct exec_stream stream;
    struct buf out[2];
    struct share *blocks[BLOCKS_MAX];
    size_t block_count;
    bool start_reported, truncated, stopped, late;
    uint64_t due_ms; /* its agent is not waited for from then on; 0: it is */
    bool marked;     /* the token has come, with exit_code */
    int exit_code;
};

/* -- the end ----------------------------------------------------------------------------------- */

static void free_op(struct toolbox_run_op *op)
{
    for (size_t i = 0; i < op->block_count; i++)
        share_return(op->blocks[i]);
    for (size_t i = 0; i < ARRAY_SIZE(op->out); i++)
        buf_free(&op->out[i]);
    exec_stream_free(&op->stream);
    free(op);
}

static void answer(struct toolbox_run_op *op, const struct toolbox_result *r, const struct err *why)
{
    op->r.done(op->r.arg, why ? NULL : r, why);
    free_op(op);
}

static void answer_error(struct toolbox_run_op *op, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    answer(op, NULL, &e);
}

static int exit_code_of(const struct toolbox_run_op *op)
{
    int signal = signal_names_number(op->stream.signal);

    if (op->marked)
        return op->exit_code;
    return signal ? 128 + signal : op->stream.exit_code;
}

/* Connect's word for why the program was not started. */
static enum err_code code_of(const char *word)
{
    static const struct {
        const char *word;
        enum err_code code;
    } codes[] = {{"invalid_argument", ERR_INVALID},
                 {"unauthenticated", ERR_INVALID},
                 {"not_found", ERR_NOT_FOUND},
                 {"resource_exhausted", ERR_EXHAUSTED}};

    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (strcmp(codes[i].word, word) == 0)
            return codes[i].code;
    return ERR_INTERNAL;
}

static void succeed(struct toolbox_run_op *op, bool timed_out)
{
    const char *reason = op->stream.reason;
    struct toolbox_result r = {.exit_code = exit_code_of(op),
                               .truncated = op->truncated,
                               .timed_out = timed_out,
                               .reason = reason[0] ? reason : NULL};

    for (size_t i = 0; i < ARRAY_SIZE(op->out); i++) {
        r.out[i] = op->out[i].len ? op->out[i].data : "";
        r.len[i] = op->out[i].len;
    }
    answer(op, &r, NULL);
}

static void on_end(void *arg, const struct http_head *head, const char *body, size_t len,
                   const struct err *why)
{
    struct toolbox_run_op *op = arg;
    const struct exec_stream *s = &op->stream;
    json_t *refusal;
    const char *message;
    struct err e;

    op->client = NULL;
    op->late |= op->due_ms && why && why->code == ERR_TIMEOUT && clock_mono_ms() >= op->due_ms;
    if ((strcmp(s->error, "deadline_exceeded") == 0 || op->late) && !op->marked) {
        succeed(op, true);
    } else if (op->stopped) {
        answer_error(op, ERR_CANCELED, "the wait was ended");
    } else if (op->marked || s->ended) {
        succeed(op, false);
    } else if (s->error[0]) {
        answer_error(op, code_of(s->error), s->message[0] ? s->message : s->error);
    } else if (why) {
        answer(op, NULL, why);
    } else if (head->status / 100 != 2) {
        refusal = len ? json_load_answer(body, len) : NULL;
        message = json_string_value(json_object_get(refusal, "message"));
        err_set(&e,
                head->status == 429   ? ERR_EXHAUSTED
                : head->status == 404 ? ERR_NOT_FOUND
                                      : ERR_INVALID,
                "%s", message ? message : "the sandbox's agent refused to start it");
        json_decref(refusal);
        answer(op, NULL, &e);
    } else {
        answer_error(op, ERR_UNAVAILABLE, "the connection to the program was lost");
    }
}

/* -- output ------------------------------------------------------------------------------------ */

/* May so many bytes be held? A place is taken for each block beyond what is for nothing. */
static bool may_hold(struct toolbox_run_op *op, size_t bytes)
{
    struct toolbox_call *c = op->call;

    while (bytes > TOOLBOX_OUTPUT_BYTES + op->block_count * (size_t)TOOLBOX_OUTPUT_BLOCK) {
        struct share *s = op->block_count < BLOCKS_MAX
                              ? share_take(c->toolbox->outputs, c->tenant, c->id)
                              : NULL;

        if (!s)
            return false;
        op->blocks[op->block_count++] = s;
    }
    return true;
}

/* Looks for the token in what has come last. */
static void find_mark(struct toolbox_run_op *op, size_t from)
{
    struct buf *b = &op->out[EXEC_STDOUT];
    size_t n = strlen(op->r.token) + 2; /* with the mark and the blank */
    const char *at = b->data + (from > n + 16 ? from - n - 16 : 0);
    char *end;

    while ((at = memchr(at, MARK, (size_t)(b->data + b->len - at)))) {
        if ((size_t)(b->data + b->len - at) > n && memcmp(at + 1, op->r.token, n - 2) == 0) {
            long code = strtol(at + n, &end, 10);

            op->marked = *end == '\n' && end > at + n;
            op->exit_code = (int)code;
            if (op->marked)
                b->len = (size_t)(at - b->data);
            return;
        }
        at++;
    }
}

static bool keep(struct toolbox_run_op *op, int which, const char *bytes, size_t len)
{
    struct buf *b = &op->out[which];
    size_t before = b->len;

    if (op->marked || (op->truncated && !op->r.token))
        return true;
    if (!may_hold(op, op->out[0].len + op->out[1].len + len)) {
        /* The end is what counts: a token is yet to come. */
        op->truncated = true;
        if (!op->r.token)
            return true;
        buf_consume(b, MIN(b->len, len));
        before = b->len;
    }
    if (buf_append(b, bytes, len) < 0) {
        op->truncated = true;
        return true;
    }
    if (op->r.token && which == EXEC_STDOUT)
        find_mark(op, before);
    return !op->marked || op->exit_code == KILLED;
}

static bool on_output(void *arg, int which, const char *bytes, size_t len)
{
    struct toolbox_run_op *op = arg;

    if (!op->r.on_output)
        return keep(op, which, bytes, len);
    if (op->r.on_output(op->r.arg, which, bytes, len))
        return true;
    op->stopped = true;
    return false;
}

/* For the next sign of life. The agent ends a program whose time is over, and says so: one that
 * goes on to show that it lives is not waited for. */
static uint64_t wait_ms(const struct toolbox_run_op *op)
{
    uint64_t now_ms = clock_mono_ms();

    if (op->marked)
        return END_MS;
    if (!op->due_ms)
        return SILENCE_MS;
    return MIN(SILENCE_MS, op->due_ms > now_ms ? op->due_ms - now_ms : 1);
}

static bool on_data(void *arg, const char *data, size_t len)
{
    struct toolbox_run_op *op = arg;
    bool was_marked = op->marked, ok = exec_stream_feed(&op->stream, data, len);

    op->late = op->due_ms && !op->marked && !op->stream.ended && clock_mono_ms() >= op->due_ms;
    if (op->client && !was_marked)
        http_client_timeout(op->client, wait_ms(op));
    if (op->stream.started && !op->start_reported && !op->stopped) {
        op->start_reported = true;
        if (op->r.on_started)
            op->r.on_started(op->r.arg, op, op->stream.pid);
    }
    return ok && !op->late;
}

static void on_begun(void *arg, struct http_client *client)
{
    struct toolbox_run_op *op = arg;

    op->client = client;
}

void toolbox_run_pause(struct toolbox_run_op *op, bool pause)
{
    if (!op->client)
        return;
    http_client_timeout(op->client, pause ? 0 : wait_ms(op));
    if (pause)
        http_client_pause(op->client);
    else
        http_client_resume(op->client);
}

/* -- the start --------------------------------------------------------------------------------- */

/* NULL: memory is out, or an argument is not UTF-8: without it, the others would be taken for each
 * other. */
static json_t *args_json(const char *const *argv)
{
    json_t *args = json_array();

    for (size_t i = 1; argv[i]; i++)
        if (json_array_append_new(args, json_string(argv[i])) < 0) {
            json_decref(args);
            return NULL;
        }
    return args;
}

static json_t *start_json(const struct toolbox_run *r)
{
    json_t *args, *process, *start;

    if (r->attach)
        return json_pack("{s:{s:s}}", "process", "tag", r->attach);
    args = args_json(r->argv);
    process = json_pack("{s:s, s:o, s:s}", "cmd", r->argv[0], "args", args, "cwd",
                        r->cwd && *r->cwd ? r->cwd : "~");
    if (r->envs)
        json_object_set(process, "envs", (json_t *)r->envs);
    start = json_pack("{s:o, s:b}", "process", process, "stdin", r->stdin_open);
    if (r->tag)
        json_object_set_new(start, "tag", json_string(r->tag));
    if (r->cols)
        json_object_set_new(start, "pty",
                            json_pack("{s:{s:i, s:i}}", "size", "cols", r->cols, "rows", r->rows));
    return start;
}

/* NULL: memory is out, or *is_text is false. */
static char *start_body(const struct toolbox_run *r, size_t *len, bool *is_text)
{
    json_t *start = start_json(r);
    bool cut = json_was_cut();
    CLEANUP_FREE char *text = cut ? NULL : json_text(start, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0;
    uint8_t *body = n ? malloc(ENVELOPE_HEAD + n) : NULL;

    if (body) {
        body[0] = 0;
        for (int i = 0; i < 4; i++)
            body[1 + i] = (uint8_t)(n >> (24 - 8 * i));
        memcpy(body + ENVELOPE_HEAD, text, n);
        *len = ENVELOPE_HEAD + n;
    }
    if (text)
        explicit_bzero(text, n); /* its environment may be secret */
    *is_text = start || cut;
    json_decref(start);
    return (char *)body;
}

static void not_started(const struct toolbox_run *r, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    r->done(r->arg, NULL, &e);
}

void toolbox_run(struct toolbox_call *c, const struct toolbox_run *r)
{
    struct toolbox_run_op *op = calloc(1, sizeof(*op));
    struct toolbox_agent_request q = {.method = "POST",
                                      .type = "application/connect+json",
                                      .max_response_bytes = START_MAX,
                                      .timeout_ms = SILENCE_MS,
                                      .process_timeout_ms = r->timeout_ms,
                                      .beat_s = BEAT_S,
                                      .on_begun = on_begun,
                                      .on_data = on_data,
                                      .done = on_end,
                                      .arg = op};

    bool is_text = true;

    q.body = op ? start_body(r, &q.body_len, &is_text) : NULL;
    if (!q.body) {
        free(op);
        not_started(r, is_text ? ERR_UNAVAILABLE : ERR_INVALID,
                    is_text ? "memory is out" : "the program's arguments are not text");
        return;
    }
    op->call = c;
    op->r = *r;
    op->due_ms = r->timeout_ms ? clock_mono_ms() + r->timeout_ms + RUN_GRACE_MS : 0;
    exec_stream_init(&op->stream, 0);
    op->stream.output = on_output;
    op->stream.arg = op;
    for (size_t i = 0; i < ARRAY_SIZE(op->out); i++)
        buf_init(&op->out[i], TOOLBOX_OUTPUT_MAX + TOOLBOX_OUTPUT_BYTES);
    q.target = strdup(r->attach ? "/process.Process/Connect" : "/process.Process/Start");
    toolbox_agent(c, &q);
}

void toolbox_script(struct toolbox_run *r, const char *script, const char *const *args)
{
    size_t n = 0;

    r->argv[n++] = "/bin/sh";
    r->argv[n++] = "-c";
    r->argv[n++] = script;
    r->argv[n++] = "sh";
    for (size_t i = 0; args[i] && n < TOOLBOX_ARGS_MAX - 1; i++)
        r->argv[n++] = args[i];
    r->argv[n] = NULL;
}

void toolbox_token(char out[static TOOLBOX_TOKEN_SIZE])
{
    ids_random_text(out, TOOLBOX_TOKEN_SIZE - 1);
}
