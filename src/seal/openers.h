#pragma once
/* Work for each of many numbers, by several threads. */

#include <stdint.h>

#define OPENERS_MAX 4u /* threads, with the caller's; no more than there are processors */

/* 0 or -errno. Called for different numbers at the same time, with an arg of the thread's own. */
typedef int (*openers_work)(void *arg, uint64_t number);

/* Work for each number from first on, and before end, once; each of args has a thread, the first of
 * them this one. Numbers are begun in their order, and none is after one has failed. Returns when
 * all that were begun have ended: 0, or the answer for the lowest that failed, with *failed. */
int openers_run(openers_work work, void *const *args, unsigned n_args, uint64_t first, uint64_t end,
                uint64_t *failed);
