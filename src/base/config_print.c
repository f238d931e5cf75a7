/* The table of settings in words: for errors (which values are allowed), --help, the example
 * file and the manual page. Called by config.c when a value is refused, by the daemons' --help
 * and by `cay --generate`. All are derived from the same rows, so that a setting has one
 * description; values are printed in the units in which they may be typed (1G, 10m). */

#include "base/config.h"

#include "base/config_internal.h"

#include <inttypes.h>
#include <string.h>

const struct config_unit config_byte_units[CONFIG_BYTE_UNITS] = {
    {"", 1},
    {"K", UINT64_C(1) << 10},
    {"M", UINT64_C(1) << 20},
    {"G", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},
};

const struct config_unit config_time_units[CONFIG_TIME_UNITS] = {
    {"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

/* -- parts of sentences ------------------------------------------------------------------------ */

/* 1G rather than 1073741824, so that what is allowed can be typed as it is shown. */
static void format_amount(uint64_t amount, const struct config_unit *units, size_t n, char *out,
                          size_t size)
{
    const struct config_unit *best = NULL;

    for (size_t i = 0; i < n; i++)
        if (units[i].name[0] && amount >= units[i].factor && amount % units[i].factor == 0 &&
            (!best || units[i].factor > best->factor))
            best = &units[i];
    if (best)
        snprintf(out, size, "%" PRIu64 "%s", amount / best->factor, best->name);
    else
        snprintf(out, size, "%" PRIu64, amount);
}

static void format_bound(const struct config_key *k, int64_t bound, char *out, size_t size)
{
    if (k->type == CONFIG_BYTES)
        format_amount((uint64_t)bound, config_byte_units, CONFIG_BYTE_UNITS, out, size);
    else if (k->type == CONFIG_TIME_MS)
        format_amount((uint64_t)bound, config_time_units, CONFIG_TIME_UNITS, out, size);
    else
        snprintf(out, size, "%" PRId64, bound);
}

void config_format_allowed(const struct config_key *k, char *out, size_t size)
{
    static const char *const what[] = {
        [CONFIG_STRING] = "text",
        [CONFIG_BOOL] = "true or false",
        [CONFIG_INT] = "a whole number",
        [CONFIG_BYTES] = "a size such as 512M or 2G",
        [CONFIG_TIME_MS] = "a time such as 500ms, 30s, 5m, 1h or 2d",
    };
    char low[32], high[32];

    if (k->type == CONFIG_STRING || k->type == CONFIG_BOOL) {
        snprintf(out, size, "%s", what[k->type]);
        return;
    }
    format_bound(k, k->min, low, sizeof(low));
    format_bound(k, k->max, high, sizeof(high));
    snprintf(out, size, "%s from %s to %s", what[k->type], low, high);
}

static char option_char(char c)
{
    return c == '_' ? '-' : c;
}

void config_option_name(const struct config_key *k, char *out, size_t size)
{
    snprintf(out, size, "%s-%s", k->section, k->key);
    for (; *out; out++)
        *out = option_char(*out);
}

/* -- what the table says ----------------------------------------------------------------------- */

static void print_wrapped(FILE *out, const char *prefix, const char *text, size_t width)
{
    size_t column = 0;

    while (*text) {
        size_t word = strcspn(text, " ");

        if (column > 0 && column + 1 + word > width) {
            fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%.*s", column ? " " : prefix, (int)word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void config_print_example(const struct config_key *keys, FILE *out)
{
    const char *section = "";

    fputs(
        "# Configuration of cay. Every key is shown with its default; remove the # to change it.\n"
        "# Every key is also an option: [listen] port = 3000 is --listen-port=3000.\n"
        "# Lines that begin with # or ; are comments. Unknown keys refuse to start.\n",
        out);
    for (const struct config_key *k = keys; k->section; k++) {
        char allowed[128];

        if (strcmp(section, k->section) != 0)
            fprintf(out, "\n[%s]\n", k->section);
        section = k->section;
        config_format_allowed(k, allowed, sizeof(allowed));
        fputc('\n', out);
        print_wrapped(out, "# ", k->help, 96);
        fprintf(out, "# Allowed: %s.\n", allowed);
        fprintf(out, "#%s = %s\n", k->key, k->initial ? k->initial : "");
    }
}

void config_print_help(const struct config_key *keys, FILE *out)
{
    for (const struct config_key *k = keys; k->section; k++) {
        char name[CONFIG_NAME_SIZE];

        config_option_name(k, name, sizeof(name));
        fprintf(out, "  --%s=%s\n", name, k->meta);
        print_wrapped(out, "        ", k->help, 88);
        if (k->initial)
            fprintf(out, "        Default: %s\n", k->initial);
    }
}

/* A dot or quote at the start of a line would be a request; a backslash begins an escape. */
static void print_roff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
    fputc('\n', out);
}

void config_print_mdoc(const struct config_key *keys, FILE *out)
{
    const char *section = "";

    for (const struct config_key *k = keys; k->section; k++) {
        char name[CONFIG_NAME_SIZE], allowed[128];

        if (strcmp(section, k->section) != 0)
            fprintf(out, "%s.Ss [%s]\n.Bl -tag -width Ds\n", section[0] ? ".El\n" : "", k->section);
        section = k->section;
        config_option_name(k, name, sizeof(name));
        fprintf(out, ".It Ic %s No = Ar %s , Fl -%s Ns = Ns Ar %s\n", k->key, k->meta, name,
                k->meta);
        print_roff(out, k->help);
        config_format_allowed(k, allowed, sizeof(allowed));
        fprintf(out, "Allowed: %s.\n", allowed);
        if (k->initial)
            fprintf(out, "Default:\n.Ql %s\n", k->initial);
    }
    if (section[0])
        fputs(".El\n", out);
}
