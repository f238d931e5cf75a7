#pragma once
/* The words that CRIU is started with for a restore. */

#include "checkpoint/checkpoint.h"
#include "checkpoint/words.h"

/* program: CRIU's name for the program of PID 1. 0 or -errno with *why. */
int restore_options_make(struct words *w, const char *program, struct checkpoint_why *why);
