#pragma once
/* The answer where a name is no template's: those that the tenant can begin with, and the next
 * step. */

#include "core/core.h"

/* Sets ERR_NOT_FOUND, and returns it. name NULL: none was given. */
enum err_code template_absent(struct core *c, const char *tenant, const char *name, struct err *e);
