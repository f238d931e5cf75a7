/* The tool "run": a command in a sandbox. Its outputs are kept up to a maximum; of each the
 * beginning goes into the result, and where there is more, all of it into a file of the sandbox, to
 * be read from there piece by piece. While it runs, its client is told of it where it asked to be
 * (a progress token), and the command is killed when its client gives it up. */
#include "base/clock.h"
#include "core/exec.h"
#include "http/json.h"
#include "mcp/file_call.h"
#include "mcp/result.h"
#include "mcp/target.h"
#include "mcp/tool.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_S         60
#define PROGRESS_EVERY_MS 250u
#define LINE_BYTES        200u
#define OUTPUT_FOLDER     "/tmp/cay-output/"
#define TEXT_BYTES        (4u * TOOL_TEXT_BYTES_MAX)

/* A result has both outputs twice; 1 MiB is left for the rest. */
_Static_assert(4 * TOOL_OUTPUT_ENCODED_MAX + (1u << 20) <= REQUEST_ANSWER_MAX, "they fit");

static const char *const output_names[] = {[EXEC_STDOUT] = "stdout", [EXEC_STDERR] = "stderr"};

struct run {
    struct buf out[2]; /* output that is kept */
    uint64_t bytes[2]; /* of all that came */
    size_t max_bytes;  /* of each in the result */
    size_t shown[2];   /* of each that the result has; set when the command has ended */
    char name[17];     /* of the files */
    bool saved[2];
    int saving; /* the output whose file is written now */
    uint64_t begun_ms, reported_ms;
    const json_t *progress_token; /* of the message; NULL: no progress is wanted */
    char line[LINE_BYTES];        /* the last whole one */

    int exit_code;
    char signal[24];
    char reason[256]; /* "": none is known */
    bool timed_out;
    uint64_t duration_ms;
    json_t *denied;
};

static void free_run(void *state)
{
    struct run *run = state;

    for (size_t i = 0; i < ARRAY_SIZE(run->out); i++)
        buf_free(&run->out[i]);
    json_decref(run->denied);
    free(run);
}

/* -- the result -------------------------------------------------------------------------------- */

/* The most bytes of JSON that it becomes: a byte that is no UTF-8 becomes U+FFFD, of 3 bytes. */
static size_t encoded_size(unsigned char c)
{
    if (c < 0x20)
        return strlen("\\u0000");
    return c >= 0x80 ? 3 : c == '"' || c == '\\' ? 2 : 1;
}

/* How much of an output the result has: the bytes asked for, and no more than has room there when
 * it is encoded; whole characters where it goes on. */
static size_t shown_of(const struct run *run, int i)
{
    const char *bytes = run->out[i].data;
    size_t max = MIN(run->out[i].len, run->max_bytes), encoded = 0, n = 0;

    while (n < max && (encoded += encoded_size((unsigned char)bytes[n])) <= TOOL_OUTPUT_ENCODED_MAX)
        n++;
    return n < run->out[i].len ? json_whole_text(bytes, n) : n;
}

static bool is_longer(const struct run *run, int i)
{
    return run->out[i].len > run->shown[i];
}

static void file_of(const struct run *run, int i, char *out, size_t size)
{
    (void)snprintf(out, size, OUTPUT_FOLDER "%s.%s", run->name, output_names[i]);
}

static void add_output(const struct run *run, int i, json_t *o)
{
    char name[32], file[64];

    json_object_set_new(o, output_names[i],
                        rpc_text(run->out[i].len ? run->out[i].data : "", run->shown[i]));
    (void)snprintf(name, sizeof(name), "%s_bytes", output_names[i]);
    json_object_set_new(o, name, json_integer((json_int_t)run->bytes[i]));
    if (!run->saved[i])
        return;
    file_of(run, i, file, sizeof(file));
    (void)snprintf(name, sizeof(name), "%s_file", output_names[i]);
    json_object_set_new(o, name, json_string(file));
    (void)snprintf(name, sizeof(name), "%s_next_offset", output_names[i]);
    json_object_set_new(o, name, json_integer((json_int_t)run->shown[i]));
}

static json_t *structured_of(const struct run *run)
{
    bool truncated = false;
    json_t *o = json_object();

    json_object_set_new(o, "exit_code",
                        run->exit_code < 0 ? json_null() : json_integer(run->exit_code));
    json_object_set_new(o, "signal", run->signal[0] ? json_string(run->signal) : json_null());
    json_object_set_new(o, "reason", run->reason[0] ? json_string(run->reason) : json_null());
    json_object_set_new(o, "timed_out", json_boolean(run->timed_out));
    json_object_set_new(o, "duration_ms", json_integer((json_int_t)run->duration_ms));
    for (int i = EXEC_STDOUT; i <= EXEC_STDERR; i++) {
        truncated |= run->bytes[i] > run->out[i].len;
        add_output(run, i, o);
    }
    json_object_set_new(o, "truncated", json_boolean(truncated));
    json_object_set(o, "denied", run->denied);
    return o;
}

static int put_output(struct buf *b, const struct run *run, int i)
{
    char file[64];
    int rc;

    if (run->bytes[i] == 0)
        return 0;
    rc = buf_printf(b, "--- %s ---\n", output_names[i]);
    if (rc == 0)
        rc = buf_append(b, run->out[i].data, run->shown[i]);
    file_of(run, i, file, sizeof(file));
    if (rc == 0 && run->saved[i])
        rc = buf_printf(b, "\n[%llu bytes in all; read %s from offset %zu]",
                        (unsigned long long)run->bytes[i], file, run->shown[i]);
    else if (rc == 0 && run->bytes[i] > run->shown[i])
        rc = buf_printf(b, "\n[%llu bytes in all; the rest is not kept]",
                        (unsigned long long)run->bytes[i]);
    return rc == 0 && b->data[b->len - 1] != '\n' ? buf_append_str(b, "\n") : rc;
}

static int put_denied(struct buf *b, const json_t *denied)
{
    const json_t *d;
    size_t i;
    int rc = 0;

    json_array_foreach (denied, i, d) {
        if (rc == 0)
            rc = buf_printf(
                b, "The network refused %s port %lld: %s (rule: %s). Its owner can allow it.\n",
                schema_text(d, "name", "?"), (long long)schema_integer(d, "port", 0),
                schema_text(d, "reason", "?"), schema_text(d, "rule", "?"));
    }
    return rc;
}

static int put_head(struct buf *b, const struct run *run)
{
    int rc;

    if (run->timed_out)
        return buf_append_str(
            b,
            "It was killed at the end of its time; give a longer \"timeout\", or start it in the "
            "background.\n");
    if (run->signal[0])
        rc = buf_printf(b, "It was ended by %s.\n", run->signal);
    else
        rc = buf_printf(b, "exit code %d\n", run->exit_code);
    return rc == 0 && run->reason[0] ? buf_printf(b, "%s.\n", run->reason) : rc;
}

static void report(struct request *r)
{
    struct run *run = r->state;
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, TEXT_BYTES);
    rc = put_head(&b, run);
    for (int i = EXEC_STDOUT; rc == 0 && i <= EXEC_STDERR; i++)
        rc = put_output(&b, run, i);
    if (rc == 0)
        rc = put_denied(&b, run->denied);
    if (rc < 0)
        result_no_memory(r);
    else
        result_done(r, structured_of(run), b.data, b.len);
}

/* -- long outputs into files ------------------------------------------------------------------- */

static void save_next(struct request *r);

static void on_saved(void *arg, const struct err *why, int status, const char *body, size_t len)
{
    struct request *r = arg;
    struct run *run = r->state;

    run->saved[run->saving++] = !why &&
                                status / 100 ==
                                    2; /* a full disk: the result says that it is not kept */
    save_next(r);
}

static void save_next(struct request *r)
{
    struct run *run = r->state;
    char file[64], target[128];
    struct core_agent_file_call save = {.method = "POST",
                                        .target = target,
                                        .type = "application/octet-stream",
                                        .max_response = 65536};

    while (run->saving <= EXEC_STDERR && !is_longer(run, run->saving))
        run->saving++;
    if (run->saving > EXEC_STDERR || r->dropped) {
        report(r);
        return;
    }
    file_of(run, run->saving, file, sizeof(file));
    (void)snprintf(target, sizeof(target), "/files?path=%s", file);
    save.body_len = run->out[run->saving].len;
    save.body = malloc(save.body_len);
    if (!save.body) {
        result_no_memory(r);
        return;
    }
    memcpy(save.body, run->out[run->saving].data, save.body_len);
    file_call(r, &save, on_saved);
}

/* -- while it runs ----------------------------------------------------------------------------- */

/* Remembers the last whole line, for the next progress. */
static void take_line(struct run *run, const char *bytes, size_t n)
{
    size_t end = n, begin;

    while (end > 0 && bytes[end - 1] != '\n')
        end--;
    if (end < 2)
        return;
    end--;
    for (begin = end; begin > 0 && bytes[begin - 1] != '\n'; begin--)
        ;
    (void)snprintf(run->line, sizeof(run->line), "%.*s",
                   (int)MIN(end - begin, sizeof(run->line) - 1), bytes + begin);
}

static void report_progress(struct request *r)
{
    struct run *run = r->state;
    uint64_t now = clock_mono_ms();
    json_t *params;

    if (!run->progress_token || (run->reported_ms && now - run->reported_ms < PROGRESS_EVERY_MS))
        return;
    run->reported_ms = MAX(now, run->reported_ms + 1); /* progress has to grow */
    params = json_pack("{s:I, s:o}", "progress", (json_int_t)(run->reported_ms - run->begun_ms) + 1,
                       "message",
                       rpc_text(run->line, json_whole_text(run->line, strlen(run->line))));
    json_object_set(params, "progressToken", (json_t *)run->progress_token);
    request_notify(r, "notifications/progress", params);
}

static bool on_output(void *arg, int which, const char *bytes, size_t n)
{
    struct request *r = arg;
    struct run *run = r->state;
    size_t left = TOOL_OUTPUT_KEPT_MAX - run->out[which].len;

    if (request_is_left(r))
        request_drop(r);
    run->bytes[which] += n;
    if (buf_append(&run->out[which], bytes, MIN(n, left)) != 0)
        return true; /* counted, and not kept */
    take_line(run, bytes, n);
    if (n == 0)
        request_beat(r);
    report_progress(r);
    return true;
}

static void on_end(void *arg, const struct core_exec_result *result, const struct err *why)
{
    struct request *r = arg;
    struct run *run = r->state;

    r->exec = 0;
    if (r->dropped) {
        request_done(r);
        return;
    }
    if (why) {
        result_fail(r, "the command was not run to its end: %s%s%s", why->text,
                    why->hint[0] ? "; " : "", why->hint);
        return;
    }
    run->exit_code = result->exit_code;
    (void)snprintf(run->signal, sizeof(run->signal), "%s", result->signal ? result->signal : "");
    (void)snprintf(run->reason, sizeof(run->reason), "%s", result->reason ? result->reason : "");
    run->timed_out = result->timed_out;
    run->duration_ms = result->duration_ms;
    run->denied = json_deep_copy(result->violations);
    for (int i = EXEC_STDOUT; i <= EXEC_STDERR; i++)
        run->shown[i] = shown_of(run, i);
    save_next(r);
}

/* -- its start --------------------------------------------------------------------------------- */

static json_t *process_of(const json_t *args)
{
    json_t *process = json_pack("{s:s, s:[s, s, O]}", "cmd", "/bin/bash", "args", "-l", "-c",
                                json_object_get(args, "command"));
    json_t *env = json_object_get(args, "env"), *cwd = json_object_get(args, "cwd");

    if (json_is_object(env))
        json_object_set(process, "envs", env);
    if (json_is_string(cwd))
        json_object_set(process, "cwd", cwd);
    return process;
}

static void start(struct request *r)
{
    const json_t *input = json_object_get(r->args, "stdin");
    struct core_exec_request e = {
        .process = process_of(r->args),
        .user = schema_text(r->args, "user", NULL),
        .input = json_string_value(input),
        .input_len = json_string_length(input),
        .timeout_ms = (uint64_t)schema_integer(r->args, "timeout", TIMEOUT_S) * 1000,
        .on_output = on_output};
    struct run *run = r->state;

    run->begun_ms = clock_mono_ms();
    if (e.process && request_stream(r))
        r->exec = core_exec(r->core, r->tenant, r->sandbox, &e, on_end, r);
    else if (!e.process)
        result_no_memory(r);
    json_decref(e.process);
}

void tool_run(struct request *r)
{
    const json_t *meta = json_object_get(r->message.params, "_meta");
    const json_t *token = json_object_get(meta, "progressToken");
    struct run *run = calloc(1, sizeof(*run));

    if (!run) {
        result_no_memory(r);
        return;
    }
    r->state = run;
    r->state_free = free_run;
    for (size_t i = 0; i < ARRAY_SIZE(run->out); i++)
        buf_init(&run->out[i], TOOL_OUTPUT_KEPT_MAX);
    run->max_bytes = (size_t)schema_integer(r->args, "max_bytes", TOOL_TEXT_BYTES);
    run->progress_token = json_is_null(token) ? NULL : token;
    ids_random_text(run->name, sizeof(run->name) - 1);
    target_running(r, start);
}
