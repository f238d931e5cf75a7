#pragma once
/* A COPY step of a build: the archive that the client sent goes into the sandbox in pieces, and a
 * script there unpacks it and puts what is in it where it belongs. So a hostile archive harms the
 * sandbox that unpacks it, and nothing else. */

#include "core/build_run.h"

/* done once, never from inside; r->failed tells how it went. */
void build_copy_begin(struct build_run *r, void (*done)(struct build_run *r));

/* At the end of a run, in whatever state. */
void build_copy_free(struct build_run *r);
