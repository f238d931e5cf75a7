#pragma once
/* Paths as clients write them, turned into absolute, lexically clean ones. Pure: touches no file.
 * path_resolve is declared in agent.h.
 *
 * The rules are E2B's: an empty path is the default working directory, a relative one starts at the
 * user's home (never at the working directory), "~" and "~/x" are the home, "~other" is an error.
 * Cleaning is lexical, like Go's path/filepath.Clean: "a/../b" is "b" whatever a is. */

#include "agent/common/agent.h"

/* Cleans an absolute path into out. -EINVAL when it is not absolute, -ENAMETOOLONG. */
int path_clean(const char *path, char out[static AGENT_PATH_SIZE]) WARN_UNUSED;

/* The last element of a clean absolute path ("/" for the root): a pointer into path. */
const char *path_base(const char *path);

/* Its directory, cleaned, into out. path must be clean and absolute. */
void path_dir(const char *path, char out[static AGENT_PATH_SIZE]);

/* dir + "/" + name into out; dir is clean. -ENAMETOOLONG. */
int path_join(const char *dir, const char *name, char out[static AGENT_PATH_SIZE]) WARN_UNUSED;
