#include "api/daytona_fields.h"

#include "api/daytona.h"
#include "http/json.h"

#include <stdint.h>
#include <string.h>

#define VALUE_MAX 127

static bool says_nothing(const json_t *value)
{
    const char *text = json_string_value(value);

    switch (json_typeof(value)) {
    case JSON_NULL:
    case JSON_FALSE: return true;
    case JSON_STRING: return text[0] == '\0';
    case JSON_INTEGER:
    case JSON_REAL: return json_number_value(value) == 0;
    case JSON_ARRAY:
    case JSON_OBJECT: return json_array_size(value) == 0 && json_object_size(value) == 0;
    default: return false;
    }
}

static enum err_code check_field(const struct daytona_field *known, size_t n, const char *name,
                                 const json_t *value, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(name, known[i].name) != 0)
            continue;
        if (!known[i].what || says_nothing(value))
            return ERR_OK;
        return err_set(e, ERR_INVALID, "%s: not supported yet by this server: %s", name,
                       known[i].what);
    }
    return err_set(e, ERR_INVALID, "property %.64s should not exist", name);
}

enum err_code daytona_fields_check(const json_t *body, const struct daytona_field *known, size_t n,
                                   struct err *e)
{
    enum err_code rc = ERR_OK;
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)body, name, value)
        if ((rc = check_field(known, n, name, value, e)) != ERR_OK)
            break;
    return rc;
}

enum err_code daytona_only_read(const json_t *body, const char *name, const char *value,
                                const char *otherwise, struct err *e)
{
    const char *text = value;
    enum err_code rc = json_get_str(body, name, NULL, JSON_OPTIONAL, VALUE_MAX, &text, e);

    if (rc != ERR_OK || !*text || strcmp(text, value) == 0)
        return rc;
    err_set(e, ERR_INVALID, "%s: there is only \"%s\" on this server, not \"%.64s\"", name, value,
            text);
    err_hint(e, "leave it out: %s", otherwise);
    return e->code;
}

enum err_code daytona_name_read(const json_t *body, const char **out, struct err *e)
{
    enum err_code rc = json_get_str(body, "name", NULL, JSON_OPTIONAL, CORE_SANDBOX_NAME_SIZE - 1,
                                    out, e);

    for (const char *c = rc == ERR_OK ? *out : NULL; c && *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || *c == '/')
            return err_set(e, ERR_INVALID, "name: must have no blank, slash or control character");
    return rc;
}
