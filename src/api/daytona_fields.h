#pragma once
/* The fields that a body of Daytona's may have. Pure. */

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* A field that is known. Without `what` its caller reads it; with `what` it is refused with that,
 * unless it says nothing (null, false, 0, "", [], {}). */
struct daytona_field {
    const char *name, *what;
};

/* ERR_INVALID for a field of a body that is none of known[n]: passing it over might leave out what
 * narrows the request. */
enum err_code daytona_fields_check(const json_t *body, const struct daytona_field *known, size_t n,
                                   struct err *e);

/* A field that has one value here; otherwise: what its client can do. ERR_INVALID. */
enum err_code daytona_only_read(const json_t *body, const char *name, const char *value,
                                const char *otherwise, struct err *e);
