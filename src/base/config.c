/* Values are set in this order, each over the one before: defaults of the table, the file,
 * options. The first mistake ends the reading with its place, and nothing of the values may be
 * used. Called once, at a program's start. */

#include "base/config.h"

#include "base/config_internal.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* More than any honest configuration has; a runaway file is refused instead of read for ever. */
#define MAX_LINES 10000

union value {
    char *text;
    bool flag;
    int64_t number;
    uint64_t amount;
};

/* -- single values ----------------------------------------------------------------------------- */

/* Digits and one of the units, nothing else. 0, -EINVAL, or -ERANGE when it does not fit. */
static int parse_amount(const char *text, const struct config_unit *units, size_t n, uint64_t *out)
{
    unsigned long long number;
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno == ERANGE)
        return -ERANGE;
    for (size_t i = 0; i < n; i++) {
        if (strcasecmp(end, units[i].name) != 0)
            continue;
        return __builtin_mul_overflow(number, units[i].factor, out) ? -ERANGE : 0;
    }
    return -EINVAL;
}

int config_parse_bytes(const char *text, uint64_t *out)
{
    uint64_t amount;
    int r = parse_amount(text, config_byte_units, CONFIG_BYTE_UNITS, &amount);

    if (r == 0)
        *out = amount;
    return r;
}

int config_parse_time_ms(const char *text, uint64_t *out)
{
    uint64_t amount;
    int r = parse_amount(text, config_time_units, CONFIG_TIME_UNITS, &amount);

    if (r == 0)
        *out = amount;
    return r;
}

static int parse_int(const char *text, int64_t *out)
{
    long long number;
    char *end;

    if (!isdigit((unsigned char)text[text[0] == '-']))
        return -EINVAL;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno == ERANGE)
        return -ERANGE;
    *out = number;
    return 0;
}

static int parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return 0;
        }
    }
    return -EINVAL;
}

/* -- values of the table ----------------------------------------------------------------------- */

static int check_range(const struct config_key *k, int64_t number)
{
    return number < k->min || number > k->max ? -ERANGE : 0;
}

static int parse_ranged(const struct config_key *k, const char *text, union value *v)
{
    int r = k->type == CONFIG_INT     ? parse_int(text, &v->number)
            : k->type == CONFIG_BYTES ? config_parse_bytes(text, &v->amount)
                                      : config_parse_time_ms(text, &v->amount);

    if (r < 0)
        return r;
    if (k->type != CONFIG_INT && v->amount > INT64_MAX)
        return -ERANGE;
    return check_range(k, k->type == CONFIG_INT ? v->number : (int64_t)v->amount);
}

static int parse_value(const struct config_key *k, const char *text, union value *v)
{
    if (k->type == CONFIG_BOOL)
        return parse_bool(text, &v->flag);
    if (k->type != CONFIG_STRING)
        return parse_ranged(k, text, v);
    v->text = strdup(text);
    return v->text ? 0 : -ENOMEM;
}

static void store_value(const struct config_key *k, void *out, const union value *v)
{
    void *field = (char *)out + k->offset;

    switch (k->type) {
    case CONFIG_STRING:
        free(*(char **)field);
        *(char **)field = v->text;
        break;
    case CONFIG_BOOL: *(bool *)field = v->flag; break;
    case CONFIG_INT: *(int64_t *)field = v->number; break;
    case CONFIG_BYTES:
    case CONFIG_TIME_MS: *(uint64_t *)field = v->amount; break;
    }
}

/* where is "cay.conf:12: [listen] port" or "--listen-port". */
static enum err_code set_value(const struct config_key *k, const char *text, const char *where,
                               void *out, struct err *e)
{
    char allowed[128];
    union value v;
    int r = parse_value(k, text, &v);

    if (r == -ENOMEM)
        return err_set(e, ERR_EXHAUSTED, "%s: out of memory", where);
    if (r < 0) {
        config_format_allowed(k, allowed, sizeof(allowed));
        return err_set(e, ERR_INVALID, "%s: found \"%.64s\", allowed is %s", where, text, allowed);
    }
    store_value(k, out, &v);
    return ERR_OK;
}

enum err_code config_defaults(const struct config_key *keys, void *out, struct err *e)
{
    for (const struct config_key *k = keys; k->section; k++)
        if (k->type == CONFIG_STRING)
            *(char **)((char *)out + k->offset) = NULL;
    for (const struct config_key *k = keys; k->section; k++) {
        char where[CONFIG_NAME_SIZE];

        if (!k->initial)
            continue;
        snprintf(where, sizeof(where), "default of [%s] %s", k->section, k->key);
        if (set_value(k, k->initial, where, out, e) != ERR_OK) {
            config_free(keys, out);
            return e ? e->code : ERR_INTERNAL;
        }
    }
    return ERR_OK;
}

void config_free(const struct config_key *keys, void *values)
{
    for (const struct config_key *k = keys; k->section; k++) {
        char **text = (char **)((char *)values + k->offset);

        if (k->type == CONFIG_STRING) {
            free(*text);
            *text = NULL;
        }
    }
}

/* -- the file ---------------------------------------------------------------------------------- */

struct parse {
    const struct config_key *keys;
    const char *path;
    FILE *file;
    void *out;
    struct err *e;
    enum err_code code; /* of the first error; nothing is read after it */
    int line;
    unsigned char *seen; /* per key: set in this file before */
};

static bool section_is_known(const struct config_key *keys, const char *name)
{
    for (; keys->section; keys++)
        if (strcmp(keys->section, name) == 0)
            return true;
    return false;
}

static void list_sections(const struct config_key *keys, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (const struct config_key *k = keys; k->section && used < size; k++)
        if (k == keys || strcmp(k->section, k[-1].section) != 0)
            used += (size_t)snprintf(out + used, size - used, "%s[%s]", used ? " " : "",
                                     k->section);
}

static void list_keys(const struct config_key *keys, const char *section, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (const struct config_key *k = keys; k->section && used < size; k++)
        if (strcmp(k->section, section) == 0)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", k->key);
}

static enum err_code refuse_line(struct parse *p, int line)
{
    return err_set(p->e, ERR_INVALID, "%s:%d: neither `key = value` nor [section] nor comment",
                   p->path, line);
}

/* A section line is looked at here and not only with its first key: an unknown section without keys
 * is a mistake too, and inih reads on after one without its end, so that its keys would be refused
 * as those of the section before. */
static void check_section(struct parse *p, const char *line)
{
    const char *end = strchr(line, ']');
    char name[64], known[160];

    if (line[0] != '[')
        return;
    if (!end) {
        p->code = refuse_line(p, p->line);
        return;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(end - line - 1), line + 1);
    if (section_is_known(p->keys, name))
        return;
    list_sections(p->keys, known, sizeof(known));
    p->code = err_set(p->e, ERR_INVALID, "%s:%d: unknown section [%s]; known are %s", p->path,
                      p->line, name, known);
}

static bool line_is_cut(FILE *f, const char *line)
{
    int next;

    if (strchr(line, '\n'))
        return false;
    next = getc(f);
    if (next == EOF)
        return false;
    ungetc(next, f);
    return true;
}

/* fgets, but for a NUL: what a crash left of a file may be zeros, and must not be read as an empty
 * one. */
static bool get_line(struct parse *p, char *line, int size)
{
    int n = 0, c = 0;

    while (n < size - 1 && c != '\n' && (c = getc(p->file)) != EOF) {
        if (c == '\0') {
            p->code = err_set(p->e, ERR_INVALID, "%s:%d: a NUL byte: the file is damaged", p->path,
                              p->line + 1);
            return false;
        }
        line[n++] = (char)c;
    }
    line[n] = '\0';
    return n > 0;
}

/* inih's reader: one line, without its indentation, because inih would take an indented line for a
 * continuation of the value before it. Returning NULL ends the parse. */
static char *read_line(char *line, int size, void *arg)
{
    struct parse *p = arg;

    if (p->code != ERR_OK || !get_line(p, line, size))
        return NULL;
    p->line++;
    if (line_is_cut(p->file, line) || p->line > MAX_LINES) {
        p->code = err_set(p->e, ERR_TOO_LARGE, "%s:%d: more than %d %s", p->path, p->line,
                          p->line > MAX_LINES ? MAX_LINES : size - 2,
                          p->line > MAX_LINES ? "lines" : "characters in one line");
        return NULL;
    }
    memmove(line, line + strspn(line, " \t"), strlen(line + strspn(line, " \t")) + 1);
    check_section(p, line);
    return p->code == ERR_OK ? line : NULL;
}

static int fail(struct parse *p, const char *problem, const char *name, const char *section)
{
    char known[200];

    list_keys(p->keys, section, known, sizeof(known));
    p->code = err_set(p->e, ERR_INVALID, "%s:%d: %s key \"%.64s\" in [%s]; keys there: %s", p->path,
                      p->line, problem, name, section, known);
    return 0;
}

static int handle_key(void *arg, const char *section, const char *name, const char *text)
{
    struct parse *p = arg;
    char where[512];

    if (p->code != ERR_OK)
        return 0;
    if (!section[0]) {
        p->code = err_set(p->e, ERR_INVALID, "%s:%d: key \"%.64s\" stands before any [section]",
                          p->path, p->line, name);
        return 0;
    }
    for (size_t i = 0; p->keys[i].section; i++) {
        const struct config_key *k = &p->keys[i];

        if (strcmp(k->section, section) != 0 || strcmp(k->key, name) != 0)
            continue;
        if (p->seen[i])
            return fail(p, "second value for", name, section);
        p->seen[i] = 1;
        snprintf(where, sizeof(where), "%.256s:%d: [%s] %s", p->path, p->line, section, name);
        p->code = set_value(k, text, where, p->out, p->e);
        return p->code == ERR_OK;
    }
    return fail(p, "unknown", name, section);
}

static size_t count_keys(const struct config_key *keys)
{
    size_t n = 0;

    while (keys[n].section)
        n++;
    return n;
}

static enum err_code parse_file(struct parse *p)
{
    int bad_line = ini_parse_stream(read_line, p, handle_key, p);

    if (p->code != ERR_OK)
        return p->code;
    if (ferror(p->file))
        return err_set_sys(p->e, ERR_INTERNAL, errno, "cannot read %s", p->path);
    if (bad_line > 0)
        return refuse_line(p, bad_line);
    if (bad_line < 0)
        return err_set(p->e, ERR_EXHAUSTED, "%s: out of memory", p->path);
    return ERR_OK;
}

enum err_code config_load_file(const struct config_key *keys, const char *path, void *out,
                               struct err *e)
{
    struct err scratch = {.code = ERR_OK};
    struct parse p = {.keys = keys, .path = path, .out = out, .e = e ? e : &scratch};

    p.file = fopen(path, "re");
    if (!p.file)
        return err_set_sys(e, err_code_from_errno(errno), errno, "cannot open %s", path);
    p.seen = calloc(count_keys(keys) + 1, 1);
    p.code = p.seen ? ERR_OK : err_set(e, ERR_EXHAUSTED, "%s: out of memory", path);
    if (p.code == ERR_OK)
        p.code = parse_file(&p);
    free(p.seen);
    fclose(p.file);
    return p.code;
}

/* -- options ----------------------------------------------------------------------------------- */

/* name is [name, name + len), without the dashes in front. */
static const struct config_key *find_option(const struct config_key *keys, const char *name,
                                            size_t len)
{
    for (; keys->section; keys++) {
        char option[CONFIG_NAME_SIZE];

        config_option_name(keys, option, sizeof(option));
        if (strlen(option) == len && strncmp(option, name, len) == 0)
            return keys;
    }
    return NULL;
}

/* How many arguments it took: 0 (not in the table), 1, 2; -1 on error. */
static int take_option(const struct config_key *keys, char **argv, int left, void *out,
                       struct err *e)
{
    const char *name = argv[0] + 2, *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const struct config_key *k = find_option(keys, name, len);
    const char *text = equals ? equals + 1 : NULL;
    char where[CONFIG_NAME_SIZE];
    int used = 1;

    if (!k && !equals && strncmp(name, "no-", 3) == 0) {
        k = find_option(keys, name + 3, len - 3);
        text = "false";
        if (k && k->type != CONFIG_BOOL)
            k = NULL;
    }
    if (!k)
        return 0;
    snprintf(where, sizeof(where), "--%.*s", (int)MIN(len, sizeof(where) - 3), name);
    if (!text && k->type == CONFIG_BOOL) {
        text = "true";
    } else if (!text && left > 1) {
        text = argv[1];
        used = 2;
    }
    if (!text) {
        err_set(e, ERR_INVALID, "%s needs a value (%s)", where, k->meta);
        return -1;
    }
    return set_value(k, text, where, out, e) == ERR_OK ? used : -1;
}

enum err_code config_load_args(const struct config_key *keys, int *argc, char **argv, void *out,
                               struct err *e)
{
    struct err scratch = {.code = ERR_OK};
    int kept = 1, i = 1;

    if (!e)
        e = &scratch;
    while (i < *argc) {
        int used = 0;

        if (strcmp(argv[i], "--") == 0)
            break;
        if (strncmp(argv[i], "--", 2) == 0)
            used = take_option(keys, argv + i, *argc - i, out, e);
        if (used < 0)
            return e->code;
        if (used == 0)
            argv[kept++] = argv[i++];
        i += used;
    }
    while (i < *argc)
        argv[kept++] = argv[i++];
    *argc = kept;
    argv[kept] = NULL;
    return ERR_OK;
}
