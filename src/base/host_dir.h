#pragma once
/* A directory of the host that the operator gives to sandboxes, read-only: one value of [host] in
 * the settings. Pure. */

#include <stdbool.h>
#include <stddef.h>

#define HOST_DIRS_MAX      8
#define HOST_DIR_NAME_SIZE 17  /* NUL included; [a-z0-9][a-z0-9_-]* */
#define HOST_DIR_PATH_SIZE 180 /* NUL included */

struct host_dir {
    char name[HOST_DIR_NAME_SIZE]; /* "": there is none */
    char path[HOST_DIR_PATH_SIZE]; /* absolute, without ':', blanks, empty parts, "." and ".." */
    const char *tenants;           /* in text: names with commas between; NULL: all */
};

/* Reads NAME:PATH or NAME:PATH:TENANT,TENANT. NULL, or its fault; out is untouched then. Its
 * tenants point into text. */
const char *host_dir_parse(const char *text, struct host_dir *out);

bool host_dir_is_for(const struct host_dir *d, const char *tenant);
