/* process/execute and process/code-run: one command, or one text of a program, to its end. The
 * request is read whole and checked; a command that is too long for an argument is first written
 * to a file by the agent (write_command) and removed by the script that runs it. The script ends
 * its output with a line of a random token and the exit status, so that the status is known also
 * where the output was cut, and no output can pretend to be it. The call is answered once, when
 * the program has ended or its time is over. */

#include "toolbox/process.h"

#include "base/buf.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/toolbox.h"
#include "toolbox/toolbox_internal.h"

#include <stdio.h>
#include <string.h>

#define COMMAND_ARG_MAX  120000u /* of a command that is an argument; a longer one goes by a file */
#define PROGRAM_ARGS_MAX 64u
#define RESULT_MAX       (6u * TOOLBOX_OUTPUT_MAX + 65536u)

/* $1 is the command, $2 the token. Both outputs are one, in their order, as upstream's. */
static const char by_argument[] = "b=/bin/bash; [ -x $b ] || b=/bin/sh\n"
                                  "$b -c \"$1\" 2>&1\n"
                                  "r=$?\n"
                                  "printf '\\036%s %d\\n' \"$2\" $r\n"
                                  "exit $r";
/* $1 is a file with the command. */
static const char by_file[] = "b=/bin/bash; [ -x $b ] || b=/bin/sh\n"
                              "exec 3<\"$1\" || exit 1\n"
                              "rm -f \"$1\"\n"
                              "$b /dev/fd/3 2>&1\n"
                              "r=$?\n"
                              "printf '\\036%s %d\\n' \"$2\" $r\n"
                              "exit $r";

/* $1 is the language, $2 the code or $3 a file with it, $4 the token; the program's own arguments
 * follow. As upstream: programs read from standard input, and TypeScript from a file by ts-node,
 * which npx fetches where it is not there. */
static const char of_code[] =
    "l=$1 c=$2 f=$3 t=$4\n"
    "shift 4\n"
    "[ -z \"$f\" ] || { exec 3<\"$f\" || exit 1; rm -f \"$f\"; }\n"
    "code() { if [ -n \"$f\" ]; then cat <&3; else printf %s \"$c\"; fi; }\n"
    "typescript() {\n"
    "  d=$(mktemp -d) || return 1\n"
    "  code >\"$d/code.ts\"\n"
    "  npx ts-node -T --ignore-diagnostics 5107 -O '{\"module\":\"CommonJS\"}' \"$d/code.ts\" "
    "\"$@\"\n"
    "  r=$?; rm -rf \"$d\"; return $r\n"
    "}\n"
    "case $l in\n"
    "python) code | python3 -u - \"$@\" ;;\n"
    "javascript) { printf 'process.argv.splice(1,1);'; code; } | node - \"$@\" ;;\n"
    "*) typescript \"$@\" ;;\n"
    "esac 2>&1\n"
    "r=$?\n"
    "printf '\\036%s %d\\n' \"$t\" $r\n"
    "exit $r";

struct execution {
    struct toolbox_call *call;
    const char *language; /* NULL: command is one of the shell's, else a program */
    const json_t *argv;   /* of a program; NULL: none */
    char token[TOOLBOX_TOKEN_SIZE];
    char path[64];
    const char *command, *cwd;
    json_t *envs;
    uint64_t timeout_ms;
};

/* -- the answer -------------------------------------------------------------------------------- */

/* A note about omitted output stands in front, where it was; why it was killed, at the end. */
static int put_result(struct buf *b, const struct toolbox_result *r)
{
    static const char note[] = "[the beginning of the output was left out: it is longer than this "
                               "server holds]\n";
    CLEANUP_BUF struct buf text = {0};
    int rc = 0;

    if (!r->truncated && !r->reason)
        return toolbox_put_text(b, "result", r->out[0], r->len[0]);
    buf_init(&text, RESULT_MAX);
    if (r->truncated)
        rc = buf_append_str(&text, note);
    if (rc == 0)
        rc = buf_append(&text, r->out[0], r->len[0]);
    if (rc == 0 && r->reason)
        rc = buf_printf(&text, "%s[%s]\n",
                        text.len > 0 && text.data[text.len - 1] != '\n' ? "\n" : "", r->reason);
    return rc == 0 ? toolbox_put_text(b, "result", text.data, text.len) : rc;
}

static void reply(struct toolbox_call *c, const struct toolbox_result *r)
{
    CLEANUP_BUF struct buf b = {0};
    int rc;

    buf_init(&b, RESULT_MAX);
    rc = buf_append_str(&b, "{");
    if (rc == 0)
        rc = put_result(&b, r);
    if (rc == 0)
        rc = buf_printf(&b, ",\"exitCode\":%d,\"truncated\":%s}", r->exit_code,
                        r->truncated ? "true" : "false");
    if (rc == 0)
        toolbox_reply_text(c, b.data, b.len);
    else
        toolbox_fail(c, 503, NULL, "memory is out");
}

static void executed(void *arg, const struct toolbox_result *r, const struct err *why)
{
    struct execution *e = arg;

    if (why)
        toolbox_fail_err(e->call, why);
    else if (r->timed_out)
        toolbox_fail(e->call, 408, "PROCESS_EXECUTION_TIMEOUT",
                     "command execution timeout: it ran for %llu s and was killed",
                     (unsigned long long)e->timeout_ms / 1000);
    else
        reply(e->call, r);
}

/* -- the request ------------------------------------------------------------------------------- */

/* path: a file with the command; NULL: it goes as an argument. */
static void run(struct execution *e, const char *path)
{
    const char *args[5 + PROGRAM_ARGS_MAX] = {path ? path : e->command, e->token};
    const char *script = path ? by_file : by_argument;
    struct toolbox_run r = {.envs = e->envs,
                            .cwd = e->cwd,
                            .timeout_ms = e->timeout_ms,
                            .token = e->token,
                            .done = executed,
                            .arg = e};
    json_t *arg;
    size_t i;

    if (e->language) {
        script = of_code;
        args[0] = e->language;
        args[1] = path ? "" : e->command;
        args[2] = path ? path : "";
        args[3] = e->token;
        json_array_foreach (e->argv, i, arg)
            args[4 + i] = json_string_value(arg);
    }
    toolbox_script(&r, script, args);
    toolbox_run(e->call, &r);
}

static void written(void *arg, const struct http_head *head, const char *body, size_t len,
                    const struct err *why)
{
    struct execution *e = arg;

    if (why || head->status != 200)
        toolbox_fail_file(e->call, head, body, len, why, e->path);
    else if (e->call->x)
        run(e, e->path);
}

/* A kernel takes no argument of more than 128 KiB. */
static void write_command(struct execution *e)
{
    struct toolbox_agent_request r = {.method = "POST",
                                      .body = strdup(e->command),
                                      .body_len = strlen(e->command),
                                      .type = "application/octet-stream",
                                      .max_response_bytes = 65536,
                                      .timeout_ms = e->call->toolbox->config.agent_timeout_ms,
                                      .done = written,
                                      .arg = e};

    snprintf(e->path, sizeof(e->path), "/tmp/.command-%s", e->token);
    if (asprintf(&r.target, "/files?path=%s&username=" TOOLBOX_USER, e->path) < 0)
        r.target = NULL;
    toolbox_agent(e->call, &r);
}

enum err_code toolbox_read_timeout(const json_t *body, uint64_t *out_ms, struct err *e)
{
    const json_t *value = json_object_get(body, "timeout");
    double s = json_number_value(value);

    if (value && !json_is_null(value) && !json_is_number(value))
        return err_set(e, ERR_INVALID, "timeout must be a number of seconds");
    if (s < 0 || s * 1000 > TOOLBOX_RUN_MAX_MS)
        return err_set(e, ERR_INVALID, "timeout must be 0 (none) to %u seconds",
                       TOOLBOX_RUN_MAX_MS / 1000);
    *out_ms = s > 0 ? MAX(1, (uint64_t)(s * 1000)) : 0;
    return ERR_OK;
}

enum err_code toolbox_read_envs(const json_t *body, const char *name, json_t **out, struct err *e)
{
    enum err_code rc = json_get_obj(body, name, NULL, JSON_OPTIONAL, out, e);

    if (rc != ERR_OK || !*out)
        return rc;
    return json_check_env(*out, name, 4096, 1024u * 1024u, e);
}

static enum err_code read_request(struct execution *e, struct err *err)
{
    const json_t *body = e->call->body;
    enum err_code rc = json_get_str(body, "command", NULL, JSON_REQUIRED, TOOLBOX_BODY_MAX_BYTES,
                                    &e->command, err);

    if (rc == ERR_OK && e->command[0] == '\0')
        return err_set(err, ERR_INVALID, "command is required");
    if (rc == ERR_OK)
        rc = json_get_str(body, "cwd", NULL, JSON_OPTIONAL, TOOLBOX_PATH_SIZE - 1, &e->cwd, err);
    if (rc == ERR_OK)
        rc = toolbox_read_envs(body, "envs", &e->envs, err);
    return rc == ERR_OK ? toolbox_read_timeout(body, &e->timeout_ms, err) : rc;
}

static void begin(struct toolbox_call *c,
                  enum err_code (*read)(struct execution *e, struct err *err))
{
    struct execution *e = calloc(1, sizeof(*e));
    struct err err;

    if (!e) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return;
    }
    c->state = e;
    c->state_free = free;
    e->call = c;
    toolbox_token(e->token);
    if (read(e, &err) != ERR_OK)
        toolbox_fail(c, 400, "BAD_REQUEST", "%s", err.text);
    else if (strlen(e->command) > COMMAND_ARG_MAX)
        write_command(e);
    else
        run(e, NULL);
}

void toolbox_execute(struct toolbox_call *c)
{
    begin(c, read_request);
}

/* -- code -------------------------------------------------------------------------------------- */

static enum err_code read_argv(struct execution *e, struct err *err)
{
    json_t *argv = NULL, *arg;
    enum err_code rc = json_get_arr(e->call->body, "argv", NULL, JSON_OPTIONAL, &argv, err);
    size_t i;

    if (rc != ERR_OK)
        return rc;
    if (json_array_size(argv) > PROGRAM_ARGS_MAX)
        return err_set(err, ERR_INVALID, "argv: at most %u", PROGRAM_ARGS_MAX);
    json_array_foreach (argv, i, arg)
        if (!json_is_string(arg) || json_string_length(arg) > COMMAND_ARG_MAX)
            return err_set(err, ERR_INVALID, "argv[%zu] must be text of at most %u bytes", i,
                           COMMAND_ARG_MAX);
    e->argv = argv;
    return ERR_OK;
}

static enum err_code read_code(struct execution *e, struct err *err)
{
    static const char *const languages[] = {"python", "javascript", "typescript"};
    const json_t *body = e->call->body;
    const char *language = "";
    bool known = false;
    enum err_code rc;

    if ((rc = json_get_str(body, "code", NULL, JSON_REQUIRED, TOOLBOX_BODY_MAX_BYTES, &e->command,
                           err)) ||
        (rc = json_get_str(body, "language", NULL, JSON_REQUIRED, 64, &language, err)))
        return rc;
    for (size_t i = 0; i < ARRAY_SIZE(languages); i++)
        known = known || strcmp(language, languages[i]) == 0;
    if (!known)
        return err_set(err, ERR_INVALID,
                       "language must be python, javascript or typescript, not '%.64s'", language);
    e->language = language;
    if ((rc = read_argv(e, err)) || (rc = toolbox_read_envs(body, "envs", &e->envs, err)))
        return rc;
    return toolbox_read_timeout(body, &e->timeout_ms, err);
}

void toolbox_code_run(struct toolbox_call *c)
{
    begin(c, read_code);
}
