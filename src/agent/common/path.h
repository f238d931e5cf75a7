#pragma once
/* Paths as clients write them, turned into absolute, lexically clean ones. Pure: touches no file.
 *
 * The rules are E2B's: an empty path is the default working directory, a relative one starts at the
 * user's home (never at the working directory), "~" and "~/x" are the home, "~other" is an error.
 * Cleaning is lexical, like Go's path/filepath.Clean: "a/../b" is "b" whatever a is. */

#include "agent/common/agent.h"

/* Resolves a path for a user: "" is default_dir, or the home when that is NULL or ""; "~" and "~/x"
 * are the home, "~other" is ERR_INVALID; relative ones start at the home. Text only, cleaned of
 * ".", ".." and double slashes: no file is looked at. */
enum err_code path_resolve(const char *path, const struct user *u, const char *default_dir,
                           char out[static AGENT_PATH_SIZE], struct err *e);

/* Cleans an absolute path into out. -EINVAL when it is not absolute, -ENAMETOOLONG. */
int path_clean(const char *path, char out[static AGENT_PATH_SIZE]) WARN_UNUSED;

/* The last element of a clean absolute path ("/" for the root): a pointer into path. */
const char *path_base(const char *path);

/* Its directory, cleaned, into out. path must be clean and absolute. */
void path_dir(const char *path, char out[static AGENT_PATH_SIZE]);

/* dir + "/" + name into out; dir is clean. -ENAMETOOLONG. */
int path_join(const char *dir, const char *name, char out[static AGENT_PATH_SIZE]) WARN_UNUSED;
