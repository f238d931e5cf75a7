/* exec --policy: one command with less than its sandbox's network, by POST
 * /cay/v1/sandboxes/ID/exec. Its input is read first; its output comes as it is printed. */
#include "base/base64.h"
#include "base/io.h"
#include "base/signal_names.h"
#include "cli/commands.h"
#include "cli/lines.h"
#include "cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#define INPUT_MAX      (640u * 1024u) /* the most that a request has room for */
#define OUTPUT_MAX     (4u << 20)
#define LINE_MAX_BYTES (4u << 20) /* of a stream: the denials are in one */
#define EXTRA_MS       30000u

static enum err_code read_input(json_t *body, struct err *e)
{
    CLEANUP_FREE char *bytes = malloc(INPUT_MAX + 1), *text = NULL;
    size_t n = 0;

    while (bytes && n <= INPUT_MAX) {
        ssize_t got = read(STDIN_FILENO, bytes + n, INPUT_MAX + 1 - n);

        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return err_set_sys(e, ERR_INTERNAL, errno, "cannot read standard input");
        n += got > 0 ? (size_t)got : 0;
    }
    if (n > INPUT_MAX)
        return err_set(e, ERR_TOO_LARGE,
                       "with --policy, standard input may have %u KiB; copy it in with `cay cp`",
                       INPUT_MAX / 1024);
    text = malloc(base64_encoded_len(n) + 1);
    if (!bytes || !text)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    base64_encode(bytes, n, text);
    json_object_set_new(body, "stdin", json_string(text));
    return ERR_OK;
}

/* process is what the agent would be told: {"cmd", "args", "envs", "cwd"}. */
static json_t *make_body(const struct cli *c, const json_t *process, const char *user,
                         uint64_t timeout_ms, struct err *e)
{
    json_t *command = json_array(), *policy = NULL, *cwd = json_object_get(process, "cwd"), *body;

    if (policy_from(cli_value(c, "policy"), &policy, e) != ERR_OK) {
        json_decref(command);
        return NULL;
    }
    json_array_append(command, json_object_get(process, "cmd"));
    json_array_extend(command, json_object_get(process, "args"));
    body = json_pack("{s:o, s:O, s:o, s:s, s:I, s:s*, s:O*}", "command", command, "env",
                     json_object_get(process, "envs"), "policy", policy, "encoding", "base64",
                     "max_output_bytes", (json_int_t)OUTPUT_MAX, "user", *user ? user : NULL, "cwd",
                     cwd);
    if (body && timeout_ms)
        json_object_set_new(body, "timeout_ms", json_integer((json_int_t)timeout_ms));
    if (body && !cli_flag(c, "no-stdin") && !isatty(STDIN_FILENO) &&
        read_input(body, e) != ERR_OK) {
        json_decref(body);
        return NULL;
    }
    return body;
}

static char *output_of(const json_t *answer, const char *key, size_t *len)
{
    const json_t *text = json_object_get(answer, key);
    char *bytes = malloc(base64_decoded_max(json_string_length(text)) + 1);
    ssize_t n = bytes && text
                    ? base64_decode(json_string_value(text), json_string_length(text), bytes)
                    : 0;

    *len = n > 0 ? (size_t)n : 0;
    return bytes;
}

static void print_output(const json_t *answer, const char *key, int fd)
{
    size_t n;
    CLEANUP_FREE char *bytes = output_of(answer, key, &n);

    if (n > 0)
        (void)!io_write_full(fd, bytes, n);
}

/* As exec --json prints it without a policy: bytes that are no UTF-8 are ASCII with '?'. */
static json_t *output_json(const json_t *answer, const char *key)
{
    size_t n;
    CLEANUP_FREE char *bytes = output_of(answer, key, &n);
    json_t *value = bytes ? json_stringn(bytes, n) : json_null();

    for (size_t i = 0; !value && i < n; i++)
        bytes[i] = bytes[i] & (char)0x80 ? '?' : bytes[i];
    return value ? value : json_stringn(bytes, n);
}

static void print_violations(const json_t *answer)
{
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(answer, "violations"), i, one) {
        const char *reason = json_string_value(json_object_get(one, "reason"));

        if (!reason)
            continue;
        terminal_put(stderr, "cay: refused: ", reason);
        putc('\n', stderr);
    }
    if (json_is_true(json_object_get(answer, "truncated")))
        fprintf(stderr, "cay: some of the output is missing: it came faster than it was read\n");
}

/* Why it was killed, where that is known. */
static void print_reason(const json_t *answer)
{
    const char *reason = json_string_value(json_object_get(answer, "reason"));

    if (!reason)
        return;
    terminal_put(stderr, "cay: ", reason);
    putc('\n', stderr);
}

static int signal_number(const char *name)
{
    int number = signal_names_number(name);

    return number ? number : SIGKILL;
}

static int status_of(const json_t *answer)
{
    const json_t *code = json_object_get(answer, "exit_code");
    const char *name = json_string_value(json_object_get(answer, "signal"));

    if (json_is_true(json_object_get(answer, "timed_out")))
        return CLI_TIMEOUT;
    if (json_is_integer(code))
        return (int)json_integer_value(code);
    return CLI_SIGNALLED + signal_number(name ? name : "");
}

static int status_of_refusal(const struct err *e)
{
    if (e->code != ERR_INVALID)
        return CLI_CANNOT;
    if (strstr(e->text, "not found in PATH") || strstr(e->text, "interpreter that it names"))
        return CLI_NO_PROGRAM;
    return CLI_NOT_RUN;
}

static int print_json(const json_t *answer, const struct api_sandbox *s)
{
    int status = status_of(answer);

    cli_print_json(json_pack("{s:s, s:i, s:o, s:o, s:s, s:O}", "sandboxID", s->id, "exitCode",
                             status, "stdout", output_json(answer, "stdout"), "stderr",
                             output_json(answer, "stderr"), "error", cli_text(answer, "reason"),
                             "violations", json_object_get(answer, "violations")));
    return status;
}

/* The last line, when it has come: how the program ended, or what became of it. */
struct last_line {
    json_t *end;
    char error[256];
};

static bool take_line(void *arg, const json_t *line)
{
    struct last_line *last = arg;

    print_output(line, "stdout", STDOUT_FILENO);
    print_output(line, "stderr", STDERR_FILENO);
    if (json_object_get(line, "violations"))
        last->end = json_deep_copy(line);
    (void)snprintf(last->error, sizeof(last->error), "%s", cli_text(line, "error"));
    return true;
}

/* Its exit status; or CLI_CANNOT and so on, with *e. */
static int run_lines(struct api *a, const char *path, const json_t *body, struct err *e)
{
    struct last_line last = {0};
    int status = CLI_CANNOT;

    if (api_lines(a, path, body, LINE_MAX_BYTES, take_line, &last, e) != ERR_OK) {
        status = status_of_refusal(e);
    } else if (last.end) {
        status = status_of(last.end);
        print_violations(last.end);
        print_reason(last.end);
    } else {
        err_set(e, ERR_UNAVAILABLE, "%s",
                last.error[0] ? last.error : "the server did not say how the command ended");
    }
    json_decref(last.end);
    return status;
}

int exec_with_policy(const struct cli *c, struct api *a, const struct api_sandbox *s,
                     const json_t *process, uint64_t timeout_ms, struct err *e)
{
    json_t *body = make_body(c, process, s->user, timeout_ms, e), *answer = NULL;
    char path[128];
    int status;

    if (!body)
        return CLI_USAGE;
    (void)snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/exec", s->id);
    a->answer_ms = timeout_ms ? timeout_ms + EXTRA_MS : 0;
    if (!c->json) {
        json_object_set_new(body, "stream", json_true());
        status = run_lines(a, path, body, e);
    } else if (api_call(a, "POST", path, body, &answer, e) == ERR_OK) {
        status = print_json(answer, s);
    } else {
        status = status_of_refusal(e);
    }
    a->answer_ms = 0;
    json_decref(body);
    json_decref(answer);
    return status;
}
