/* help and completion: what the tables of the commands say, as text or for a shell. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#define GROUP_MAX 32u /* commands of one group */

static const struct cli_command *find_by_words(char **words, int count)
{
    char name[64];

    snprintf(name, sizeof(name), "%s%s%s", words[0], count > 1 ? " " : "",
             count > 1 ? words[1] : "");
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}

bool cli_print_group(const char *word)
{
    const struct cli_command *members[GROUP_MAX];
    size_t len = strlen(word), found = 0;

    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        if (strncmp(k->name, word, len) == 0 && k->name[len] == ' ' && found < GROUP_MAX)
            members[found++] = k;
    if (found > 0)
        cli_print_help_of_group(members, found, stdout);
    return found > 0;
}

int cmd_help(struct cli *c)
{
    const struct cli_command *k;

    if (c->operand_count == 0) {
        cli_print_overview(stdout);
        return CLI_OK;
    }
    if (strcmp(c->operands[0], "settings") == 0) {
        puts("Settings, in " SETTINGS_PATH " or as options of up, down, status and env; a change\n"
             "takes effect with `cay down` and `cay up`:\n");
        config_print_help(settings_keys, stdout);
        return CLI_OK;
    }
    k = find_by_words(c->operands, c->operand_count);
    if (k) {
        cli_print_help(k, stdout);
        return CLI_OK;
    }
    if (c->operand_count == 1 && cli_print_group(c->operands[0]))
        return CLI_OK;
    return cli_usage(c, "unknown command \"%s\"", c->operands[0]);
}

int cmd_completion(struct cli *c)
{
    const char *shell = c->operands[0];

    if (strcmp(shell, "bash") != 0 && strcmp(shell, "zsh") != 0 && strcmp(shell, "fish") != 0)
        return cli_usage(c, "\"%s\" is none of bash, zsh, fish", shell);
    return cli_generate(shell, stdout);
}
