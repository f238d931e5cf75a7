#pragma once
/* The operator's file with the keys of the bucket (docs/archive.md): NAME = VALUE on a line, as
 * AWS's own tools have it; other lines are passed over. */

#include "base/util.h"

#define BUCKET_VALUE_SIZE 2048

struct bucket_credentials {
    char key_id[256], secret[256];
    char token[BUCKET_VALUE_SIZE]; /* empty: there is none */
};

/* 0; or -errno and *why, the end of a sentence. The caller wipes *out. */
int bucket_credentials_read(const char *path, struct bucket_credentials *out, const char **why);
