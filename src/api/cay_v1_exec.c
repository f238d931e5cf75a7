/* A command in a sandbox, run to its end. See cay_v1.h. The request is read and checked, core runs
 * the program (core/exec.c), and the answer is one object at its end, or lines through a pipe as
 * the output comes, whose last one is the end. */
#include "api/cay_v1.h"

#include "base/base64.h"
#include "base/buf.h"
#include "core/exec.h"
#include "core/pipe_writer.h"
#include "http/json.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

#define COMMAND_MAX  1024u /* words */
#define TEXT_MAX     (128u * 1024u)
#define CWD_MAX      4095u
#define USER_MAX     63u
#define ANSWER_BYTES (8u * CORE_EXEC_OUTPUT_MAX) /* as JSON, in the worst case, and the denials */

#define END_BYTES (2u * 1024u * 1024u) /* of the last line of a stream: the denials */

struct exec_request {
    struct core_exec_request request;
    bool base64, stream;
    char *input;    /* decoded */
    json_t *policy; /* read from a preset's name */
};

static void free_request(void *state)
{
    struct exec_request *a = state;

    json_decref(a->request.process);
    json_decref(a->policy);
    if (a->input)
        explicit_bzero(a->input, a->request.input_len);
    free(a->input);
    free(a);
}

/* -- the request ------------------------------------------------------------------------------- */

/* A key that is not known is refused: a misspelled "policy" must not run without one. */
static enum err_code check_keys(json_t *body, struct err *e)
{
    static const char *const known[] = {
        "command",          "shell",    "cwd",   "env", "user", "stdin", "policy", "timeout_ms",
        "max_output_bytes", "encoding", "stream"};
    const char *key;
    json_t *value;
    size_t i;

    json_object_foreach (body, key, value) {
        for (i = 0; i < ARRAY_SIZE(known) && strcmp(known[i], key) != 0; i++)
            ;
        if (i == ARRAY_SIZE(known))
            return err_set(e, ERR_INVALID, "\"%.64s\" is not known here", key);
    }
    return ERR_OK;
}

/* {"command": [...]} or {"shell": "..."} into what the agent is told. */
static enum err_code read_command(const json_t *body, json_t *process, struct err *e)
{
    json_t *words = NULL, *args = json_array();
    const char *shell = NULL;

    json_object_set_new(process, "args", args);
    if (json_get_arr(body, "command", NULL, JSON_OPTIONAL, &words, e) != ERR_OK ||
        json_get_str(body, "shell", NULL, JSON_OPTIONAL, TEXT_MAX, &shell, e) != ERR_OK)
        return e->code;
    if (!words == !shell)
        return err_set(
            e, ERR_INVALID,
            "give either \"command\", a list of words, or \"shell\", a text for /bin/sh");
    if (shell) {
        json_object_set_new(process, "cmd", json_string("/bin/sh"));
        json_array_append_new(args, json_string("-c"));
        json_array_append_new(args, json_string(shell));
        return ERR_OK;
    }
    if (json_array_size(words) == 0 || json_array_size(words) > COMMAND_MAX)
        return err_set(e, ERR_INVALID, "command: 1 to %u words", COMMAND_MAX);
    for (size_t i = 0; i < json_array_size(words); i++)
        if (!json_is_string(json_array_get(words, i)))
            return err_set(e, ERR_INVALID, "command[%zu] must be a string", i);
    json_object_set(process, "cmd", json_array_get(words, 0));
    for (size_t i = 1; i < json_array_size(words); i++)
        json_array_append(args, json_array_get(words, i));
    return ERR_OK;
}

static enum err_code read_process(const json_t *body, struct exec_request *a, struct err *e)
{
    json_t *process = a->request.process = json_object(), *env = NULL;
    const char *cwd = NULL;

    if (read_command(body, process, e) != ERR_OK ||
        json_get_str(body, "cwd", NULL, JSON_OPTIONAL, CWD_MAX, &cwd, e) != ERR_OK ||
        json_get_obj(body, "env", NULL, JSON_OPTIONAL, &env, e) != ERR_OK)
        return e->code;
    if (env && json_check_env(env, "env", API_MAP_MAX_COUNT, API_ENV_MAX_BYTES, e) != ERR_OK)
        return e->code;
    if (cwd)
        json_object_set_new(process, "cwd", json_string(cwd));
    if (env)
        json_object_set(process, "envs", env);
    return ERR_OK;
}

static enum err_code read_policy(json_t *body, struct exec_request *a, struct err *e)
{
    json_t *policy = json_object_get(body, "policy");

    if (!policy || json_is_null(policy))
        return ERR_OK;
    if (json_is_object(policy)) {
        a->request.policy = policy;
        return ERR_OK;
    }
    if (!json_is_string(policy) || !policy_preset(json_string_value(policy)))
        return err_set(e, ERR_INVALID,
                       "policy: an object, or one of \"deny\", \"public\", \"allow\"");
    a->policy = json_pack("{s:O}", "default", policy);
    a->request.policy = a->policy;
    return a->policy ? ERR_OK : err_set(e, ERR_UNAVAILABLE, "memory is out");
}

static enum err_code read_input(json_t *body, struct exec_request *a, struct err *e)
{
    const char *text = NULL;
    size_t n;
    ssize_t got;

    if (json_get_str(body, "stdin", NULL, JSON_OPTIONAL, API_BODY_MAX_BYTES, &text, e) != ERR_OK)
        return e->code;
    if (!text)
        return ERR_OK;
    n = json_string_length(json_object_get(body, "stdin"));
    a->input = malloc(n + 4);
    if (!a->input)
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    memcpy(a->input, text, n);
    got = a->base64 ? base64_decode(a->input, n, a->input) : (ssize_t)n;
    if (got < 0)
        return err_set(e, ERR_INVALID, "stdin: not base64, which \"encoding\" says it is");
    a->request.input = a->input;
    a->request.input_len = (size_t)got;
    return ERR_OK;
}

static enum err_code read_request(json_t *body, struct exec_request *a, struct err *e)
{
    int64_t timeout = CORE_EXEC_TIMEOUT_MS, output = CORE_EXEC_OUTPUT;
    const char *encoding = "utf-8";

    if (check_keys(body, e) != ERR_OK || read_process(body, a, e) != ERR_OK ||
        read_policy(body, a, e) != ERR_OK ||
        json_get_str(body, "user", NULL, JSON_OPTIONAL, USER_MAX, &a->request.user, e) != ERR_OK ||
        json_get_int(body, "timeout_ms", NULL, JSON_OPTIONAL, 1, CORE_EXEC_TIMEOUT_MAX_MS, &timeout,
                     e) != ERR_OK ||
        json_get_int(body, "max_output_bytes", NULL, JSON_OPTIONAL, 0, CORE_EXEC_OUTPUT_MAX,
                     &output, e) != ERR_OK ||
        json_get_str(body, "encoding", NULL, JSON_OPTIONAL, 16, &encoding, e) != ERR_OK ||
        json_get_bool(body, "stream", NULL, JSON_OPTIONAL, &a->stream, e) != ERR_OK)
        return e->code;
    a->base64 = strcmp(encoding, "base64") == 0;
    if (!a->base64 && strcmp(encoding, "utf-8") != 0)
        return err_set(e, ERR_INVALID, "encoding: \"utf-8\" or \"base64\"");
    a->request.timeout_ms = (uint64_t)timeout;
    a->request.max_output_bytes = (size_t)output;
    return read_input(body, a, e);
}

/* -- the answer -------------------------------------------------------------------------------- */

static const char *const output_keys[] = {[EXEC_STDOUT] = "stdout", [EXEC_STDERR] = "stderr"};

static int put_output(struct buf *b, int which, const char *bytes, size_t n, bool base64)
{
    CLEANUP_FREE char *text = base64 ? malloc(base64_encoded_len(n) + 1) : NULL;
    int rc = buf_printf(b, "\"%s\":", output_keys[which]);

    if (base64 && !text)
        return -1;
    if (base64)
        base64_encode(bytes, n, text);
    if (rc == 0)
        rc = json_append_text(b, base64 ? text : bytes, base64 ? strlen(text) : n);
    return rc;
}

static int put_end(struct buf *b, const struct core_exec_result *r)
{
    CLEANUP_FREE char *violations = json_text(r->violations, JSON_COMPACT | JSON_ENSURE_ASCII);
    int rc = buf_append_str(b, "\"exit_code\":");

    if (rc == 0)
        rc = r->exit_code < 0 ? buf_append_str(b, "null") : buf_printf(b, "%d", r->exit_code);
    if (rc == 0)
        rc = r->signal ? buf_printf(b, ",\"signal\":\"%s\"", r->signal)
                       : buf_append_str(b, ",\"signal\":null");
    if (rc == 0)
        rc = buf_append_str(b, ",\"reason\":");
    if (rc == 0)
        rc = r->reason ? json_append_text(b, r->reason, strlen(r->reason))
                       : buf_append_str(b, "null");
    if (rc == 0)
        rc = buf_printf(b, ",\"truncated\":%s,\"timed_out\":%s,\"duration_ms\":%llu",
                        r->truncated ? "true" : "false", r->timed_out ? "true" : "false",
                        (unsigned long long)r->duration_ms);
    if (rc == 0)
        rc = buf_append_str(b, ",\"violations\":");
    if (rc == 0)
        rc = violations ? buf_append_str(b, violations) : -1;
    return rc;
}

static int put_result(struct buf *b, const struct core_exec_result *r, bool base64)
{
    int rc = buf_append_str(b, "{");

    if (rc == 0)
        rc = put_end(b, r);
    for (int i = EXEC_STDOUT; rc == 0 && i <= EXEC_STDERR; i++) {
        rc = buf_append_str(b, ",");
        if (rc == 0)
            rc = put_output(b, i, r->output[i], r->output_len[i], base64);
    }
    return rc == 0 ? buf_append_str(b, "}") : rc;
}

static void done(void *arg, const struct core_exec_result *r, const struct err *why)
{
    struct api_call *call = arg;
    const struct exec_request *a = call->state;
    CLEANUP_BUF struct buf b;

    buf_init(&b, ANSWER_BYTES);
    if (why)
        api_fail_err(call, why);
    else if (put_result(&b, r, a->base64) != 0)
        api_fail(call, 503, "the command ran, but its output does not fit into memory");
    else
        api_reply_text(call, 200, b.data, b.len);
}

/* -- the answer in lines, as it comes ---------------------------------------------------------- */

/* Of a command whose call is answered when it runs, and gone then. */
struct live {
    struct api_call *call; /* NULL: it is answered */
    struct core *core;
    struct pipe_writer *out; /* NULL: nothing was told yet */
    size_t max;
    bool base64, truncated;
    struct {
        char bytes[4]; /* of a character that has not come whole */
        size_t len;
    } rest[2];
};

/* *fd: what the client reads. NULL: why not in e. */
static struct pipe_writer *new_lines(const struct live *l, int *fd, struct err *e)
{
    struct share *share = pipe_writer_share(l->core, l->call->who.tenant, l->call->params[0]);
    struct pipe_writer *out;
    int rc;

    if (!share) {
        err_set(e, ERR_EXHAUSTED,
                "as many streams as this tenant or sandbox may have are not read by their clients "
                "yet");
        err_hint(e, "read them, or close their connections");
        return NULL;
    }
    out = pipe_writer_new(l->core, l->max + END_BYTES, NULL, share, fd, &rc);
    if (!out)
        err_set_sys(e, ERR_UNAVAILABLE, rc, "a stream of the command's output");
    return out;
}

static bool begin_lines(struct live *l)
{
    struct err e;
    int fd;

    if (l->out)
        return true;
    l->out = new_lines(l, &fd, &e);
    if (l->out)
        api_reply_stream(TAKE_PTR(l->call), "application/x-ndjson", fd);
    else
        api_fail_err(TAKE_PTR(l->call), &e);
    return l->out != NULL;
}

/* Output that a slow reader does not take is left out; the last line says that some was. */
static void write_output(struct live *l, int which, const char *bytes, size_t n)
{
    CLEANUP_BUF struct buf b;

    buf_init(&b, ANSWER_BYTES);
    if (n == 0)
        return;
    if (buf_append_str(&b, "{") != 0 || put_output(&b, which, bytes, n, l->base64) != 0 ||
        buf_append_str(&b, "}\n") != 0 || pipe_writer_held(l->out) + b.len > l->max ||
        pipe_writer_put(l->out, b.data, b.len) == -ENOMEM)
        l->truncated = true;
}

/* The beginning of a character waits for its end, unless all has come. */
static void write_text(struct live *l, int which, const char *bytes, size_t n)
{
    CLEANUP_BUF struct buf all;
    size_t whole;

    buf_init(&all, ANSWER_BYTES);
    if (buf_append(&all, l->rest[which].bytes, l->rest[which].len) != 0 ||
        buf_append(&all, bytes, n) != 0) {
        l->truncated = true;
        return;
    }
    whole = n ? json_whole_text(all.data, all.len) : all.len;
    l->rest[which].len = all.len - whole;
    memcpy(l->rest[which].bytes, all.data + whole, all.len - whole);
    write_output(l, which, all.data, whole);
}

static bool on_output(void *arg, int which, const char *bytes, size_t n)
{
    struct live *l = arg;

    if (!begin_lines(l))
        return false;
    if (n > 0 && l->base64)
        write_output(l, which, bytes, n);
    else if (n > 0)
        write_text(l, which, bytes, n);
    return pipe_writer_is_read(l->out);
}

static void write_end(struct live *l, const struct core_exec_result *r, const struct err *why)
{
    struct core_exec_result last = r ? *r : (struct core_exec_result){0};
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, END_BYTES);
    last.truncated |= l->truncated;
    rc = buf_append_str(&b, why ? "{\"error\":" : "{");
    if (rc == 0)
        rc = why ? json_append_text(&b, why->text, strlen(why->text)) : put_end(&b, &last);
    if (rc == 0)
        rc = buf_append_str(&b, "}\n");
    if (rc == 0)
        (void)pipe_writer_put(l->out, b.data,
                              b.len); /* else the stream ends without it: it is cut */
}

static void live_done(void *arg, const struct core_exec_result *r, const struct err *why)
{
    struct live *l = arg;

    if (l->call && why)
        api_fail_err(TAKE_PTR(l->call), why);
    else if (l->call)
        (void)begin_lines(l);
    if (l->out) {
        for (int i = EXEC_STDOUT; i <= EXEC_STDERR; i++)
            write_text(l, i, "", 0);
        write_end(l, r, why);
        pipe_writer_end(l->out);
    }
    free(l);
}

static void exec_lines(struct api_call *call, struct exec_request *a)
{
    struct live *l = calloc(1, sizeof(*l));

    if (!l) {
        api_fail(call, 503, "memory is out");
        return;
    }
    l->call = call;
    l->core = call->core;
    l->max = a->request.max_output_bytes;
    l->base64 = a->base64;
    a->request.on_output = on_output;
    core_exec(call->core, call->who.tenant, call->params[0], &a->request, live_done, l);
}

void cay_v1_exec(struct api_call *call)
{
    struct exec_request *a;
    struct err e;

    a = api_call_state(call, sizeof(*a), free_request);
    if (!a)
        return;
    if (read_request(call->body, a, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (a->stream)
        exec_lines(call, a);
    else
        core_exec(call->core, call->who.tenant, call->params[0], &a->request, done, call);
}
