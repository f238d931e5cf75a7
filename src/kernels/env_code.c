#include "kernels/env_code.h"

#include "base/buf.h"

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

static int r_one(struct buf *b, const char *name, const char *value)
{
    if (!value)
        return buf_printf(b, "Sys.unsetenv(\"%s\")\n", name);
    if (buf_printf(b, "Sys.setenv(%s = \"", name) < 0 || append_escaped(b, value, "\"\\", "\\") < 0)
        return -1;
    return buf_append_str(b, "\")\n");
}

static int each(struct buf *b, const json_t *vars,
                int (*one)(struct buf *b, const char *name, const char *value))
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)vars, name, value)
        if (one(b, name, json_string_value(value)) < 0)
            return -1;
    return 0;
}

char *env_code(const char *language, const json_t *vars)
{
    CLEANUP_BUF struct buf b;
    int ret = -1;

    buf_init(&b, CODE_MAX);
    if (strcmp(language, "python") == 0)
        ret = python(&b, vars);
    else if (strcmp(language, "javascript") == 0 || strcmp(language, "typescript") == 0)
        ret = javascript(&b, vars);
    else if (strcmp(language, "bash") == 0)
        ret = each(&b, vars, bash_one);
    else if (strcmp(language, "r") == 0)
        ret = each(&b, vars, r_one);
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
