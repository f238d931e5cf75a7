#include "kernels/result.h"

#include "base/util.h"

#include <string.h>

/* kind: what the clients take there; a value of another kind would break them, and goes to
 * "extra". */
static const struct {
    const char *mime, *name;
    bool object;
} fields[] = {
    {"text/plain", "text", false},        {"text/html", "html", false},
    {"text/markdown", "markdown", false}, {"image/svg+xml", "svg", false},
    {"image/png", "png", false},          {"image/jpeg", "jpeg", false},
    {"application/pdf", "pdf", false},    {"text/latex", "latex", false},
    {"application/json", "json", true},   {"application/javascript", "javascript", false},
    {"e2b/data", "data", true},           {"e2b/chart", "chart", true},
};

/* A text between one pair of quotes is the value of a string: without them. */
static json_t *unquoted(const json_t *text)
{
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);

    if (n >= 2 && (s[0] == '\'' || s[0] == '"') && s[n - 1] == s[0])
        return json_stringn(s + 1, n - 2);
    return json_incref((json_t *)(uintptr_t)text);
}

static const char *name_of(const char *mime, const json_t *value)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (strcmp(fields[i].mime, mime) == 0)
            return json_is_string(value) || (fields[i].object && !json_is_null(value))
                       ? fields[i].name
                       : NULL;
    return NULL;
}

json_t *result_line(const json_t *bundle, bool is_main)
{
    json_t *line = json_pack("{s:s, s:b}", "type", "result", "is_main_result", is_main);
    json_t *extra = json_object(), *value;
    const char *mime;
    int failed = !line || !extra;

    json_object_foreach ((json_t *)(uintptr_t)bundle, mime, value) {
        const char *name = name_of(mime, value);

        if (failed)
            break;
        if (!name)
            failed = json_object_set(extra, mime, value);
        else if (strcmp(name, "text") == 0)
            failed = json_object_set_new(line, name, unquoted(value));
        else
            failed = json_object_set(line, name, value);
    }
    if (!failed && json_object_set(line, "extra", extra) < 0)
        failed = 1;
    json_decref(extra);
    if (!failed)
        return line;
    json_decref(line);
    return NULL;
}
