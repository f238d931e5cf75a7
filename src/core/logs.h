#pragma once
/* The last lines that were written about a sandbox, for its owner. */

#include "base/util.h"

struct sandbox_obj;

void logs_add(struct sandbox_obj *o, const char *level, const char *fmt, ...) PRINTF(3, 4);
void logs_free(struct sandbox_obj *o);
