#pragma once
/* Placeholders of secrets in texts: `cay-secret:NAME` and `${e2b.secrets.NAME}`, also as forms and
 * queries have them: `cay-secret%3ANAME`, `%24%7Be2b.secrets.NAME%7D`. Pure. */

#include "base/buf.h"

#include <stdbool.h>

struct placeholder {
    size_t at, len; /* of the whole placeholder */
    const char *name;
    size_t name_len;
    bool encoded; /* as in a form: so must be what is put there */
};

/* The first one in text[0..n). */
bool placeholder_find(const char *text, size_t n, struct placeholder *out);

/* The escaping of a secret where it is put. */
enum placeholder_escape {
    PLACEHOLDER_PLAIN,
    PLACEHOLDER_JSON, /* inside a string */
    PLACEHOLDER_FORM, /* percent-encoded: forms, paths, queries */
    PLACEHOLDER_PLUS  /* the same, as forms do where there are blanks */
};

int placeholder_put(struct buf *b, const char *secret, enum placeholder_escape how) WARN_UNUSED;
