/* `exec` and `run`: a program in a sandbox, with this terminal's input and output (session.h),
 * or with its output collected where --json is given; one with a policy of its own goes by
 * cmd_exec_policy.c. `run` makes the sandbox first and kills it after, also when the program
 * could not be started. The exit status is the program's; 124 to 127 are cli.h's. */

#include "base/io.h"
#include "cli/commands.h"
#include "cli/session.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_CAPTURE (64u << 20)

static int add_env(void *arg, const char *pair)
{
    const char *equals = strchr(pair, '='), *value;
    char name[256];

    snprintf(name, sizeof(name), "%.*s", equals ? (int)(equals - pair) : (int)strlen(pair), pair);
    if (!name[0] || equals == pair)
        return -1;
    value = equals ? equals + 1 : getenv(name);
    return value ? json_object_set_new(arg, name, json_string(value)) : 0;
}

/* `run` has the option too, for the sandbox that it makes. */
static bool wants_policy(const struct cli *c)
{
    return c->command->run == cmd_exec && cli_value(c, "policy");
}

/* The two of a pair that cannot both be meant; NULL: there is none. */
static const char *contradiction(const struct cli *c)
{
    if (cli_flag(c, "tty") && cli_flag(c, "no-tty"))
        return "--tty and --no-tty contradict each other: give one of the two";
    if (cli_flag(c, "interactive") && cli_flag(c, "no-stdin"))
        return "--interactive and --no-stdin contradict each other: give one of the two";
    return NULL;
}

static bool wants_terminal(const struct cli *c)
{
    if (cli_flag(c, "tty"))
        return true;
    return !wants_policy(c) && !c->json && !cli_flag(c, "no-tty") && !cli_flag(c, "no-stdin") &&
           isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static json_t *process_of(const struct cli *c, char **argv, int argc, bool pty, struct err *e)
{
    json_t *args = json_array(), *envs = json_object(), *process;
    const char *term = getenv("TERM"), *cwd = cli_value(c, "cwd");

    if (pty) {
        json_object_set_new(envs, "TERM", json_string(term && term[0] ? term : "xterm-256color"));
        json_object_set_new(envs, "LANG", json_string("C.UTF-8"));
    }
    for (int i = 1; i < argc; i++)
        json_array_append_new(args, json_string(argv[i]));
    if (argc == 0 && pty)
        json_array_append_new(args, json_string("-i"));
    if (argc == 0)
        json_array_append_new(args, json_string("-l"));
    process = json_pack("{s:s, s:o, s:o}", "cmd", argc > 0 ? argv[0] : "/bin/bash", "args", args,
                        "envs", envs);
    if (cwd)
        json_object_set_new(process, "cwd", json_string(cwd));
    /* json_string refuses what is not UTF-8, and leaves a gap. */
    if (json_array_size(args) + 1 < (size_t)argc || !process) {
        json_decref(process);
        err_set(e, ERR_INVALID, "an argument is not valid UTF-8");
        return NULL;
    }
    if (cli_each(c, "env", add_env, envs) == 0)
        return process;
    json_decref(process);
    cli_wrong_option(e, "--env: not NAME=VALUE");
    return NULL;
}

/* -- with --json the output is collected ------------------------------------------------------- */

static json_t *captured(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    size_t len = size < 0 ? 0 : MIN((size_t)size, (size_t)MAX_CAPTURE);
    CLEANUP_FREE char *text = malloc(len + 1);
    json_t *value;

    if (!text || lseek(fd, 0, SEEK_SET) < 0 || io_read_full(fd, text, len) < 0)
        return json_null();
    value = json_stringn(text, len);
    if (value)
        return value;
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] & (char)0x80 ? '?' : text[i];
    return json_stringn(text, len);
}

static int run_captured(struct api *a, struct session_spec *spec, struct err *e)
{
    CLEANUP_CLOSE int out = memfd_create("cay-out", MFD_CLOEXEC);
    CLEANUP_CLOSE int err = memfd_create("cay-err", MFD_CLOEXEC);
    int status;

    if (out < 0 || err < 0) {
        err_set_sys(e, ERR_EXHAUSTED, errno, "cannot collect the output");
        return CLI_CANNOT;
    }
    spec->out_fd = out;
    spec->err_fd = err;
    status = session_run(a, spec, e);
    cli_print_json(json_pack("{s:s, s:i, s:o, s:o, s:s}", "sandboxID", spec->sandbox->id,
                             "exitCode", status, "stdout", captured(out), "stderr", captured(err),
                             "error", e->code == ERR_OK ? "" : e->text));
    e->code = ERR_OK;
    return status;
}

static int run_session(const struct cli *c, struct api *a, const struct api_sandbox *s,
                       const json_t *process, bool pty, struct err *e)
{
    struct session_spec spec = {
        .sandbox = s,
        .process = process,
        .pty = pty,
        .in_fd = cli_flag(c, "no-stdin") ? -1 : STDIN_FILENO,
        .out_fd = STDOUT_FILENO,
        .err_fd = STDERR_FILENO,
    };
    const char *timeout = cli_value(c, "timeout");

    if (timeout && (config_parse_time_ms(timeout, &spec.timeout_ms) < 0 || spec.timeout_ms == 0)) {
        cli_wrong_option(e, "--timeout: \"%s\" is not a time such as 500ms, 30s or 5m", timeout);
        return CLI_USAGE;
    }
    if (wants_policy(c))
        return exec_with_policy(c, a, s, process, spec.timeout_ms, e);
    return c->json ? run_captured(a, &spec, e) : session_run(a, &spec, e);
}

int exec_in(const struct cli *c, struct api *a, const char *id, char **argv, int argc)
{
    bool pty = wants_terminal(c);
    struct err e = {.code = ERR_OK};
    const char *user = cli_value(c, "user");
    struct api_sandbox s;
    json_t *process;
    int status;

    if (wants_policy(c) && (pty || argc == 0)) {
        cli_wrong_option(
            &e, "--policy is for one command without a terminal: its input is read before it "
                "starts");
        return cli_fail_as(c, CLI_USAGE, &e);
    }
    if (api_sandbox_enter(a, id, &s, &e) != ERR_OK)
        return cli_fail_as(c, CLI_CANNOT, &e);
    snprintf(s.user, sizeof(s.user), "%s", user ? user : "");
    process = process_of(c, argv, argc, pty, &e);
    if (!process)
        return cli_fail_as(c, CLI_USAGE, &e);
    status = run_session(c, a, &s, process, pty, &e);
    json_decref(process);
    return e.code == ERR_OK ? status : cli_fail_as(c, status, &e);
}

int cmd_exec(struct cli *c)
{
    struct api a;
    struct err e;
    int status;

    if (contradiction(c))
        return cli_usage(c, "%s", contradiction(c));
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail_as(c, CLI_CANNOT, &e);
    status = exec_in(c, &a, c->operands[0], c->operands + 1, c->operand_count - 1);
    api_close(&a);
    return status;
}

static int run_and_kill(struct cli *c, struct api *a)
{
    const char *template_name = cli_value(c, "template");
    struct err e;
    char id[64];
    int status;

    if (sandbox_create(c, a, template_name ? template_name : "base", id, sizeof(id), &e) != ERR_OK)
        return cli_fail_as(c, CLI_CANNOT, &e);
    status = exec_in(c, a, id, c->operands, c->operand_count);
    /* It may have ended by itself: only a sandbox that stays is worth a word. */
    if (sandbox_kill(a, id, &e) != ERR_OK && e.code != ERR_NOT_FOUND)
        fprintf(stderr, "cay: the sandbox %s is left behind: %s\n", id, e.text);
    return status;
}

int cmd_run(struct cli *c)
{
    struct api a;
    struct err e;
    int status;

    if (contradiction(c))
        return cli_usage(c, "%s", contradiction(c));
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail_as(c, CLI_CANNOT, &e);
    /* From here on a signal waits until there is a session to give it to: otherwise it could leave
     * a sandbox behind that the caller does not know of. */
    session_block_signals();
    status = run_and_kill(c, &a);
    session_unblock_signals();
    api_close(&a);
    return status;
}
