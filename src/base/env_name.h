#pragma once
/* The name of an environment variable, as any peer may give one: the one rule for all who take
 * them. A name reaches execve(2) as NAME=VALUE. Pure. */

#include <stdbool.h>

/* Not empty, and without '=': POSIX.1, "Environment Variables". Without control characters too,
 * which would break the lines of what shows an environment. Any other byte is the program's own
 * matter. */
bool env_name_is_valid(const char *name);
