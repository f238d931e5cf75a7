/* Shared by every command: the options that it was given, and how it ends (an error, a mistake in
 * its use, JSON, a note). Knows no table of commands. */
#include "cli/cli.h"
#include "cli/terminal.h"

#include <stdarg.h>
#include <string.h>

const char *cli_value(const struct cli *c, const char *name)
{
    for (size_t i = c->given_count; i-- > 0;)
        if (strcmp(c->given[i].option->name, name) == 0)
            return c->given[i].value;
    return NULL;
}

bool cli_flag(const struct cli *c, const char *name)
{
    return cli_value(c, name) != NULL;
}

const char *cli_text(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text ? text : "";
}

int cli_add_query(char *path, size_t size, const char *name, const char *value)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_:.,";
    size_t n = strlen(path);
    int wanted;

    if (strspn(value, plain) != strlen(value))
        return -1;
    wanted = snprintf(path + n, size - n, "%c%s=%s", strchr(path, '?') ? '&' : '?', name, value);
    return wanted < (int)(size - n) ? 0 : -1;
}

bool cli_is_plain_name(const char *text)
{
    return text[0] && strlen(text) < 64 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(text);
}

int cli_each(const struct cli *c, const char *name, int (*f)(void *arg, const char *value),
             void *arg)
{
    for (size_t i = 0; i < c->given_count; i++) {
        int r = 0;

        if (strcmp(c->given[i].option->name, name) == 0)
            r = f(arg, c->given[i].value);
        if (r != 0)
            return r;
    }
    return 0;
}

void cli_print_error(const struct err *e)
{
    terminal_put(stderr, "cay: ", e->text);
    if (e->hint[0])
        terminal_put(stderr, "\n     ", e->hint);
    putc('\n', stderr);
}

int cli_fail_as(const struct cli *c, int status, const struct err *e)
{
    if (c->json) {
        cli_print_json(
            json_pack("{s:{s:s, s:s, s:s}}", "error", "code",
                      err_code_name(e->code == CLI_ERR_WRONG_OPTION ? ERR_INVALID : e->code),
                      "message", e->text, "hint", e->hint));
        return status;
    }
    cli_print_error(e);
    return status;
}

int cli_fail(const struct cli *c, const struct err *e)
{
    return cli_fail_as(c, e->code == CLI_ERR_WRONG_OPTION ? CLI_USAGE : CLI_FAILED, e);
}

enum err_code cli_wrong_option(struct err *e, const char *fmt, ...)
{
    char text[sizeof(e->text)];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(e, CLI_ERR_WRONG_OPTION, "%s", text);
}

int cli_usage(const struct cli *c, const char *fmt, ...)
{
    char text[1024]; /* has words of the command line, which may be a script's */
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    terminal_put(stderr, "cay: ", text);
    if (c->command)
        fprintf(stderr, "\n     Usage: cay %s %s; more with `cay help %s`.\n", c->command->name,
                c->command->operands, c->command->name);
    else
        fputs("\n     `cay help` lists the commands.\n", stderr);
    return CLI_USAGE;
}

void cli_print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | terminal_json_flags(stdout));
    fputc('\n', stdout);
    json_decref(value);
}

void cli_note(const struct cli *c, const char *fmt, ...)
{
    char text[4096];
    va_list ap;

    if (c->json || cli_flag(c, "quiet"))
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    terminal_put(stderr, "", text);
    fputc('\n', stderr);
}
