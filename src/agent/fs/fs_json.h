#pragma once
/* JSON written straight into a buffer, for answers with very many entries (a jansson tree of
 * 100,000 entries costs some hundred bytes for each value). Pure. */

#include "base/buf.h"

/* A quoted JSON string. File names are bytes: bytes that are not UTF-8 become U+FFFD, since JSON
 * cannot say it otherwise. 0, -EMSGSIZE or -ENOMEM. */
int fs_json_string(struct buf *out, const char *bytes, size_t n) WARN_UNUSED;

/* `"name":"value"` with a comma before it unless out ends with an opening bracket. name is ours and
 * is not escaped. */
int fs_json_field(struct buf *out, const char *name, const char *value) WARN_UNUSED;
