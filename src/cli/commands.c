/* The table of commands: parsing, help, man page and completions all come from it. Each group has a
 * file of its own (commands_*.c) with an entry for each command, its options and arguments: a new
 * command is an entry there and a function in a file of its own. The order here is the order of
 * help. */
#include "cli/command_table.h"

const struct cli_option cli_global_options[] = {
    {'h', "help", NULL, "Show what a command does and how to call it.", NULL},
    {0, "json", NULL, "Print JSON, for programs.", NULL},
    {0, "url", "URL", "The server. Default: CAY_URL, E2B_API_URL, the one on this machine.", NULL},
    {0, "api-key", "KEY", "The key. Default: E2B_API_KEY, then the local operator's file.", NULL},
    {0, "ca-file", "FILE",
     "Authorities that https addresses are checked with. Default: CAY_CA_FILE, SSL_CERT_FILE, the "
     "system's.",
     "file"},
    {0, "config", "FILE", "The settings. Default: CAY_CONFIG, then " SETTINGS_PATH ".", "file"},
    {0, "version", NULL, "Show the version.", NULL},
    {0, "generate", "WHAT", "Print man, man5, bash, zsh, fish or conf, for packaging.", NULL},
    {0},
};

/* Commands about this program. */
static const struct cli_command commands_program[] = {
    {
        .name = "doctor",
        .operands = "",
        .summary = "show what this machine can do for cay, and what to install",
        .text = "Exit status 1 when something is missing without which cay cannot start. While a "
                "server runs it is also asked by the names and with the trust that clients of this "
                "shell have. The bucket that the settings name for archives gets a small object, "
                "which is read and removed.",
        .operands_max = 0,
        .raw_after = -1,
        .takes_settings = true,
        .run = cmd_doctor,
    },
    {
        .name = "completion",
        .operands = "bash|zsh|fish",
        .summary = "print the completion of a shell",
        .examples = EXAMPLES({"source <(cay completion bash)", "bash, for this shell"}),
        .operands_min = 1,
        .operands_max = 1,
        .raw_after = -1,
        .complete = "shell",
        .run = cmd_completion,
    },
    {
        .name = "version",
        .operands = "",
        .summary = "show the version",
        .operands_max = 0,
        .raw_after = -1,
        .run = cmd_version,
    },
    {
        .name = "help",
        .operands = "[COMMAND|settings]",
        .summary = "show the commands, one of them, or the settings",
        .operands_max = 2,
        .raw_after = -1,
        .run = cmd_help,
    },
    {0},
};

/* None of them is empty. */
static const struct cli_command *const groups[] = {
    commands_server, commands_sandbox, commands_policy, commands_access, commands_program,
};

const struct cli_command *cli_command_next(const struct cli_command *k)
{
    bool passed = !k;

    if (k && k[1].name)
        return k + 1;
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
        if (passed)
            return groups[i];
        for (const struct cli_command *x = groups[i]; x->name; x++)
            passed |= x == k;
    }
    return NULL;
}
