#pragma once
/* A tenant's name as a part of a file's name. cayd's tenants are a-z, 0-9 and '-'; every byte but
 * letters, digits, '-' and '_' is written as %XX, so that no tenant's name becomes a path. */

#include <stdbool.h>
#include <stddef.h>

/* Cut where it does not fit. */
void audit_name_put_tenant(const char *tenant, char *out, size_t size);

/* The tenant that the first n bytes of text stand for; false: they stand for none, or out is too
 * small. */
bool audit_name_read_tenant(const char *text, size_t n, char *out, size_t size);
