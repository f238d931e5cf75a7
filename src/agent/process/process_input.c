/* Input of the Process service: SendInput, one piece a call, and StreamInput, many pieces in
 * order. A piece goes to the process at once or waits there until the program reads it, and its
 * caller is answered then; a stream's body is paused meanwhile, so that no more than one piece
 * of it waits. All bodies that wait are counted together. */

#include "agent/process/proc.h"

#include "agent/process/proc_input.h"
#include "base/envelope.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>

#define INPUT_REQUEST_MAX (PROC_INPUT_BYTES_MAX / 3 * 4 + 65536u)
#define INPUT_EVENT_MAX   (1024u * 1024u) /* of a stream, as JSON */

/* -- one piece --------------------------------------------------------------------------------- */

static enum connect_code wrong_kind(const struct proc *p, bool to_terminal, struct err *e)
{
    if (p->terminal != to_terminal)
        err_set(e, ERR_CONFLICT, "error writing to %s: %s", to_terminal ? "tty" : "stdin",
                to_terminal ? "tty not assigned to process; write to its stdin instead"
                            : "tty assigned to process; write to the pty instead");
    else if (p->in.fd < 0 || p->in.closing)
        err_set(e, ERR_CONFLICT, "error writing to stdin: stdin not enabled or closed");
    else
        return CONNECT_OK;
    return CONNECT_INTERNAL;
}

static enum connect_code decode(const json_t *text, char **out, size_t *len, struct err *e)
{
    size_t n = json_string_length(text);
    ssize_t got;

    *out = malloc(base64_decoded_max(n) + 1);
    if (!*out)
        return CONNECT_RESOURCE_EXHAUSTED;
    got = base64_decode(json_string_value(text), n, *out);
    if (got < 0) {
        err_set(e, ERR_INVALID, "input must be base64");
        return CONNECT_INVALID_ARGUMENT;
    }
    *len = (size_t)got;
    return CONNECT_OK;
}

/* Writes {"stdin": b64} or {"pty": b64}; done comes only when CONNECT_OK is returned. */
static enum connect_code write_input(struct proc *p, const json_t *input, struct http_exchange *x,
                                     void (*done)(struct http_exchange *x, const struct err *why),
                                     struct err *e)
{
    const json_t *tty = json_object_get(input, "pty");
    const json_t *text = tty ? tty : json_object_get(input, "stdin");
    CLEANUP_FREE char *bytes = NULL;
    enum connect_code code;
    size_t len = 0;

    if (!json_is_string(text)) {
        err_set(e, ERR_INVALID, "input needs stdin or pty, in base64");
        return CONNECT_INVALID_ARGUMENT;
    }
    if ((code = wrong_kind(p, tty != NULL, e)) != CONNECT_OK ||
        (code = decode(text, &bytes, &len, e)) != CONNECT_OK)
        return code;
    if (proc_input_write(p, bytes, len, x, done) < 0) {
        err_set(
            e, ERR_EXHAUSTED,
            "error writing to process %d: it does not read, and %zu bytes of input wait already",
            (int)p->pid, p->in.waiting_bytes);
        return CONNECT_RESOURCE_EXHAUSTED;
    }
    return CONNECT_OK;
}

/* -- SendInput --------------------------------------------------------------------------------- */

/* A call; in its exchange's arena. */
struct send_input {
    struct agent *agent;
    size_t body_bytes; /* counted in the table until the call is answered */
};

static void send_closed(struct http_exchange *x, void *data)
{
    struct send_input *s = data;

    s->agent->processes->input_bytes -= s->body_bytes;
    proc_input_forget(s->agent, x);
}

static void send_done(struct http_exchange *x, const struct err *why)
{
    if (why)
        connect_fail(x, CONNECT_INTERNAL, "%s", why->text);
    else
        connect_reply_empty(x);
}

static void send_read(struct http_exchange *x, json_t *request, bool stream UNUSED)
{
    struct send_input *s = http_exchange_get(x);
    struct proc *p = NULL;
    struct err e = {0};
    enum connect_code code = proc_select(s->agent, json_object_get(request, "process"), &p, NULL,
                                         &e);

    if (code == CONNECT_OK)
        code = write_input(p, json_object_get(request, "input"), x, send_done, &e);
    if (code != CONNECT_OK)
        connect_fail(x, code, "%s", e.text);
    json_decref(request);
}

/* A call whose program does not read yet keeps its body in memory, so all of them together are
 * bounded before they are read. */
void process_send_input(struct http_exchange *x, struct agent *a)
{
    const struct http_head *h = http_exchange_head(x);
    uint64_t n = h->framing == HTTP_BODY_LENGTH ? h->content_length : INPUT_REQUEST_MAX;
    struct send_input *s = arena_alloc(http_exchange_arena(x), sizeof(*s));

    n = MIN(n, INPUT_REQUEST_MAX); /* above it, connect_read refuses */
    if (!s || a->processes->input_bytes + n > PROC_INPUT_BODIES_MAX) {
        connect_fail(x, CONNECT_RESOURCE_EXHAUSTED,
                     "%zu bytes of input wait for programs to read them already, at most %u may",
                     a->processes->input_bytes, PROC_INPUT_BODIES_MAX);
        return;
    }
    *s = (struct send_input){a, (size_t)n};
    a->processes->input_bytes += s->body_bytes;
    http_exchange_set(x, s, send_closed);
    connect_read(x, INPUT_REQUEST_MAX, send_read);
}

/* -- StreamInput ------------------------------------------------------------------------------- */

struct stream_input {
    struct agent *agent;
    struct http_exchange *x;
    json_t *selector; /* of the start event; NULL before it */
    struct buf buf;   /* envelopes not handled yet */
    bool waiting;     /* for the program to read a piece: the body is paused */
    bool over;        /* answered: the rest is ignored */
    bool body_ended;
    bool taking; /* within stream_go_on */
};

static void stream_closed(struct http_exchange *x, void *data)
{
    struct stream_input *s = data;

    proc_input_forget(s->agent, x);
    json_decref(s->selector);
    buf_free(&s->buf);
    free(s);
}

static void stream_fail(struct stream_input *s, enum connect_code code, const char *text)
{
    s->over = true;
    connect_fail(s->x, code, "%s", text);
}

static void stream_finish(struct stream_input *s)
{
    json_t *reply = json_object();

    s->over = true;
    connect_stream_begin(s->x);
    (void)connect_stream_send(s->x, reply);
    connect_stream_end(s->x, CONNECT_OK, "%s", "");
    json_decref(reply);
}

static void stream_go_on(struct stream_input *s);

static void stream_written(struct http_exchange *x, const struct err *why)
{
    struct stream_input *s = http_exchange_get(x);

    s->waiting = false;
    if (why)
        stream_fail(s, CONNECT_INTERNAL, why->text);
    else
        stream_go_on(s);
}

static enum connect_code stream_data(struct stream_input *s, const json_t *data, struct err *e)
{
    struct proc *p = NULL;
    enum connect_code code;

    if (!s->selector) {
        err_set(e, ERR_INVALID, "the first event must be start, with the process");
        return CONNECT_INVALID_ARGUMENT;
    }
    code = proc_select(s->agent, s->selector, &p, NULL, e);
    if (code != CONNECT_OK)
        return code;
    s->waiting = true;
    code = write_input(p, json_object_get(data, "input"), s->x, stream_written, e);
    if (code != CONNECT_OK)
        s->waiting = false;
    return code;
}

static enum connect_code stream_start(struct stream_input *s, const json_t *start, struct err *e)
{
    json_t *selector = json_object_get(start, "process");
    struct proc *p = NULL;
    enum connect_code code = proc_select(s->agent, selector, &p, NULL, e);

    if (code != CONNECT_OK)
        return code;
    json_decref(s->selector);
    s->selector = json_incref(selector);
    return CONNECT_OK;
}

static enum connect_code stream_event(struct stream_input *s, const json_t *event, struct err *e)
{
    if (json_object_get(event, "start"))
        return stream_start(s, json_object_get(event, "start"), e);
    if (json_object_get(event, "data"))
        return stream_data(s, json_object_get(event, "data"), e);
    if (json_object_get(event, "keepalive"))
        return CONNECT_OK;
    err_set(e, ERR_INVALID, "an event needs start, data or keepalive");
    return CONNECT_INVALID_ARGUMENT;
}

/* envelope_peek; -1: it was bad, and the stream has failed. */
static int stream_peek(struct stream_input *s, struct envelope *next)
{
    int r = envelope_peek(&s->buf, INPUT_EVENT_MAX, next);

    if (next->flags != 0)
        stream_fail(s, CONNECT_UNIMPLEMENTED, "compressed envelopes are not supported");
    else if (r < 0)
        stream_fail(s, CONNECT_RESOURCE_EXHAUSTED, "the event is too large");
    return s->over ? -1 : r;
}

/* Handles one whole envelope from the front of the buffer. False: there is none, or it was bad. */
static bool stream_take(struct stream_input *s)
{
    enum connect_code code = CONNECT_INVALID_ARGUMENT;
    json_t *event = NULL;
    struct envelope next;
    struct err e = {0};

    if (stream_peek(s, &next) <= 0)
        return false;
    if (json_parse(next.data, next.len, false, &event, &e) == ERR_OK) {
        envelope_drop(&s->buf, &next);
        code = stream_event(s, event, &e);
        json_decref(event);
    }
    if (code != CONNECT_OK && !s->over)
        stream_fail(s, code, e.text);
    return !s->over;
}

static void stream_on_data(struct http_exchange *x, const char *data, size_t len)
{
    struct stream_input *s = http_exchange_get(x);

    if (s->over)
        return;
    if (buf_append(&s->buf, data, len) < 0)
        stream_fail(s, CONNECT_RESOURCE_EXHAUSTED, "the event is too large");
    else
        stream_go_on(s);
}

static void stream_on_end(struct http_exchange *x)
{
    struct stream_input *s = http_exchange_get(x);

    s->body_ended = true;
    if (!s->over)
        stream_go_on(s);
}

/* The body waits while a piece does. A piece that is written at once comes back by stream_written
 * within stream_take; `taking` makes a loop of what would be recursion. */
static void stream_go_on(struct stream_input *s)
{
    if (s->taking)
        return;
    s->taking = true;
    while (!s->over && !s->waiting && stream_take(s))
        ;
    s->taking = false;
    if (s->over)
        return;
    if (s->waiting) {
        http_body_pause(s->x);
    } else if (!s->body_ended) {
        http_body_resume(s->x);
    } else if (s->buf.len > 0) {
        stream_fail(s, CONNECT_INVALID_ARGUMENT, "the stream ended within an event");
    } else {
        stream_finish(s);
    }
}

void process_stream_input(struct http_exchange *x, struct agent *a)
{
    const char *type = http_head_get(http_exchange_head(x), "Content-Type");
    struct stream_input *s;

    if (!type || strncasecmp(type, "application/connect+json", 24) != 0) {
        http_respond_error(x, 415, "StreamInput takes a stream of application/connect+json");
        return;
    }
    s = calloc(1, sizeof(*s));
    if (!s) {
        http_respond_error(x, 503, "out of memory");
        return;
    }
    s->agent = a;
    s->x = x;
    buf_init(&s->buf, INPUT_EVENT_MAX + ENVELOPE_HEAD_BYTES + 2 * AGENT_READ_BYTES);
    http_exchange_set(x, s, stream_closed);
    http_body_stream(x, stream_on_data, stream_on_end);
}
