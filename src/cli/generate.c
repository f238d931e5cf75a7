/* The contents of the tables, for people and for shells: help, man pages, completions, the example
 * file. Called for `--generate=WHAT` by the build and for help by main.c; prints and keeps nothing.
 * The text about a command or a setting is the table's. */
#include "cli/cli.h"
#include "contract/proto.h"

#include <string.h>

/* -- help -------------------------------------------------------------------------------------- */

static void print_text(FILE *out, const char *text, const char *indent, size_t width)
{
    size_t column = 0;

    for (; text && *text; text += strspn(text, " ")) {
        size_t word = strcspn(text, " \n");

        if (column > 0 && column + 1 + word > width) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%.*s", column ? " " : indent, (int)word, text);
        text += word;
        if (strncmp(text, "\n\n", 2) == 0) {
            fputs("\n\n", out);
            text += 2;
            column = 0;
        } else if (*text == '\n') {
            text++;
        }
    }
    fputc('\n', out);
}

static void print_option(FILE *out, const struct cli_option *o)
{
    char left[64];

    snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->short_name ? '-' : ' ',
             o->short_name ? o->short_name : ' ', o->short_name ? ", " : "  ", o->name,
             o->meta ? "=" : "", o->meta ? o->meta : "");
    fprintf(out, "  %-28s %s\n", left, o->help);
}

static void print_options(FILE *out, const char *title, const struct cli_option *options)
{
    if (!options)
        return;
    fprintf(out, "\n%s:\n", title);
    for (; options->name; options++)
        print_option(out, options);
}

static void print_help(const struct cli_command *command, FILE *out, bool with_common)
{
    fprintf(out, "cay %s %s\n\n  %s\n", command->name, command->operands, command->summary);
    if (command->text) {
        fputc('\n', out);
        print_text(out, command->text, "  ", 96);
    }
    print_options(out, "Options", command->options);
    if (with_common)
        print_options(out, "With every command", cli_global_options);
    if (command->takes_settings)
        fputs("\nSettings are options too, such as --listen-port=4000: `cay help settings`.\n",
              out);
    if (command->examples)
        fputs("\nExamples:\n", out);
    for (const struct cli_example *x = command->examples; x && x->line; x++)
        fprintf(out, "  %-48s # %s\n", x->line, x->what);
}

void cli_print_help(const struct cli_command *command, FILE *out)
{
    print_help(command, out, true);
}

void cli_print_help_of_group(const struct cli_command *const *commands, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            fputc('\n', out);
        print_help(commands[i], out, false);
    }
    print_options(out, "With every command", cli_global_options);
}

void cli_print_overview(FILE *out)
{
    fputs("cay: each AI agent its own computer: an isolated sandbox on this machine.\n\n"
          "Usage: cay COMMAND [OPTION...]\n\n",
          out);
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        fprintf(out, "  %-18s %s\n", k->name, k->summary);
    fputs("\n`cay help COMMAND` tells more. Start with `cay doctor`, then `cay up`.\n", out);
}

/* -- man pages --------------------------------------------------------------------------------- */

/* Text for mdoc: a backslash begins an escape, and a dot or quote at the start of a line a
 * request. */
static void print_roff(FILE *out, const char *text)
{
    bool start = true;

    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", out);
        start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else if (strncmp(text, "\n\n", 2) == 0) {
            fputs("\n.Pp\n", out);
            text++;
        } else
            fputc(*text, out);
    }
    fputc('\n', out);
}

static void man_option(FILE *out, const struct cli_option *o)
{
    fputs(".It ", out);
    if (o->short_name)
        fprintf(out, "Fl %c , ", o->short_name);
    fprintf(out, "Fl \\-%s", o->name);
    if (o->meta)
        fprintf(out, " Ns = Ns Ar %s", o->meta);
    fputc('\n', out);
    print_roff(out, o->help);
}

static void man_options(FILE *out, const struct cli_option *options)
{
    if (!options || !options->name)
        return;
    fputs(".Bl -tag -width Ds\n", out);
    for (; options->name; options++)
        man_option(out, options);
    fputs(".El\n", out);
}

static void man_command(FILE *out, const struct cli_command *k)
{
    fprintf(out, ".Ss cay %s\n.Nm cay\n.Cm %s\n", k->name, k->name);
    if (k->operands[0])
        fprintf(out, ".Li \"%s\"\n", k->operands);
    fputs(".Pp\n", out);
    print_roff(out, k->summary);
    if (k->text) {
        fputs(".Pp\n", out);
        print_roff(out, k->text);
    }
    man_options(out, k->options);
    for (const struct cli_example *x = k->examples; x && x->line; x++) {
        fputs(".Pp\n", out);
        print_roff(out, x->what);
        fputs(".Dl ", out);
        print_roff(out, x->line);
    }
}

static void man_exit(FILE *out)
{
    fputs(".Sh EXIT STATUS\n.Bl -tag -width Ds\n"
          ".It 0\nDone.\n.It 1\nIt failed; the reason is on standard error.\n"
          ".It 2\nThe command line or the settings are wrong.\n"
          ".It 124 to 127, 128 + N\nOnly\n.Cm exec\nand\n.Cm run :\nsee there.\n.El\n",
          out);
}

static void generate_man(FILE *out)
{
    fputs(".Dd $Mdocdate$\n.Dt CAY 1\n.Os\n.Sh NAME\n.Nm cay\n"
          ".Nd isolated sandboxes for AI agents\n"
          ".Sh SYNOPSIS\n.Nm cay\n.Ar command\n.Op Ar option ...\n"
          ".Sh DESCRIPTION\n.Nm\nstarts and stops a cay server on this machine, and makes and uses "
          "sandboxes on this or another one, over the same HTTP port that the E2B SDKs use.\n"
          ".Pp\nOptions with every command:\n",
          out);
    man_options(out, cli_global_options);
    fputs(".Sh COMMANDS\n", out);
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        man_command(out, k);
    fputs(".Sh ENVIRONMENT\n.Bl -tag -width Ds\n"
          ".It Ev CAY_URL , Ev E2B_API_URL\nThe server.\n"
          ".It Ev E2B_API_KEY\nThe key.\n"
          ".It Ev CAY_CONFIG\nThe settings file.\n.El\n"
          ".Sh FILES\n.Bl -tag -width Ds\n"
          ".It Pa " SETTINGS_PATH "\nSettings; see\n.Xr cay.conf 5 .\n"
          ".It Pa /run/cay/connect\nAddress of the running server, and where its operator's key "
          "is.\n.El\n",
          out);
    man_exit(out);
    fputs(".Sh SEE ALSO\n.Xr cay.conf 5\n", out);
}

static void generate_man5(FILE *out)
{
    fputs(
        ".Dd $Mdocdate$\n.Dt CAY.CONF 5\n.Os\n.Sh NAME\n.Nm cay.conf\n.Nd settings of cay\n"
        ".Sh DESCRIPTION\nAn INI file:\n.Ic [section] ,\nthen\n.Ic key = value ,\none a line. "
        "Lines "
        "that begin with # or ; are comments. Every key is also an option of\n.Cm cay up\nand of\n"
        ".Nm cayd .\nA key that is not known refuses to start, with file and line. "
        "A change takes effect with\n.Cm cay down\nand\n.Cm cay up .\n",
        out);
    config_print_mdoc(settings_keys, out);
    fputs(".Sh FILES\n.Pa " SETTINGS_PATH "\n.Sh SEE ALSO\n.Xr cay 1\n", out);
}

/* -- completions ------------------------------------------------------------------------------- */

_Static_assert(PRIVSEP_LEVEL_COUNT == 3, "a new level: complete it below, at \"level\"");

/* Shell text for where names come from at the time of completion. */
static const char *words_of(const char *complete)
{
    static const struct {
        const char *name, *command;
    } map[] = {
        {"sandbox", "cay ls -q 2>/dev/null"},
        {"template", "cay template ls 2>/dev/null | awk 'NR>1{print $1}'"},
        {"key", "cay key ls 2>/dev/null | awk 'NR>1{print $1}'"},
        {"tenant", "cay tenant ls 2>/dev/null | awk 'NR>1{print $1}'"},
        {"webhook", "cay webhook ls 2>/dev/null | awk 'NR>1{print $1}'"},
        {"shell", "printf '%s\\n' bash zsh fish"},
        {"level", "printf '%s\\n' process gvisor vm"},
    };

    for (size_t i = 0; complete && i < ARRAY_SIZE(map); i++)
        if (strcmp(map[i].name, complete) == 0)
            return map[i].command;
    return NULL;
}

static void bash_words(FILE *out, const struct cli_option *options)
{
    for (; options && options->name; options++)
        fprintf(out, " --%s%s", options->name, options->meta ? "=" : "");
}

static void bash_settings(FILE *out)
{
    for (const struct config_key *k = settings_keys; k->section; k++) {
        fprintf(out, " --%s-", k->section);
        for (const char *p = k->key; *p; p++)
            fputc(*p == '_' ? '-' : *p, out);
        fputc('=', out);
    }
}

static void bash_command(FILE *out, const struct cli_command *k)
{
    fprintf(out, "        \"%s\") options=\"", k->name);
    bash_words(out, k->options);
    bash_words(out, cli_global_options);
    if (k->takes_settings)
        bash_settings(out);
    fputs("\"; ", out);
    if (words_of(k->complete))
        fprintf(out, "words=$(%s); ", words_of(k->complete));
    fputs(";;\n", out);
}

static void generate_bash(FILE *out)
{
    fputs(
        "# bash completion of cay\n_cay() {\n"
        "    local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} options words\n"
        "    case $command in template|key)\n"
        "        if [ \"$COMP_CWORD\" -gt 2 ]; then command=\"$command ${COMP_WORDS[2]}\"; fi ;;\n"
        "    esac\n"
        "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words=\"",
        out);
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        if (!strchr(k->name, ' '))
            fprintf(out, "%s ", k->name);
    fputs("template key\"\n        options=\"", out);
    bash_words(out, cli_global_options);
    fputs("\"\n    fi\n    case $command in\n"
          "        template) words=\"build limits ls rm\" ;;\n        key) words=\"create\" ;;\n",
          out);
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        bash_command(out, k);
    fputs("    esac\n"
          "    case $current in -*) words=$options ;; esac\n"
          "    COMPREPLY=()\n"
          "    while IFS= read -r word; do COMPREPLY+=(\"$word\"); done \\\n"
          "        < <(compgen -W \"$words\" -- \"$current\")\n"
          "    case ${COMPREPLY[0]} in *=) compopt -o nospace ;; esac\n"
          "}\ncomplete -o default -F _cay cay\n",
          out);
}

/* Inside single quotes of zsh's _arguments, brackets and colons mean something too. */
static void zsh_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text))
            fputc('\\', out);
        if (*text == '\'')
            fputs("'\\''", out);
        else
            fputc(*text, out);
    }
}

static void zsh_options(FILE *out, const struct cli_option *options)
{
    for (; options && options->name; options++) {
        fprintf(out, "            '--%s%s[", options->name, options->meta ? "=" : "");
        zsh_text(out, options->help);
        fputc(']', out);
        if (options->meta)
            fprintf(out, ":%s:%s", options->meta,
                    options->complete && strcmp(options->complete, "file") == 0 ? "_files" : "");
        fputs("' \\\n", out);
    }
}

static void zsh_command(FILE *out, const struct cli_command *k)
{
    fprintf(out, "        \"%s\")\n            _arguments \\\n", k->name);
    zsh_options(out, k->options);
    zsh_options(out, cli_global_options);
    if (words_of(k->complete))
        fprintf(out, "            \"*:%s:($(%s))\"", k->complete, words_of(k->complete));
    else
        fputs("            '*:file:_files'", out);
    fputs(" ;;\n", out);
}

static void generate_zsh(FILE *out)
{
    fputs("#compdef cay\n_cay() {\n    local -a commands\n    commands=(\n", out);
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k)) {
        if (strchr(k->name, ' '))
            continue;
        fprintf(out, "        '%s:", k->name);
        zsh_text(out, k->summary);
        fputs("'\n", out);
    }
    fputs("        'template:make, list and remove templates'\n        'key:make API keys'\n    )\n"
          "    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
          "    local command=$words[2]\n"
          "    if [[ $command == (template|key) ]]; then\n"
          "        if (( CURRENT == 3 )); then\n"
          "            [[ $command == key ]] && compadd create || compadd build limits ls rm\n"
          "            return\n"
          "        fi\n"
          "        command=\"$command $words[3]\"\n"
          "    fi\n"
          "    case $command in\n",
          out);
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        zsh_command(out, k);
    fputs("    esac\n}\n_cay \"$@\"\n", out);
}

static void fish_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('\'', out);
}

/* The condition that the words so far are this command. */
static void fish_condition(FILE *out, const struct cli_command *k)
{
    const char *space = strchr(k->name, ' ');

    if (space)
        fprintf(out,
                "complete -c cay -n '__fish_seen_subcommand_from %.*s; and "
                "__fish_seen_subcommand_from %s'",
                (int)(space - k->name), k->name, space + 1);
    else
        fprintf(out, "complete -c cay -n '__fish_seen_subcommand_from %s'", k->name);
}

static void fish_command(FILE *out, const struct cli_command *k)
{
    const char *space = strchr(k->name, ' '), *words = words_of(k->complete);

    if (space)
        fprintf(out, "complete -c cay -f -n '__fish_seen_subcommand_from %.*s' -a %s -d ",
                (int)(space - k->name), k->name, space + 1);
    else
        fprintf(out, "complete -c cay -f -n __fish_use_subcommand -a %s -d ", k->name);
    fish_text(out, k->summary);
    fputc('\n', out);
    for (const struct cli_option *o = k->options; o && o->name; o++) {
        fish_condition(out, k);
        fprintf(out, " -l %s", o->name);
        if (o->short_name)
            fprintf(out, " -s %c", o->short_name);
        fprintf(out, "%s -d ", o->meta ? " -r" : "");
        fish_text(out, o->help);
        fputc('\n', out);
    }
    if (words) {
        fish_condition(out, k);
        fputs(" -f -a ", out);
        fputs("\"(", out);
        for (const char *p = words; *p; p++)
            fprintf(out, "%s%c", *p == '$' || *p == '"' ? "\\" : "", *p);
        fputs(")\"\n", out);
    }
}

static void generate_fish(FILE *out)
{
    fputs("# fish completion of cay\n"
          "complete -c cay -f -n __fish_use_subcommand -a template -d 'make, list, remove "
          "templates'\n"
          "complete -c cay -f -n __fish_use_subcommand -a key -d 'make API keys'\n"
          "complete -c cay -f -n __fish_use_subcommand -a webhook -d 'have events sent'\n",
          out);
    for (const struct cli_option *o = cli_global_options; o->name; o++) {
        fprintf(out, "complete -c cay -l %s%s -d ", o->name, o->meta ? " -r" : "");
        fish_text(out, o->help);
        fputc('\n', out);
    }
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        fish_command(out, k);
}

static void generate_conf(FILE *out)
{
    config_print_example(settings_keys, out);
}

int cli_generate(const char *what, FILE *out)
{
    static const struct {
        const char *name;
        void (*print)(FILE *out);
    } map[] = {{"man", generate_man}, {"man5", generate_man5}, {"bash", generate_bash},
               {"zsh", generate_zsh}, {"fish", generate_fish}, {"conf", generate_conf}};

    for (size_t i = 0; i < ARRAY_SIZE(map); i++) {
        if (strcmp(map[i].name, what) == 0) {
            map[i].print(out);
            return CLI_OK;
        }
    }
    fprintf(stderr, "cay: --generate: \"%s\" is none of man, man5, bash, zsh, fish, conf\n", what);
    return CLI_USAGE;
}
