#pragma once
/* The Range header: one range of bytes (RFC 9110 14.1.2). Pure. */

#include <stdint.h>

struct range {
    uint64_t first;
    uint64_t len; /* > 0 */
};

/* value of a Range header for a representation of size bytes. 0 with *out set; -ENOENT when the
 * header must be ignored (another unit, malformed, more than one range): answer 200 with
 * everything; -ERANGE when it cannot be satisfied: answer 416 with Content-Range: "bytes", a star,
 * "/size". */
int range_parse(const char *value, uint64_t size, struct range *out);
