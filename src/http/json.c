/* Text goes in through json_parse alone, which bounds nesting before jansson recurses; fields
 * are read by the json_get_* functions, which tell absent from null and from a wrong type; text
 * goes out by json_append_text, which makes valid JSON of any bytes. Memory that is out while
 * jansson reads, makes or writes is json_memory.c's. */

#include "http/json.h"

#include "base/env_name.h"
#include "http/json_memory.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct size {
    size_t depth;  /* the deepest: JSON_MAX_DEPTH + 1 where there is more */
    size_t values; /* at least as many as there are */
};

/* Nesting and number of values, strings left out. jansson recurses per level and takes some hundred
 * bytes for an empty object, so that this bounds its stack and its memory before it runs. */
static struct size measure(const char *text, size_t len)
{
    struct size out = {.values = 1};
    size_t depth = 0;
    bool in_string = false;

    for (size_t i = 0; i < len && out.depth <= JSON_MAX_DEPTH; i++) {
        char c = text[i];

        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            depth++;
            out.depth = MAX(out.depth, depth);
            out.values++;
        } else if (c == ',') {
            out.values++;
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return out;
}

size_t json_values(const char *text, size_t len)
{
    return measure(text, len).values;
}

static bool only_space(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r\n", text[i]) || text[i] == '\0')
            return false;
    return true;
}

json_t *json_load(const char *text, size_t len)
{
    return json_memory_load(text, len, JSON_DECODE_ANY, NULL);
}

static enum err_code parse(const char *text, size_t len, bool empty_ok, size_t max_values,
                           json_t **out, struct err *e)
{
    struct size size = measure(text, len);
    json_error_t why = {0};
    json_t *value;

    if (empty_ok && only_space(text, len))
        value = json_object();
    else if (size.depth > JSON_MAX_DEPTH)
        return err_set(e, ERR_INVALID, "JSON is nested deeper than %d levels", JSON_MAX_DEPTH);
    else if (size.values > max_values)
        return err_set(e, ERR_TOO_LARGE, "JSON of a request may have at most %zu values",
                       max_values);
    else
        value = json_memory_load(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (!value && empty_ok && only_space(text, len))
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    if (!value && json_memory_was_out())
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    if (!value)
        return err_set(e, ERR_INVALID, "JSON, line %d column %d: %s", why.line, why.column,
                       why.text);
    *out = value;
    return ERR_OK;
}

enum err_code json_parse(const char *text, size_t len, bool empty_ok, json_t **out, struct err *e)
{
    return parse(text, len, empty_ok, SIZE_MAX, out, e);
}

enum err_code json_parse_request(const char *text, size_t len, bool empty_ok, json_t **out,
                                 struct err *e)
{
    return parse(text, len, empty_ok, JSON_MAX_VALUES, out, e);
}

static json_t *load_answer(const char *text, size_t len, size_t flags)
{
    struct size size = measure(text, len);

    if (size.depth > JSON_MAX_DEPTH || size.values > JSON_MAX_VALUES + len / JSON_ANSWER_BYTES)
        return NULL;
    return json_memory_load(text, len, flags, NULL);
}

json_t *json_load_answer(const char *text, size_t len)
{
    return load_answer(text, len, 0);
}

json_t *json_load_output(const char *text, size_t len)
{
    return load_answer(text, len, JSON_ALLOW_NUL | JSON_DECODE_ANY);
}

/* Finds a field. ERR_OK with *out NULL when it is absent or null and optional. */
static enum err_code find(const json_t *obj, const char *name, const char *alt, enum json_need need,
                          json_t **out, struct err *e)
{
    json_t *value;

    if (!json_is_object(obj))
        return err_set(e, ERR_INVALID, "an object is needed to hold \"%s\"", name);
    value = json_object_get(obj, name);
    if (!value && alt)
        value = json_object_get(obj, alt);
    if (json_is_null(value))
        value = NULL;
    if (!value && need == JSON_REQUIRED)
        return err_set(e, ERR_INVALID, "\"%s\" is missing", name);
    *out = value;
    return ERR_OK;
}

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
    };

    return names[json_typeof(value)];
}

static enum err_code wrong_type(const char *name, const char *want, const json_t *value,
                                struct err *e)
{
    return err_set(e, ERR_INVALID, "\"%s\" must be %s, not %s", name, want, type_name(value));
}

enum err_code json_get_str(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, size_t max, const char **out, struct err *e)
{
    json_t *value = NULL;
    enum err_code code = find(obj, name, alt, need, &value, e);

    if (code != ERR_OK || !value)
        return code;
    if (!json_is_string(value))
        return wrong_type(name, "a string", value, e);
    if (json_string_length(value) > max)
        return err_set(e, ERR_INVALID, "\"%s\" is longer than %zu bytes", name, max);
    *out = json_string_value(value);
    return ERR_OK;
}

/* Whole numbers may come as 300.0: what a client made of a float is still that number. */
static bool whole_number(const json_t *value, int64_t *out)
{
    double real;

    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value))
        return false;
    real = json_real_value(value);
    if (!(real >= -9007199254740992.0 && real <= 9007199254740992.0) || floor(real) != real)
        return false;
    *out = (int64_t)real;
    return true;
}

enum err_code json_get_int(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, int64_t min, int64_t max, int64_t *out,
                           struct err *e)
{
    json_t *value = NULL;
    int64_t number;
    enum err_code code = find(obj, name, alt, need, &value, e);

    if (code != ERR_OK || !value)
        return code;
    if (json_is_number(value) && !whole_number(value, &number))
        return err_set(e, ERR_INVALID, "\"%s\" must be a whole number", name);
    if (!json_is_number(value))
        return wrong_type(name, "a whole number", value, e);
    if (number < min || number > max)
        return err_set(e, ERR_INVALID, "\"%s\" must be between %lld and %lld, not %lld", name,
                       (long long)min, (long long)max, (long long)number);
    *out = number;
    return ERR_OK;
}

enum err_code json_get_bool(const json_t *obj, const char *name, const char *alt,
                            enum json_need need, bool *out, struct err *e)
{
    json_t *value = NULL;
    enum err_code code = find(obj, name, alt, need, &value, e);

    if (code != ERR_OK || !value)
        return code;
    if (!json_is_boolean(value))
        return wrong_type(name, "true or false", value, e);
    *out = json_is_true(value);
    return ERR_OK;
}

enum err_code json_get_obj(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, json_t **out, struct err *e)
{
    json_t *value = NULL;
    enum err_code code = find(obj, name, alt, need, &value, e);

    if (code != ERR_OK || !value)
        return code;
    if (!json_is_object(value))
        return wrong_type(name, "an object", value, e);
    *out = value;
    return ERR_OK;
}

enum err_code json_get_arr(const json_t *obj, const char *name, const char *alt,
                           enum json_need need, json_t **out, struct err *e)
{
    json_t *value = NULL;
    enum err_code code = find(obj, name, alt, need, &value, e);

    if (code != ERR_OK || !value)
        return code;
    if (!json_is_array(value))
        return wrong_type(name, "an array", value, e);
    *out = value;
    return ERR_OK;
}

enum err_code json_check_str_map(const json_t *obj, const char *what, size_t max_count,
                                 size_t max_bytes, struct err *e)
{
    const char *key;
    json_t *value;
    size_t bytes = 0;

    if (!json_is_object(obj))
        return wrong_type(what, "an object of strings", obj, e);
    if (json_object_size(obj) > max_count)
        return err_set(e, ERR_INVALID, "\"%s\" has more than %zu entries", what, max_count);
    json_object_foreach ((json_t *)obj, key, value) {
        if (!json_is_string(value))
            return err_set(e, ERR_INVALID, "\"%s\": the value of \"%.100s\" must be a string", what,
                           key);
        bytes += strlen(key) + json_string_length(value);
    }
    if (bytes > max_bytes)
        return err_set(e, ERR_INVALID, "\"%s\" is larger than %zu bytes", what, max_bytes);
    return ERR_OK;
}

enum err_code json_check_env(const json_t *obj, const char *what, size_t max_count,
                             size_t max_bytes, struct err *e)
{
    enum err_code rc = json_check_str_map(obj, what, max_count, max_bytes, e);
    const char *name;
    json_t *value;

    if (rc != ERR_OK)
        return rc;
    json_object_foreach ((json_t *)obj, name, value)
        if (!env_name_is_valid(name))
            return err_set(e, ERR_INVALID, "%s: \"%.64s\" is not a variable's name", what, name);
    return ERR_OK;
}

enum err_code json_check_program_env(const json_t *obj, const char *what, size_t max_count,
                                     size_t max_bytes, struct err *e)
{
    const char *name;
    json_t *value;

    if (json_check_env(obj, what, max_count, max_bytes, e) != ERR_OK)
        return e->code;
    json_object_foreach ((json_t *)obj, name, value)
        if (strlen(name) + json_string_length(value) > JSON_VARIABLE_MAX)
            return err_set(
                e, ERR_INVALID,
                "%s: \"%.64s\" is longer than %u bytes: no program can be started with it", what,
                name, JSON_VARIABLE_MAX);
    return ERR_OK;
}

/* Length of the UTF-8 character at s (at most n bytes), or 0. RFC 3629: no surrogates, no long
 * forms. */
static size_t utf8_len(const unsigned char *s, size_t n)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t len;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < len)
        return 0;
    if (s[0] == 0xe0)
        low = 0xa0;
    else if (s[0] == 0xed)
        high = 0x9f;
    else if (s[0] == 0xf0)
        low = 0x90;
    else if (s[0] == 0xf4)
        high = 0x8f;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

/* Output of a command may be megabytes of such bytes, in one turn of the loop: no printf. */
static int append_escaped(struct buf *b, unsigned char c)
{
    static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *at = memchr(named, c, sizeof(named) - 1);
    const char brief[] = {'\\', at ? letters[at - named] : 'u'},
               code[] = {'\\', 'u', '0', '0', (char)('0' + (c >> 4)), "0123456789abcdef"[c & 15]};

    return at ? buf_append(b, brief, sizeof(brief)) : buf_append(b, code, sizeof(code));
}

size_t json_whole_text(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        size_t len = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if (len > back)
            return n - back;
        if ((c & 0xc0) != 0x80)
            return n;
    }
    return n;
}

int json_append_text(struct buf *b, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t from = 0, i = 0;
    int r = buf_append(b, "\"", 1);

    while (i < n && r == 0) {
        size_t len = utf8_len(p + i, n - i);

        if (len > 0 && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\') {
            i += len;
            continue;
        }
        r = buf_append(b, s + from, i - from);
        if (r == 0)
            r = len == 0 ? buf_append(b, "\xef\xbf\xbd", 3) : append_escaped(b, p[i]);
        from = ++i;
    }
    if (r == 0)
        r = buf_append(b, s + from, i - from);
    return r < 0 ? r : buf_append(b, "\"", 1);
}
