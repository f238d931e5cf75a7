#pragma once
/* Shared by the commands of `cay`: the tables that describe them, their options, and how they
 * end.
 *
 * A single table (commands.c, commands_*.c) describes every command with its options and examples;
 * it is the source of parsing, help, man pages and completions (generate.c). A command is a
 * function that gets what was parsed and returns the exit status. Everything may block: this is a
 * program for people and scripts, single-threaded. */

#include "base/err.h"
#include "base/settings.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Exit statuses, documented in cay(1). exec and run use 124 to 127 for cay's own trouble, so that
 * they do not mix with what the command itself returns. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_TIMEOUT = 124,    /* exec, run: --timeout ended the command */
    CLI_CANNOT = 125,     /* exec, run: cay or the server failed, the sandbox ended or was paused */
    CLI_NOT_RUN = 126,    /* exec, run: the program could not be started */
    CLI_NO_PROGRAM = 127, /* exec, run: there is no such program */
    CLI_SIGNALLED = 128   /* + signal number */
};

struct cli_option {
    char short_name; /* 0: none */
    const char *name;
    const char *meta; /* NULL: takes no value */
    const char *help;
    const char *complete; /* "sandbox", "template", "file", "shell" or NULL */
};

struct cli_example {
    const char *line, *what;
};

struct cli;

struct cli_command {
    const char *name;                   /* "create", "template build" */
    const char *operands;               /* "SANDBOX [COMMAND [ARGUMENT...]]" */
    const char *summary;                /* one line, without a full stop */
    const char *text;                   /* paragraphs separated by an empty line; NULL: none */
    const struct cli_option *options;   /* ends with a NULL name; NULL: none */
    const struct cli_example *examples; /* ends with a NULL line; NULL: none */
    int operands_min, operands_max;     /* max -1: any number */
    int raw_after;        /* from this operand on nothing is an option; -1: never so */
    bool takes_settings;  /* also --listen-port and so on */
    const char *complete; /* the operands, as in cli_option */
    int (*run)(struct cli *c);
};

#define CLI_MAX_GIVEN 256

struct cli {
    const struct cli_command *command;
    struct {
        const struct cli_option *option;
        const char *value;
    } given[CLI_MAX_GIVEN];
    size_t given_count;
    char **operands;
    int operand_count;
    struct settings settings;
    const char *settings_path; /* the file, which may be absent */
    bool settings_given;       /* some of them on the command line */
    bool json;
    const char *program; /* argv[0] */
};

/* Each command in the order of help: the first after NULL, NULL after the last. */
const struct cli_command *cli_command_next(const struct cli_command *k);
extern const struct cli_option cli_global_options[]; /* allowed with every command */

/* Value of an option (the last one given), or NULL. */
const char *cli_value(const struct cli *c, const char *name);
bool cli_flag(const struct cli *c, const char *name);

/* Of an answer's member; "" when it is absent, or no text. */
const char *cli_text(const json_t *o, const char *key);

/* Adds name=value to a path's query. -1: value holds what nothing that is meant here does. */
int cli_add_query(char *path, size_t size, const char *name, const char *value);

/* Goes into a path as it is: a tenant's name, a key's id. */
bool cli_is_plain_name(const char *text);

/* Calls f for each value of an option that may be repeated, until it returns other than 0. */
int cli_each(const struct cli *c, const char *name, int (*f)(void *arg, const char *value),
             void *arg);

/* Text and hint on stderr. */
void cli_print_error(const struct err *e);

/* The code of an error about an option's value, which ends in cli_fail: of these programs alone, so
 * that no server's answer has it. */
#define CLI_ERR_WRONG_OPTION ((enum err_code)ERR_CODE_COUNT)

/* The text begins with the option: "--ttl: ...". Returns CLI_ERR_WRONG_OPTION. */
enum err_code cli_wrong_option(struct err *e, const char *fmt, ...) PRINTF(2, 3);

/* Prints "cay: text" and the hint to standard error ({"error": ...} to standard output with --json)
 * and returns CLI_FAILED, or CLI_USAGE where the value of an option is wrong (cli_wrong_option). */
int cli_fail(const struct cli *c, const struct err *e);
int cli_fail_as(const struct cli *c, int status, const struct err *e);

/* Prints a usage error and where to read more; returns CLI_USAGE. */
int cli_usage(const struct cli *c, const char *fmt, ...) PRINTF(2, 3);

/* Prints a JSON value with a newline to standard output and drops the reference. */
void cli_print_json(json_t *value);

/* A line for people on standard error; nothing with --json or --quiet. */
void cli_note(const struct cli *c, const char *fmt, ...) PRINTF(2, 3);

/* generate.c */
void cli_print_help(const struct cli_command *command, FILE *out);
/* The options of every command once, behind all of them. */
void cli_print_help_of_group(const struct cli_command *const *commands, size_t n, FILE *out);
void cli_print_overview(FILE *out);

/* The help of each command of a group ("template"), to standard output. False: it is no group. */
bool cli_print_group(const char *word);
int cli_generate(const char *what, FILE *out); /* man, man5, bash, zsh, fish, conf */

/* The commands, by file. */
int cmd_up(struct cli *c);
int cmd_down(struct cli *c);
int cmd_status(struct cli *c);
int cmd_debug(struct cli *c);
int cmd_env(struct cli *c);
int cmd_doctor(struct cli *c);
int cmd_create(struct cli *c);
int cmd_exec(struct cli *c);
int cmd_run(struct cli *c);
int cmd_cp(struct cli *c);
int cmd_ls(struct cli *c);
int cmd_kill(struct cli *c);
int cmd_pause(struct cli *c);
int cmd_archive(struct cli *c);
int cmd_resume(struct cli *c);
int cmd_fork(struct cli *c);
int cmd_rollback(struct cli *c);
int cmd_resize(struct cli *c);
int cmd_volume_create(struct cli *c);
int cmd_volume_ls(struct cli *c);
int cmd_volume_rm(struct cli *c);
int cmd_snapshot_create(struct cli *c);
int cmd_snapshot_ls(struct cli *c);
int cmd_snapshot_rm(struct cli *c);
int cmd_snapshot_export(struct cli *c);
int cmd_snapshot_import(struct cli *c);
int cmd_logs(struct cli *c);
int cmd_top(struct cli *c);
int cmd_template_build(struct cli *c);
int cmd_template_ls(struct cli *c);
int cmd_template_export(struct cli *c);
int cmd_template_import(struct cli *c);
int cmd_template_limits(struct cli *c);
int cmd_template_publish(struct cli *c);
int cmd_template_push(struct cli *c);
int cmd_template_rm(struct cli *c);
int cmd_tenant_ls(struct cli *c);
int cmd_tenant_ceiling(struct cli *c);
int cmd_tenant_quota(struct cli *c);
int cmd_tenant_usage(struct cli *c);
int cmd_key_create(struct cli *c);
int cmd_key_ls(struct cli *c);
int cmd_key_revoke(struct cli *c);
int cmd_policy_show(struct cli *c);
int cmd_policy_set(struct cli *c);
int cmd_policy_check(struct cli *c);
int cmd_policy_explain(struct cli *c);
int cmd_policy_learned(struct cli *c);
int cmd_policy_ask(struct cli *c);
int cmd_denials(struct cli *c);
int cmd_secret_set(struct cli *c);
int cmd_secret_ls(struct cli *c);
int cmd_secret_rm(struct cli *c);
int cmd_audit(struct cli *c);
int cmd_audit_verify(struct cli *c);
int cmd_events(struct cli *c);
int cmd_webhook_create(struct cli *c);
int cmd_webhook_ls(struct cli *c);
int cmd_webhook_rm(struct cli *c);
int cmd_webhook_deliveries(struct cli *c);
int cmd_webhook_retry(struct cli *c);
int cmd_webhook_ping(struct cli *c);
int cmd_mcp(struct cli *c);
int cmd_completion(struct cli *c);
int cmd_version(struct cli *c);
int cmd_help(struct cli *c);
