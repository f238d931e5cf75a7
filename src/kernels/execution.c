#include "kernels/execution.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "kernels/result.h"

#include <string.h>

/* -- lines ------------------------------------------------------------------------------------- */

static void on_keepalive(uv_timer_t *t);

static int put(const char *bytes, size_t n, void *arg)
{
    return buf_append(arg, bytes, n) < 0 ? -1 : 0;
}

/* false: memory is out, or it is longer than a line may be; no more than that is ever held. Other
 * characters than ASCII take up to three times their bytes. */
static bool dump(json_t *line, struct buf *out)
{
    bool is_whole;

    buf_clear(out);
    is_whole = line && json_dump_callback(line, put, out, JSON_COMPACT | JSON_ENSURE_ASCII) == 0 &&
               buf_append(out, "\n", 1) == 0;
    json_decref(line);
    return is_whole;
}

/* In place of output that a client does not get. */
static json_t *not_shown(const char *why)
{
    char date[CLOCK_RFC3339_SIZE];

    clock_format_rfc3339(clock_real_ms(), date);
    return json_pack("{s:s, s:s++, s:s}", "type", "stderr", "text", "[output is not shown: ", why,
                     "]\n", "timestamp", date);
}

static void write_line(struct execution *ex, json_t *line)
{
    CLEANUP_BUF struct buf text;
    bool is_there;

    buf_init(&text, EXECUTION_LINE_MAX);
    is_there = dump(line, &text) || dump(not_shown("it has over 48 MiB"), &text);
    _Static_assert(EXECUTION_LINE_MAX >> 20 == 48, "said above");
    if (!ex->x)
        return;
    uv_timer_start(&ex->timer, on_keepalive, EXECUTION_KEEPALIVE_MS, 0);
    if (is_there)
        (void)http_response_write(ex->x, text.data, text.len); /* one chunk for each line */
    if (!is_there || http_response_queued(ex->x) > EXECUTION_HELD_MAX) {
        log_warn("an answer is cut: %s",
                 is_there ? "its client does not take it" : "no memory for it");
        http_exchange_abort(ex->x);
    }
}

static void on_keepalive(uv_timer_t *t)
{
    write_line(CONTAINER_OF(t, struct execution, timer), json_pack("{s:s}", "type", "keepalive"));
}

static void write_error(struct execution *ex, const char *name, const char *value,
                        json_t *traceback)
{
    if (ex->errored)
        json_decref(traceback);
    else
        write_line(ex, json_pack("{s:s, s:s, s:s, s:o}", "type", "error", "name", name, "value",
                                 value, "traceback", traceback));
    ex->errored = true;
}

void execution_error(struct execution *ex, const char *name, const char *value)
{
    write_error(ex, name, value, json_string(""));
}

/* -- what a kernel says ------------------------------------------------------------------------ */

/* The lines of a traceback are one text. */
static json_t *joined(const json_t *lines)
{
    CLEANUP_BUF struct buf b;
    const json_t *line;
    size_t i;

    buf_init(&b, WIRE_MESSAGE_MAX);
    json_array_foreach (lines, i, line)
        if (json_is_string(line) &&
            buf_append(&b, json_string_value(line), json_string_length(line)) < 0)
            break;
    return json_stringn(b.data ? b.data : "", b.len);
}

static const char *text_or_empty(const json_t *content, const char *name)
{
    const char *text = json_string_value(json_object_get(content, name));

    return text ? text : "";
}

static void on_error(struct execution *ex, const struct wire_message *m)
{
    write_error(ex, text_or_empty(m->content, "ename"), text_or_empty(m->content, "evalue"),
                joined(json_object_get(m->content, "traceback")));
}

static void on_stream(struct execution *ex, const struct wire_message *m)
{
    const char *name = text_or_empty(m->content, "name");
    json_t *text = json_object_get(m->content, "text");

    if (!json_is_string(text) || (strcmp(name, "stdout") != 0 && strcmp(name, "stderr") != 0))
        return;
    write_line(ex, json_pack("{s:s, s:O, s:s}", "type", name, "text", text, "timestamp", m->date));
}

static void on_display(struct execution *ex, const struct wire_message *m)
{
    write_line(ex, result_line(json_object_get(m->content, "data"), false));
}

static void on_result(struct execution *ex, const struct wire_message *m)
{
    ex->resulted = true;
    write_line(ex, result_line(json_object_get(m->content, "data"), true));
}

static void on_input(struct execution *ex, const struct wire_message *m)
{
    json_int_t count = json_integer_value(json_object_get(m->content, "execution_count"));

    if (ex->accepted)
        return;
    ex->accepted = true;
    write_line(ex,
               json_pack("{s:s, s:I}", "type", "number_of_executions", "execution_count", count));
}

static void on_status(struct execution *ex, const struct wire_message *m)
{
    ex->idle |= strcmp(text_or_empty(m->content, "execution_state"), "idle") == 0;
}

static void on_reply(struct execution *ex, const struct wire_message *m)
{
    const char *status = text_or_empty(m->content, "status");

    ex->replied = true;
    if (strcmp(status, "error") == 0)
        on_error(ex, m);
    else if (strcmp(status, "ok") != 0)
        execution_error(ex, "ExecutionAborted", "Execution was aborted");
}

static const struct {
    const char *type;
    void (*fn)(struct execution *ex, const struct wire_message *m);
} messages[] = {
    {"stream", on_stream},       {"display_data", on_display}, {"execute_result", on_result},
    {"execute_input", on_input}, {"error", on_error},          {"status", on_status},
    {"execute_reply", on_reply},
};

/* Of content that is not there: that it was output, an error or the end is known all the same. */
static void on_unread(struct execution *ex, const struct wire_message *m)
{
    bool is_result = strcmp(m->type, "execute_result") == 0;

    if (strcmp(m->type, "execute_reply") == 0)
        ex->replied = true;
    else if (strcmp(m->type, "error") == 0)
        execution_error(ex, "KernelError", "the kernel's error cannot be read");
    else if (is_result || strcmp(m->type, "stream") == 0 || strcmp(m->type, "display_data") == 0)
        write_line(ex, not_shown(m->unread));
    ex->resulted |= is_result;
}

bool execution_on_message(struct execution *ex, const struct wire_message *m)
{
    if (m->unread) {
        on_unread(ex, m);
        return ex->idle && ex->replied;
    }
    for (size_t i = 0; i < ARRAY_SIZE(messages); i++)
        if (strcmp(messages[i].type, m->type) == 0)
            messages[i].fn(ex, m);
    return ex->idle && ex->replied;
}

/* -- begin and end ----------------------------------------------------------------------------- */

static void on_timer_closed(uv_handle_t *h)
{
    struct execution *ex = CONTAINER_OF((uv_timer_t *)h, struct execution, timer);

    free(ex->code);
    json_decref(ex->env);
    free(ex);
}

static void on_closed(struct http_exchange *x, void *data)
{
    struct execution *ex = data;

    if (!ex || !ex->x)
        return;
    ex->x = NULL;
    uv_timer_stop(&ex->timer);
    ex->on_gone(ex->arg, ex);
}

struct execution *execution_new(struct http_exchange *x, char *code, json_t *env,
                                void (*on_gone)(void *arg, struct execution *ex), void *arg)
{
    static const struct http_header headers[] = {{"Content-Type", "application/x-ndjson"},
                                                 {"Access-Control-Allow-Origin", "*"}};
    struct execution *ex = calloc(1, sizeof(*ex));

    if (!ex) {
        free(code);
        json_decref(env);
        http_respond_error(x, 503, "no memory for an execution");
        return NULL;
    }
    *ex = (struct execution){.x = x, .code = code, .env = env, .on_gone = on_gone, .arg = arg};
    ids_random_text(ex->id, WIRE_ID_LEN);
    uv_timer_init(http_exchange_loop(x), &ex->timer);
    http_exchange_set(x, ex, on_closed);
    http_response_begin(x, 200, headers, ARRAY_SIZE(headers), -1);
    uv_timer_start(&ex->timer, on_keepalive, EXECUTION_KEEPALIVE_MS, 0);
    return ex;
}

void execution_end(struct execution *ex)
{
    struct http_exchange *x;

    write_line(ex, json_pack("{s:s}", "type", "end_of_execution"));
    x = TAKE_PTR(ex->x);
    if (x) {
        http_exchange_set(x, NULL, NULL);
        http_response_end(x);
    }
    uv_close((uv_handle_t *)&ex->timer, on_timer_closed);
}
