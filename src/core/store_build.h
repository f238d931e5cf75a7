#pragma once
/* The store's rows of builds. */

#include "core/build.h"
#include "core/store.h"

/* A new row, or the row anew; waits until it is on the disk where it is ready, as its snapshot
 * does. */
enum err_code store_build_put(struct store *st, const struct build *b, struct err *e);
enum err_code store_build_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; b and its strings live during the call. Stops when fn fails. */
enum err_code store_build_each(struct store *st,
                               enum err_code (*fn)(void *arg, const struct build *b, struct err *e),
                               void *arg, struct err *e);
