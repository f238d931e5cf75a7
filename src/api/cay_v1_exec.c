/* One command in a sandbox, run to its end. See cay_v1.h. */
#include "api/cay_v1.h"

#include "base/base64.h"
#include "base/buf.h"
#include "core/exec.h"
#include "http/json.h"
#include "policy/policy.h"

#include <string.h>

#define COMMAND_MAX  1024u /* words */
#define TEXT_MAX     (128u * 1024u)
#define CWD_MAX      4095u
#define USER_MAX     63u
#define ANSWER_BYTES (8u * CORE_EXEC_OUTPUT_MAX) /* as JSON, in the worst case, and the denials */

struct exec_ask {
    struct core_exec_request request;
    bool base64;
    char *input;    /* decoded */
    json_t *policy; /* read from a preset's name */
};

static void free_ask(void *state)
{
    struct exec_ask *a = state;

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
        "command",          "shell",   "cwd", "env", "user", "stdin", "policy", "timeout_ms",
        "max_output_bytes", "encoding"};
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

static enum err_code read_process(const json_t *body, struct exec_ask *a, struct err *e)
{
    json_t *process = a->request.process = json_object(), *env = NULL;
    const char *cwd = NULL;

    if (read_command(body, process, e) != ERR_OK ||
        json_get_str(body, "cwd", NULL, JSON_OPTIONAL, CWD_MAX, &cwd, e) != ERR_OK ||
        json_get_obj(body, "env", NULL, JSON_OPTIONAL, &env, e) != ERR_OK)
        return e->code;
    if (env && json_check_str_map(env, "env", API_MAP_MAX_COUNT, API_ENV_MAX_BYTES, e) != ERR_OK)
        return e->code;
    if (cwd)
        json_object_set_new(process, "cwd", json_string(cwd));
    if (env)
        json_object_set(process, "envs", env);
    return ERR_OK;
}

static enum err_code read_policy(json_t *body, struct exec_ask *a, struct err *e)
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
    return a->policy ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

static enum err_code read_input(json_t *body, struct exec_ask *a, struct err *e)
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
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    memcpy(a->input, text, n);
    got = a->base64 ? base64_decode(a->input, n, a->input) : (ssize_t)n;
    if (got < 0)
        return err_set(e, ERR_INVALID, "stdin: not base64, which \"encoding\" says it is");
    a->request.input = a->input;
    a->request.input_len = (size_t)got;
    return ERR_OK;
}

static enum err_code read_ask(json_t *body, struct exec_ask *a, struct err *e)
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
        json_get_str(body, "encoding", NULL, JSON_OPTIONAL, 16, &encoding, e) != ERR_OK)
        return e->code;
    a->base64 = strcmp(encoding, "base64") == 0;
    if (!a->base64 && strcmp(encoding, "utf-8") != 0)
        return err_set(e, ERR_INVALID, "encoding: \"utf-8\" or \"base64\"");
    a->request.timeout_ms = (uint64_t)timeout;
    a->request.max_output_bytes = (size_t)output;
    return read_input(body, a, e);
}

/* -- the answer -------------------------------------------------------------------------------- */

static int put_output(struct buf *b, const char *key, const char *bytes, size_t n, bool base64)
{
    CLEANUP_FREE char *text = base64 ? malloc(base64_encoded_len(n) + 1) : NULL;
    int rc = buf_printf(b, ",\"%s\":", key);

    if (base64 && !text)
        return -1;
    if (base64)
        base64_encode(bytes, n, text);
    if (rc == 0)
        rc = json_append_text(b, base64 ? text : bytes, base64 ? strlen(text) : n);
    return rc;
}

static int put_result(struct buf *b, const struct core_exec_result *r, bool base64)
{
    static const char *const keys[] = {"stdout", "stderr"};
    CLEANUP_FREE char *violations = json_dumps(r->violations, JSON_COMPACT | JSON_ENSURE_ASCII);
    int rc = buf_append_str(b, "{\"exit_code\":");

    if (rc == 0)
        rc = r->exit_code < 0 ? buf_append_str(b, "null") : buf_printf(b, "%d", r->exit_code);
    if (rc == 0)
        rc = r->signal ? buf_printf(b, ",\"signal\":\"%s\"", r->signal)
                       : buf_append_str(b, ",\"signal\":null");
    for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(keys); i++)
        rc = put_output(b, keys[i], r->output[i], r->output_len[i], base64);
    if (rc == 0)
        rc = buf_printf(b, ",\"truncated\":%s,\"timed_out\":%s,\"duration_ms\":%llu",
                        r->truncated ? "true" : "false", r->timed_out ? "true" : "false",
                        (unsigned long long)r->duration_ms);
    if (rc == 0)
        rc = buf_append_str(b, ",\"violations\":");
    if (rc == 0)
        rc = violations ? buf_append_str(b, violations) : -1;
    return rc == 0 ? buf_append_str(b, "}") : rc;
}

static void done(void *arg, const struct core_exec_result *r, const struct err *why)
{
    struct api_call *call = arg;
    const struct exec_ask *a = call->state;
    CLEANUP_BUF struct buf b;

    buf_init(&b, ANSWER_BYTES);
    if (why)
        api_fail_err(call, why);
    else if (put_result(&b, r, a->base64) != 0)
        api_fail(call, 503, "the command ran, but its output does not fit into memory");
    else
        api_reply_text(call, 200, b.data, b.len);
}

void cay_v1_exec(struct api_call *call)
{
    struct exec_ask *a;
    struct err e;

    if (!api_call_body(call))
        return;
    a = calloc(1, sizeof(*a));
    if (!a) {
        api_fail(call, 503, "memory is out");
        return;
    }
    call->state = a;
    call->state_free = free_ask;
    if (read_ask(call->body, a, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_exec(call->core, call->tenant, call->params[0], &a->request, done, call);
}
