#pragma once
/* The fields that a body of Daytona's may have. */

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* ERR_INVALID for a field of a body that is none of known[n]: passing it over might leave out what
 * narrows the request. */
enum err_code daytona_check_fields(const json_t *body, const char *const *known, size_t n,
                                   struct err *e);
