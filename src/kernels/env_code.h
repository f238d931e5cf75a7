#pragma once
/* Code of a language that sets environment variables of the kernel's own process. Values are given
 * as data and never as code: quotes, newlines and any Unicode in them stay what they are. */

#include <jansson.h>

/* vars: names to strings, or to null for "unset". A malloc'd text; NULL: the language has no way
 * known here (then its variables are those of its start), or memory is out. */
char *env_code(const char *language, const json_t *vars);

/* Values for the variables of vars as this program's environment has them. A new object for
 * env_code, or NULL. */
json_t *env_restored(const json_t *vars);
