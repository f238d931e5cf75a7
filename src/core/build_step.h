#pragma once
/* The steps of a build, each of them commands in its sandbox: see build_run.h. The results that
 * later steps need are in the run: user, folder, variables. */

#include "core/build_run.h"

/* done exactly once, never from inside; r->failed tells how it went. */
void build_step_begin(struct build_run *r, void (*done)(struct build_run *r));
