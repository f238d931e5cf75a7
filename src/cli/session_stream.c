/* The answer of a program that runs in a sandbox: Connect's envelopes, as E2B's envd sends them,
 * become output, an exit status or an error. session.c feeds what has come; each whole envelope
 * is handled in order: start (the pid), data, end, and the last one, which carries the error of
 * the stream, if any. A caller may take the output by a function (spec->output) in place of
 * descriptors. A part of an envelope stays in the session's buffer until the rest of it is
 * there. */

#include "cli/session_internal.h"

#include "base/base64.h"
#include "base/envelope.h"
#include "base/io.h"
#include "base/signal_names.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* "signal: killed", "signal: aborted (core dumped)", "signal 34" -> number, 0 when it is none. */
static int signal_of_status(const char *status)
{
    size_t n = strlen(status);
    const char *words = signal_names_split(status, &n);

    return signal_names_from_words(words ? words : status, n);
}

static void handle_end(struct session *s, const json_t *end)
{
    const char *status = json_string_value(json_object_get(end, "status"));
    const char *error = json_string_value(json_object_get(end, "error"));
    int number = status ? signal_of_status(status) : 0;

    s->ended = true;
    /* More than the status says: why it was killed. */
    if (error && status && strcmp(error, status) != 0)
        snprintf(s->why, sizeof(s->why), "%s", error);
    s->status = (int)json_integer_value(json_object_get(end, "exitCode"));
    if (number == 0 && s->status >= 0)
        return;
    if (number == SIGTERM && s->first_signal)
        number = s->first_signal;
    s->status = CLI_SIGNALLED + (number ? number : SIGKILL);
}

static void keep_errors(struct buf *errors, const char *bytes, size_t n)
{
    (void)!buf_append(errors, bytes, MIN(n, errors->max - errors->len));
}

/* rc: of a write of output. */
static bool is_lost(const struct session *s, int rc)
{
    return rc == -EPIPE || (s->spec->out_max && (rc < 0 || s->out_bytes > s->spec->out_max));
}

/* errors: takes it instead of fd; may be NULL. */
static void write_output(struct session *s, int fd, struct buf *errors, const char *base64)
{
    size_t len = strlen(base64);
    CLEANUP_FREE char *bytes = malloc(base64_decoded_max(len) + 1);
    ssize_t n = bytes ? base64_decode(base64, len, bytes) : -ENOMEM;

    if (n <= 0 || s->broken_pipe)
        return;
    s->out_bytes += (uint64_t)n;
    if (s->spec->output)
        s->spec->output(s->spec->output_arg, bytes, (size_t)n);
    else if (errors)
        keep_errors(errors, bytes, (size_t)n);
    else if (fd >= 0 && is_lost(s, io_write_full(fd, bytes, (size_t)n))) {
        /* The reader of our output is gone: end the command as a pipe would have ended it. */
        s->broken_pipe = true;
        s->signal_wanted = "SIGNAL_SIGKILL";
    }
}

static void handle_data(struct session *s, const json_t *data)
{
    const char *text = json_string_value(json_object_get(data, "stdout"));

    if (text)
        write_output(s, s->spec->out_fd, NULL, text);
    text = json_string_value(json_object_get(data, "pty"));
    if (text)
        write_output(s, s->spec->out_fd, NULL, text);
    text = json_string_value(json_object_get(data, "stderr"));
    if (text)
        write_output(s, s->spec->err_fd, s->spec->errors, text);
}

static void handle_event(struct session *s, const json_t *event)
{
    const json_t *part = json_object_get(event, "start");

    if (part) {
        s->started = true;
        s->pid = (uint32_t)json_integer_value(json_object_get(part, "pid"));
    }
    part = json_object_get(event, "data");
    if (part)
        handle_data(s, part);
    part = json_object_get(event, "end");
    if (part)
        handle_end(s, part);
}

/* Why the process could not be started, in the exit statuses that shells and docker use. */
static int status_of_refusal(const char *code, const char *message)
{
    if (strcmp(code, "invalid_argument") != 0 && strcmp(code, "not_found") != 0 &&
        strcmp(code, "permission_denied") != 0)
        return CLI_CANNOT;
    if (strstr(message, "cwd"))
        return CLI_NOT_RUN;
    if (strstr(message, "no such file") || strstr(message, "not found") ||
        strstr(message, "No such file"))
        return CLI_NO_PROGRAM;
    return CLI_NOT_RUN;
}

static void handle_error(struct session *s, const json_t *error)
{
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));

    code = code ? code : "unknown";
    message = message ? message : code;
    s->ended = true;
    if (strcmp(code, "deadline_exceeded") == 0) {
        s->status = CLI_TIMEOUT;
        err_set(s->e, ERR_TIMEOUT, "the command did not end within %llu ms and was killed",
                (unsigned long long)s->spec->timeout_ms);
        err_hint(s->e, "--timeout sets how long it may take.");
        return;
    }
    s->status = s->started ? CLI_CANNOT : status_of_refusal(code, message);
    err_set(s->e, ERR_INTERNAL, "%s", message);
}

static int handle_envelope(struct session *s, const struct envelope *in)
{
    json_t *message = json_loadb(in->data, in->len, 0, NULL);
    const json_t *error;

    if (!message)
        return -EBADMSG;
    error = json_object_get(message, "error");
    if (!(in->flags & ENVELOPE_END))
        handle_event(s, json_object_get(message, "event"));
    else if (error)
        handle_error(s, error);
    json_decref(message);
    return 0;
}

int session_take_envelopes(struct session *s)
{
    struct envelope next;
    int r;

    while ((r = envelope_peek(&s->in, SESSION_ENVELOPE_MAX, &next)) > 0) {
        r = handle_envelope(s, &next);
        if (r < 0)
            return r;
        envelope_drop(&s->in, &next);
    }
    return r;
}

char *session_pack_envelope(const json_t *body, size_t *len)
{
    size_t size = json_dumpb(body, NULL, 0, JSON_COMPACT);
    char *bytes = malloc(ENVELOPE_HEAD_BYTES + size);

    if (!bytes)
        return NULL;
    envelope_write_head(bytes, 0, (uint32_t)size);
    json_dumpb(body, bytes + ENVELOPE_HEAD_BYTES, size, JSON_COMPACT);
    *len = ENVELOPE_HEAD_BYTES + size;
    return bytes;
}
