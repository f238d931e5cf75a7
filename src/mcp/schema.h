#pragma once
/* The members of an object as rows of a table: what a tool takes and what it gives. The JSON Schema
 * that clients are shown and the check of what they send are made of the same rows, so that they
 * cannot differ. Pure. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

enum schema_type {
    SCHEMA_END, /* ends a table */
    SCHEMA_TEXT,
    SCHEMA_CHOICE,  /* one of values, which are separated by '|' */
    SCHEMA_INTEGER, /* of [min, max] */
    SCHEMA_BOOLEAN,
    SCHEMA_ENV,     /* variables: an object of texts */
    SCHEMA_OBJECTS, /* an array of objects; only given, never taken */
    SCHEMA_TYPE_COUNT
};

struct schema_field {
    enum schema_type type;
    const char *name;
    const char *description;
    bool required;
    bool nullable;      /* given: it may be null */
    int64_t min, max;   /* of an integer; bytes of a text or of all of a map (0: SCHEMA_TEXT_MAX) */
    const char *values; /* of a choice */
};

#define SCHEMA_TEXT_MAX  (1024u * 1024u)
#define SCHEMA_MAP_COUNT 1024u

/* A new object, {"type": "object", ...}, without members that are not in the table. require: the
 * name of one more member that is required here; NULL: none. NULL only when memory is out. */
json_t *schema_json(const struct schema_field *fields, const char *require);

/* ERR_INVALID with the member's name and what it has to be. args NULL counts as {}. */
enum err_code schema_check(const struct schema_field *fields, const json_t *args, struct err *e);

/* The text that was sent, after the check; `otherwise` where none was. */
const char *schema_text(const json_t *args, const char *name, const char *otherwise);
int64_t schema_integer(const json_t *args, const char *name, int64_t otherwise);
bool schema_boolean(const json_t *args, const char *name, bool otherwise);
