#pragma once
/* A directory of the host that the operator gives to sandboxes, read-only: one value of [host] in
 * the settings. Only host_dir_open looks at the host. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

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

/* Opens it as cay-privd does (O_PATH) with its status: the path that the operator wrote is the
 * directory that is given, so that no link, magic link or other name is followed on the way. -1:
 * *why. */
int host_dir_open(const struct host_dir *d, struct stat *st, const char **why);

/* NULL, or why sandboxes could not read it: they have the rights of all users of the host alone. */
const char *host_dir_unreadable(const struct stat *st);
