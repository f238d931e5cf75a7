#include "mcp/schema.h"

#include "http/json.h"

#include <string.h>

/* -- shown ------------------------------------------------------------------------------------- */

static json_t *choices(const char *values)
{
    json_t *all = json_array();

    for (size_t n; *values; values += n + (values[n] == '|')) {
        n = strcspn(values, "|");
        json_array_append_new(all, json_stringn(values, n));
    }
    return all;
}

static const char *type_name(enum schema_type type)
{
    switch (type) {
    case SCHEMA_INTEGER: return "integer";
    case SCHEMA_BOOLEAN: return "boolean";
    case SCHEMA_ENV: return "object";
    case SCHEMA_OBJECTS: return "array";
    case SCHEMA_TEXT:
    case SCHEMA_CHOICE: return "string";
    case SCHEMA_END:
    case SCHEMA_TYPE_COUNT: break;
    }
    return "null";
}

static json_t *field_json(const struct schema_field *f)
{
    json_t *o = json_object();

    if (f->nullable)
        json_object_set_new(o, "type", json_pack("[s, s]", type_name(f->type), "null"));
    else
        json_object_set_new(o, "type", json_string(type_name(f->type)));
    if (f->type == SCHEMA_CHOICE)
        json_object_set_new(o, "enum", choices(f->values));
    if (f->type == SCHEMA_INTEGER && f->max > f->min) {
        json_object_set_new(o, "minimum", json_integer(f->min));
        json_object_set_new(o, "maximum", json_integer(f->max));
    }
    if (f->type == SCHEMA_TEXT && f->max > 0)
        json_object_set_new(o, "maxLength", json_integer(f->max));
    if (f->type == SCHEMA_ENV)
        json_object_set_new(o, "additionalProperties", json_pack("{s:s}", "type", "string"));
    if (f->type == SCHEMA_OBJECTS)
        json_object_set_new(o, "items", json_pack("{s:s}", "type", "object"));
    json_object_set_new(o, "description", json_string(f->description));
    return o;
}

json_t *schema_json(const struct schema_field *fields, const char *require)
{
    json_t *properties = json_object(), *required = json_array();

    for (const struct schema_field *f = fields; f->type != SCHEMA_END; f++) {
        json_object_set_new(properties, f->name, field_json(f));
        if (f->required || (require && strcmp(require, f->name) == 0))
            json_array_append_new(required, json_string(f->name));
    }
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required",
                     required, "additionalProperties", 0);
}

/* -- checked ----------------------------------------------------------------------------------- */

static bool is_choice(const char *values, const char *text)
{
    size_t len = strlen(text);

    for (size_t n; *values; values += n + (values[n] == '|')) {
        n = strcspn(values, "|");
        if (n == len && memcmp(values, text, n) == 0)
            return true;
    }
    return false;
}

static enum err_code check_text(const struct schema_field *f, const json_t *value, struct err *e)
{
    size_t max = f->max > 0 ? (size_t)f->max : SCHEMA_TEXT_MAX;

    if (!json_is_string(value))
        return err_set(e, ERR_INVALID, "\"%s\" must be a text", f->name);
    if (f->type == SCHEMA_CHOICE && !is_choice(f->values, json_string_value(value)))
        return err_set(e, ERR_INVALID, "\"%s\" must be one of %s", f->name, f->values);
    if (json_string_length(value) > max)
        return err_set(e, ERR_INVALID, "\"%s\" has %zu bytes, and may have %zu", f->name,
                       json_string_length(value), max);
    return ERR_OK;
}

static enum err_code check_value(const struct schema_field *f, const json_t *value, struct err *e)
{
    switch (f->type) {
    case SCHEMA_TEXT:
    case SCHEMA_CHOICE: return check_text(f, value, e);
    case SCHEMA_INTEGER:
        if (json_is_integer(value) && json_integer_value(value) >= f->min &&
            json_integer_value(value) <= f->max)
            return ERR_OK;
        return err_set(e, ERR_INVALID, "\"%s\" must be a whole number of %lld to %lld", f->name,
                       (long long)f->min, (long long)f->max);
    case SCHEMA_BOOLEAN:
        if (json_is_boolean(value))
            return ERR_OK;
        return err_set(e, ERR_INVALID, "\"%s\" must be true or false", f->name);
    case SCHEMA_ENV:
        if (!json_is_object(value))
            return err_set(e, ERR_INVALID, "\"%s\" must be an object of texts", f->name);
        return json_check_env(value, f->name, SCHEMA_MAP_COUNT,
                              f->max > 0 ? (size_t)f->max : SCHEMA_TEXT_MAX, e);
    case SCHEMA_OBJECTS:
    case SCHEMA_END:
    case SCHEMA_TYPE_COUNT: break;
    }
    return err_set(e, ERR_INVALID, "\"%s\" cannot be given", f->name);
}

static const struct schema_field *find(const struct schema_field *fields, const char *name)
{
    for (const struct schema_field *f = fields; f->type != SCHEMA_END; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

/* With those that there are: a model corrects itself by them. */
static enum err_code unknown_argument(const struct schema_field *fields, const char *name,
                                      struct err *e)
{
    char known[160] = "";
    size_t used = 0;

    for (const struct schema_field *f = fields; f->type != SCHEMA_END && used < sizeof(known); f++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
                                 f->name);
    return err_set(e, ERR_INVALID, "there is no argument \"%.32s\" here; there are: %s", name,
                   known);
}

enum err_code schema_check(const struct schema_field *fields, const json_t *args, struct err *e)
{
    const char *name;
    json_t *value;

    if (args && !json_is_object(args))
        return err_set(e, ERR_INVALID, "the arguments must be an object");
    json_object_foreach ((json_t *)args, name, value) {
        const struct schema_field *f = find(fields, name);

        if (!f)
            return unknown_argument(fields, name, e);
        if (json_is_null(value) && !f->required)
            continue;
        if (check_value(f, value, e) != ERR_OK)
            return e->code;
    }
    for (const struct schema_field *f = fields; f->type != SCHEMA_END; f++)
        if (f->required && !json_object_get(args, f->name))
            return err_set(e, ERR_INVALID, "\"%s\" is missing: %s", f->name, f->description);
    return ERR_OK;
}

const char *schema_text(const json_t *args, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(args, name));

    return text ? text : otherwise;
}

int64_t schema_integer(const json_t *args, const char *name, int64_t otherwise)
{
    const json_t *value = json_object_get(args, name);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

bool schema_boolean(const json_t *args, const char *name, bool otherwise)
{
    const json_t *value = json_object_get(args, name);

    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}
