#pragma once
/* Pieces that a thread makes ahead of their taker, in order: a few at a time. Their bytes are
 * forgotten with them. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ahead;

/* Makes the next piece into `bytes`. 0, with *n of them and whether it is the last; an error is the
 * last too. */
typedef int (*ahead_make)(void *arg, uint8_t *bytes, size_t *n, bool *last);

/* Begins: arg is the thread's until ahead_end. A piece has bytes_max at most. NULL: memory is out,
 * or there is no thread. */
struct ahead *ahead_begin(ahead_make make, void *arg, size_t bytes_max);

/* The next piece, which is there until the next call. Returns what make has answered; the last,
 * again and again. */
int ahead_take(struct ahead *a, const uint8_t **bytes, size_t *n, bool *last);

/* At any time; NULL is none. */
void ahead_end(struct ahead *a);
