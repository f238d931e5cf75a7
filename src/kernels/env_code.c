#include "kernels/env_code.h"

#include "base/buf.h"
#include "base/util.h"

#include <stdbool.h>
#include <string.h>

#define CODE_MAX (16u * 1024u * 1024u)

/* The text of the variables as JSON, as a string literal. In it are ASCII, \" and \\ alone, which
 * JavaScript and Python read in the same way. */
static char *literal(const json_t *vars)
{
    CLEANUP_FREE char *text = json_dumps(vars, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_t *string = text ? json_string(text) : NULL;
    char *out = string ? json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;

    json_decref(string);
    return out;
}

static int python(struct buf *b, const json_t *vars)
{
    CLEANUP_FREE char *data = literal(vars);

    return !data ? -1
                 : buf_printf(b,
                              "(lambda e, d: [e.pop(k, None) if v is None else "
                              "e.__setitem__(k, v) for k, v in d.items()])"
                              "(__import__('os').environ, __import__('json').loads(%s));",
                              data);
}

static int javascript(struct buf *b, const json_t *vars)
{
    CLEANUP_FREE char *data = literal(vars);

    return !data ? -1
                 : buf_printf(b,
                              "Object.entries(JSON.parse(%s)).forEach(([k, v]) => v === null ? "
                              "delete process.env[k] : process.env[k] = v); undefined",
                              data);
}

/* Puts a backslash before those characters of a text that need one. */
static int append_escaped(struct buf *b, const char *text, const char *special, const char *before)
{
    int ret = 0;

    for (; *text && ret == 0; text++) {
        if (strchr(special, *text))
            ret = buf_append_str(b, before);
        if (ret == 0)
            ret = buf_append(b, text, 1);
    }
    return ret;
}

static int bash_one(struct buf *b, const char *name, const char *value)
{
    if (!value)
        return buf_printf(b, "unset %s\n", name);
    /* A quote inside: end the text, a quoted quote, begin it again. */
    if (buf_printf(b, "export %s='", name) < 0 || append_escaped(b, value, "'", "'\\'") < 0)
        return -1;
    return buf_append_str(b, "'\n");
}

/* As a text a name may be any; as a word it would have to be one of R's names. */
static int r_text(struct buf *b, const char *text)
{
    if (buf_append_str(b, "\"") < 0 || append_escaped(b, text, "\"\\", "\\") < 0)
        return -1;
    return buf_append_str(b, "\"");
}

static int r_one(struct buf *b, const char *name, const char *value)
{
    if (buf_append_str(b, value ? "Sys.setenv(" : "Sys.unsetenv(") < 0 || r_text(b, name) < 0)
        return -1;
    if (value && (buf_append_str(b, " = ") < 0 || r_text(b, value) < 0))
        return -1;
    return buf_append_str(b, ")\n");
}

/* POSIX.1, "Name": what a shell has as a variable. */
static bool is_shell_name(const char *name)
{
    for (const char *p = name; *p; p++)
        if (*p != '_' && !(*p >= 'a' && *p <= 'z') && !(*p >= 'A' && *p <= 'Z') &&
            (p == name || *p < '0' || *p > '9'))
            return false;
    return *name != '\0';
}

/* A language sets all of them by one text, or one after the other. */
static const struct way {
    const char *language;
    int (*all)(struct buf *b, const json_t *vars);
    int (*one)(struct buf *b, const char *name, const char *value);
    bool (*is_name)(const char *name); /* NULL: any is */
} ways[] = {
    {"python", .all = python},
    {"javascript", .all = javascript},
    {"typescript", .all = javascript},
    {"bash", .one = bash_one, .is_name = is_shell_name},
    {"r", .one = r_one},
};

static const struct way *way_of(const char *language)
{
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++)
        if (strcmp(ways[i].language, language) == 0)
            return &ways[i];
    return NULL;
}

static bool can_have(const struct way *w, const char *name)
{
    return !w->is_name || w->is_name(name);
}

enum err_code env_check(const char *language, const json_t *vars, struct err *e)
{
    const struct way *w = way_of(language);
    const char *name;
    json_t *value;

    if (!w)
        return err_set(e, ERR_INVALID,
                       "env_vars: how a kernel of %.64s sets variables is not known here: give "
                       "them to the sandbox's create, or set them in the code",
                       language);
    json_object_foreach ((json_t *)(uintptr_t)vars, name, value)
        if (!can_have(w, name))
            return err_set(e, ERR_INVALID, "env_vars: %s has no variable with the name \"%.64s\"",
                           language, name);
    return ERR_OK;
}

static int one_by_one(const struct way *w, struct buf *b, const json_t *vars)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)vars, name, value)
        if (can_have(w, name) && w->one(b, name, json_string_value(value)) < 0)
            return -1;
    return 0;
}

char *env_code(const char *language, const json_t *vars)
{
    const struct way *w = way_of(language);
    CLEANUP_BUF struct buf b;
    int ret = -1;

    buf_init(&b, CODE_MAX);
    if (w)
        ret = w->all ? w->all(&b, vars) : one_by_one(w, &b, vars);
    return ret < 0 ? NULL : buf_take(&b);
}

json_t *env_restored(const json_t *vars)
{
    json_t *out = json_object(), *value;
    const char *name;

    json_object_foreach ((json_t *)(uintptr_t)vars, name, value) {
        const char *own = getenv(name);

        if (out && json_object_set_new(out, name, own ? json_string(own) : json_null()) < 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}
