#pragma once
/* The bucket that archives go to (docs/archive.md), as the operator's configuration has it. Pure:
 * no file is looked at. */

#include <stddef.h>

#define BUCKET_TEXT_MAX 255u

struct bucket {
    const char *name; /* NULL: there is none */
    const char *endpoint, *region;
    const char *credentials; /* a file of root's */
    const char *ca_file;     /* NULL: the system's authorities */
};

/* NULL, or its fault, as the end of a sentence; *key is the setting's name then. */
const char *bucket_check(const struct bucket *b, const char **key);
