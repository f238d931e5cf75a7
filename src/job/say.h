#pragma once
/* Reports of a job to privd, on descriptor 1, one bounded line each (contract/meta.h), and its
 * log. */

#include "base/util.h"

/* Elsewhere than descriptor 1: for tests, whose report goes there. */
void say_to(int fd);

/* "P <percent> <text>" */
void say_progress(unsigned percent, const char *fmt, ...) PRINTF(2, 3);

/* "E <errno> <text>", also to the log. Returns -errnum (made negative), so that failing functions
 * can return it. Only the first failure is said: later ones are its consequences. */
int say_failure(int errnum, const char *fmt, ...) PRINTF(2, 3);

/* A failure that is none: the job is to be started again. Not to the log. Returns -EAGAIN. */
int say_again(const char *fmt, ...) PRINTF(1, 2);
