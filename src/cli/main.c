/* cay: the command line. main() parses by the tables of commands.c and calls one function.
 * Order: the command's name, its options and arguments by the table, the settings' file where
 * the command wants it, the function; its result is the exit status. A mistake in any of them
 * ends the program with a hint before anything was done. */
#include "cli/cli.h"
#include "cli/terminal.h"

#include <curl/curl.h>
#include <locale.h>
#include <signal.h>
#include <string.h>

/* -- parsing ----------------------------------------------------------------------------------- */

static const struct cli_option *find_in(const struct cli_option *options, const char *name,
                                        size_t len, char short_name)
{
    for (; options && options->name; options++) {
        if (short_name ? options->short_name == short_name
                       : strlen(options->name) == len && strncmp(options->name, name, len) == 0)
            return options;
    }
    return NULL;
}

static const struct cli_option *find_option(const struct cli *c, const char *name, size_t len,
                                            char short_name)
{
    const struct cli_option *o = NULL;

    if (c->command)
        o = find_in(c->command->options, name, len, short_name);
    return o ? o : find_in(cli_global_options, name, len, short_name);
}

static int add_given(struct cli *c, const struct cli_option *o, const char *value)
{
    if (c->given_count == CLI_MAX_GIVEN)
        return cli_usage(c, "more than %d options", CLI_MAX_GIVEN);
    c->given[c->given_count].option = o;
    c->given[c->given_count++].value = value;
    return 0;
}

/* Parses an argument that begins with "--". *i moves on when the value is the next argument. */
static int parse_long(struct cli *c, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2, *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const struct cli_option *o = find_option(c, name, len, 0);

    if (!o)
        return cli_usage(c, "unknown option --%.*s", (int)len, name);
    if (!o->meta)
        return equals ? cli_usage(c, "--%s takes no value", o->name) : add_given(c, o, "");
    if (equals)
        return add_given(c, o, equals + 1);
    if (*i + 1 >= argc)
        return cli_usage(c, "--%s needs a value (%s)", o->name, o->meta);
    return add_given(c, o, argv[++*i]);
}

/* Parses an argument of letters: -it, -u root, -uroot. */
static int parse_short_options(struct cli *c, int argc, char **argv, int *i)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct cli_option *o = find_option(c, NULL, 0, *p);
        int r;

        if (!o)
            return cli_usage(c, "unknown option -%c", *p);
        if (o->meta && p[1])
            return add_given(c, o, p + 1);
        if (o->meta && *i + 1 >= argc)
            return cli_usage(c, "-%c needs a value (%s)", *p, o->meta);
        r = add_given(c, o, o->meta ? argv[++*i] : "");
        if (r != 0 || o->meta)
            return r;
    }
    return 0;
}

/* Options and operands after the command's name; operands are moved to the front of argv. */
static int parse_rest(struct cli *c, int argc, char **argv)
{
    bool raw = false;

    c->operands = argv;
    for (int i = 0; i < argc; i++) {
        int r = 0;

        if (c->command->raw_after >= 0 && c->operand_count > c->command->raw_after)
            raw = true;
        if (!raw && strcmp(argv[i], "--") == 0)
            raw = true;
        else if (!raw && strncmp(argv[i], "--", 2) == 0)
            r = parse_long(c, argc, argv, &i);
        else if (!raw && argv[i][0] == '-' && argv[i][1])
            r = parse_short_options(c, argc, argv, &i);
        else
            c->operands[c->operand_count++] = argv[i];
        if (r != 0)
            return r;
    }
    if (cli_flag(c, "help"))
        return 0;
    if (c->operand_count < c->command->operands_min)
        return cli_usage(c, "%s needs %s", c->command->name, c->command->operands);
    if (c->command->operands_max >= 0 && c->operand_count > c->command->operands_max)
        return cli_usage(c, "too many arguments: %s", c->operands[c->command->operands_max]);
    return 0;
}

/* The command that argv begins with, of one or two words; *used is how many. */
static const struct cli_command *find_command(int argc, char **argv, int *used)
{
    for (const struct cli_command *k = cli_command_next(NULL); argc > 0 && k;
         k = cli_command_next(k)) {
        const char *space = strchr(k->name, ' ');
        size_t first = space ? (size_t)(space - k->name) : strlen(k->name);

        if (strlen(argv[0]) != first || strncmp(argv[0], k->name, first) != 0)
            continue;
        if (space && (argc < 2 || strcmp(argv[1], space + 1) != 0))
            continue;
        *used = space ? 2 : 1;
        return k;
    }
    return NULL;
}

/* Global options may stand before the command. Returns the index of the command's name. */
static int parse_leading(struct cli *c, int argc, char **argv, int *status)
{
    int i = 1;

    for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        *status = argv[i][1] == '-' ? parse_long(c, argc, argv, &i)
                                    : parse_short_options(c, argc, argv, &i);
        if (*status != 0)
            break;
    }
    return i;
}

/* As it was given on the command line, or NULL. */
static const char *given_config(const struct cli *c, int argc, char **argv)
{
    const char *path = cli_value(c, "config");

    for (int i = 1; c->command->takes_settings && !path && i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0)
            path = argv[i] + 9;
        else if (strcmp(argv[i], "--config") == 0)
            path = argv[i + 1];
    }
    return path;
}

/* Reads the configuration; commands that take settings also eat them from the arguments here. */
static int load_settings(struct cli *c, int *argc, char **argv)
{
    char *none[] = {argv[0], NULL};
    int one = 1, before = *argc;
    const char *given = given_config(c, *argc, argv), *named = getenv("CAY_CONFIG");
    struct err e = {.code = ERR_OK};

    c->settings_path = given ? given : named ? named : SETTINGS_PATH;
    if (settings_load(&c->settings, given ? given : named, c->command->takes_settings ? argc : &one,
                      c->command->takes_settings ? argv : none, &e) == ERR_OK) {
        c->settings_given = *argc < before;
        return 0;
    }
    if (given && access(given, R_OK) < 0)
        err_hint(&e, "--config names that file; without it, /etc/cay/cay.conf is read");
    else if (!given && named && access(named, R_OK) < 0)
        err_hint(&e, "CAY_CONFIG names that file; `unset CAY_CONFIG`, or name another");
    else
        err_hint(&e, "`cay help settings` lists what can be set.");
    cli_fail(c, &e);
    return CLI_USAGE;
}

/* The second words of a group's commands: "build, ls, rm"; "" when it is no group. */
static void group_words(const char *word, char *out, size_t size)
{
    size_t len = strlen(word), used = 0;

    out[0] = '\0';
    for (const struct cli_command *k = cli_command_next(NULL); k; k = cli_command_next(k))
        if (strncmp(k->name, word, len) == 0 && k->name[len] == ' ' && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     k->name + len + 1);
}

static int no_command(struct cli *c, int argc, char **argv, int at)
{
    char words[256];

    if (cli_flag(c, "version"))
        return cmd_version(c);
    if (at >= argc) {
        cli_print_overview(cli_flag(c, "help") ? stdout : stderr);
        return cli_flag(c, "help") ? CLI_OK : CLI_USAGE;
    }
    group_words(argv[at], words, sizeof(words));
    if (!words[0])
        return cli_usage(c, "unknown command \"%s\"", argv[at]);
    if (cli_flag(c, "help") || (at + 1 < argc && strcmp(argv[at + 1], "--help") == 0))
        return cli_print_group(argv[at]) ? CLI_OK : CLI_USAGE;
    if (at + 1 < argc)
        return cli_usage(c, "\"%s %s\" is no command; %s goes on with one of %s", argv[at],
                         argv[at + 1], argv[at], words);
    return cli_usage(c, "\"%s\" goes on with one of %s", argv[at], words);
}

static int run(struct cli *c, int argc, char **argv)
{
    int status = 0, used = 0, at = parse_leading(c, argc, argv, &status), rest;

    if (status != 0)
        return status;
    if (cli_flag(c, "generate"))
        return cli_generate(cli_value(c, "generate"), stdout);
    c->command = find_command(argc - at, argv + at, &used);
    if (!c->command || cli_flag(c, "version"))
        return no_command(c, argc, argv, at);
    at += used - 1; /* argv[at] takes the place of the program's name */
    rest = argc - at;
    /* Settings leave the arguments before the rest is parsed; without them --config may stand
     * anywhere, but not in the command that exec and run are given. */
    if (c->command->takes_settings)
        status = load_settings(c, &rest, argv + at);
    if (status == 0)
        status = parse_rest(c, rest - 1, argv + at + 1);
    if (status == 0 && !c->command->takes_settings)
        status = load_settings(c, &rest, argv + at);
    if (status != 0)
        return status;
    c->json = cli_flag(c, "json");
    if (cli_flag(c, "help")) {
        cli_print_help(c->command, stdout);
        return CLI_OK;
    }
    return c->command->run(c);
}

int main(int argc, char **argv)
{
    struct cli c = {.program = argv[0]};
    int status;

    setlocale(LC_ALL, "");
    terminal_guard();
    signal(SIGPIPE, SIG_IGN);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    status = run(&c, argc, argv);
    settings_free(&c.settings);
    curl_global_cleanup();
    if (fflush(stdout) != 0 && status == CLI_OK)
        status = CLI_FAILED;
    return status;
}
