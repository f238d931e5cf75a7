#include "core/exec_stream.h"

#include "base/base64.h"
#include "base/envelope.h"
#include "base/signal_names.h"
#include "http/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define STATUS_SIZE 64

void exec_stream_init(struct exec_stream *s, size_t max_output)
{
    *s = (struct exec_stream){.left = max_output, .exit_code = -1};
    buf_init(&s->in, EXEC_MESSAGE_MAX + ENVELOPE_HEAD_BYTES);
    for (size_t i = 0; i < ARRAY_SIZE(s->out); i++)
        buf_init(&s->out[i], max_output);
}

void exec_stream_free(struct exec_stream *s)
{
    buf_free(&s->in);
    for (size_t i = 0; i < ARRAY_SIZE(s->out); i++)
        buf_free(&s->out[i]);
}

/* -- events ------------------------------------------------------------------------------------ */

/* Into out what of text is printable ASCII: it goes into answers and logs. */
static void copy_plain(const json_t *text, char *out, size_t size)
{
    const char *in = json_string_value(text);
    size_t n = 0;

    for (; in && in[n] && n < size - 1; n++)
        out[n] = in[n] >= 0x20 && in[n] < 0x7f ? in[n] : '?';
    out[n] = '\0';
}

static bool take_output(struct exec_stream *s, const json_t *text, int which)
{
    size_t n = json_string_length(text);
    CLEANUP_FREE char *bytes = NULL;
    ssize_t got;

    if (!text)
        return true;
    bytes = json_is_string(text) ? malloc(base64_decoded_max(n) + 1) : NULL;
    got = bytes ? base64_decode(json_string_value(text), n, bytes) : -1;
    if (got < 0)
        return false;
    if (s->output)
        return s->output(s->arg, which, bytes, (size_t)got);
    s->truncated = s->truncated || (size_t)got > s->left;
    n = MIN((size_t)got, s->left);
    s->left -= n;
    return buf_append(&s->out[which], bytes, n) == 0;
}

/* As signal(7) has it where there is a name, else in the agent's words. */
static void name_signal(const char *status, char *out, size_t size)
{
    size_t n = 0;
    const char *words = signal_names_split(status, &n);
    const char *name = words ? signal_names_name(signal_names_from_words(words, n)) : NULL;

    if (name)
        snprintf(out, size, "%s", name);
    else if (words)
        snprintf(out, size, "%.*s", (int)n, words);
}

/* The agent's error is how it ended, and ": " and why where it knows that. */
static void take_reason(struct exec_stream *s, const char *status, const json_t *error)
{
    char text[STATUS_SIZE + sizeof(s->reason)];
    size_t n = strlen(status);

    copy_plain(error, text, sizeof(text));
    if (n > 0 && strncmp(text, status, n) == 0 && strncmp(text + n, ": ", 2) == 0)
        snprintf(s->reason, sizeof(s->reason), "%s", text + n + 2);
}

static bool take_end(struct exec_stream *s, const json_t *end)
{
    char status[STATUS_SIZE];

    if (!json_is_object(end))
        return false;
    copy_plain(json_object_get(end, "status"), status, sizeof(status));
    take_reason(s, status, json_object_get(end, "error"));
    s->ended = true;
    if (json_is_true(json_object_get(end, "exited")))
        s->exit_code = (int)json_integer_value(json_object_get(end, "exitCode"));
    else
        name_signal(status, s->signal, sizeof(s->signal));
    return true;
}

static bool take_event(struct exec_stream *s, const json_t *event)
{
    const json_t *start = json_object_get(event, "start"), *data = json_object_get(event, "data"),
                 *end = json_object_get(event, "end");

    if (start) {
        s->pid = json_integer_value(json_object_get(start, "pid"));
        s->started = s->pid > 0;
        return s->started;
    }
    if (data)
        return take_output(s, json_object_get(data, "pty"), EXEC_STDOUT) &&
               take_output(s, json_object_get(data, "stdout"), EXEC_STDOUT) &&
               take_output(s, json_object_get(data, "stderr"), EXEC_STDERR);
    return !end || take_end(s, end); /* else it only keeps the stream alive */
}

static void take_trailer(struct exec_stream *s, const json_t *trailer)
{
    const json_t *error = json_object_get(trailer, "error");

    s->over = true;
    copy_plain(json_object_get(error, "code"), s->error, sizeof(s->error));
    copy_plain(json_object_get(error, "message"), s->message, sizeof(s->message));
}

/* -- envelopes --------------------------------------------------------------------------------- */

static bool take_envelope(struct exec_stream *s, const struct envelope *in)
{
    json_t *o;
    bool good;

    if ((in->flags & ~ENVELOPE_END) || s->over)
        return false;
    o = json_load_answer(in->data, in->len);
    good = json_is_object(o);
    if (good && (in->flags & ENVELOPE_END))
        take_trailer(s, o);
    else if (good)
        good = take_event(s, json_object_get(o, "event"));
    json_decref(o);
    return good;
}

/* False: a message is not one, or longer than EXEC_MESSAGE_MAX, which its head says. */
static bool take_whole(struct exec_stream *s)
{
    struct envelope next;
    int r;

    while ((r = envelope_peek(&s->in, EXEC_MESSAGE_MAX, &next)) > 0) {
        if (!take_envelope(s, &next))
            return false;
        envelope_drop(&s->in, &next);
    }
    return r == 0;
}

/* No more than the buffer has room for at a time: its contents are less than one message. */
bool exec_stream_feed(struct exec_stream *s, const char *data, size_t len)
{
    while (len > 0) {
        size_t n = MIN(len, s->in.max - s->in.len);

        if (buf_append(&s->in, data, n) < 0 || !take_whole(s))
            return false;
        data += n;
        len -= n;
    }
    return true;
}
