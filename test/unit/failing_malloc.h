#pragma once
/* malloc(3) and its like for a whole test program, of which the n-th call, or all from it on, can be made to fail:
 * those that the program's own code makes in one thread, and jansson's after json_wipe_frees, not those of other
 * libraries, which have their own ways when memory is out. Counts what is held, so that a leak is seen. glibc only. */

#include <stdbool.h>
#include <stddef.h>

/* Calls of this thread are counted from now on, and the n-th fails (from 1; 0: none); for_good: all after it too. */
void failing_malloc_begin(size_t n, bool for_good);

/* None fails any more. true: one has failed since failing_malloc_begin. */
bool failing_malloc_end(void);

/* How many blocks are held that this thread's own code asked for since the program's start. */
size_t failing_malloc_held(void);

/* The first thing that a program does. */
void failing_malloc_init(void);
