#pragma once
/* The value of Content-Disposition, as Go's mime.FormatMediaType writes it. Pure. */

#include "base/buf.h"

/* Appends "inline" with the name of a file: a token as it is, other ASCII quoted, the rest by RFC
 * 2231. 0 or -errno of buf. */
int files_disposition(struct buf *out, const char *name);
