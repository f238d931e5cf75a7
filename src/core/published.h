#pragma once
/* The names that are published (publish.h), one row of the store each. They are not resolved
 * here. */

#include "core/build.h"

#define CORE_PUBLISHED_MAX 64u

struct published {
    char names[CORE_PUBLISHED_MAX][CORE_BUILD_NAME_SIZE];
    size_t n;
};

/* After the store is open. */
enum err_code published_init(struct core *c, struct err *e);
void published_free(struct core *c);

/* name: with a tag or not. */
bool published_has(const struct core *c, const char *name);

/* Adds a name without a tag; success where it is there already. ERR_EXHAUSTED. */
enum err_code published_add(struct core *c, const char *name, struct err *e);
enum err_code published_remove(struct core *c, const char *name, struct err *e);

/* The template or snapshot of that name is deleted. */
void published_forget(struct core *c, const char *tenant, const char *name);
