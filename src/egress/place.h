#pragma once
/* Placeholders of secrets in texts: `cay-secret:NAME` and `${e2b.secrets.NAME}`, also as forms and queries
 * have them: `cay-secret%3ANAME`, `%24%7Be2b.secrets.NAME%7D`. Pure. */

#include "base/buf.h"

#include <stdbool.h>

struct place {
    size_t at, len; /* of the whole placeholder */
    const char *name;
    size_t name_len;
    bool encoded; /* as in a form: so must be what is put there */
};

/* The first one in text[0..n). */
bool place_find(const char *text, size_t n, struct place *out);

/* What a secret has to look like where it is put. */
enum place_escape {
    PLACE_PLAIN,
    PLACE_JSON, /* inside a string */
    PLACE_FORM, /* percent-encoded: forms, paths, queries */
    PLACE_PLUS  /* the same, as forms do where there are blanks */
};

int place_put(struct buf *b, const char *secret, enum place_escape how) WARN_UNUSED;
