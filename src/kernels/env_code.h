#pragma once
/* Code of a language that sets environment variables of the kernel's own process. Names and values
 * are given as data and never as code: quotes, newlines and any Unicode in them stay what they
 * are. */

#include "base/err.h"

#include <jansson.h>

/* ERR_INVALID: the language has no way known here, or no variable with such a name, with the
 * reason for the client that asks for them. */
enum err_code env_check(const char *language, const json_t *vars, struct err *e);

/* vars: names to strings, or to null for "unset"; those that the language cannot have are left out.
 * A malloc'd text; NULL: the language has no way known here (then its variables are those of its
 * start), or memory is out. */
char *env_code(const char *language, const json_t *vars);

/* Values for the variables of vars as this program's environment has them. A new object for
 * env_code, or NULL. */
json_t *env_restored(const json_t *vars);
