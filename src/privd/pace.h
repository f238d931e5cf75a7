#pragma once
/* How fast programs of the kernel's BPF machine may be freed by what privd ends.
 *
 * Each cay-init has two (its system call filters), which are freed with the last process of its
 * sandbox. Each free waits in a queue of the whole host for a worker, and a kernel of Linux 6.9 or
 * later can wait for good when all workers of that queue wait for the same mutex
 * (docs/kernel-pools.md, "Filters"). So kills take turns: PACE_BURST programs at once, PACE_PER_MS
 * in each millisecond after that; docs/privsep.md says why these numbers. A kill that finds room is
 * done at once, in its caller; the rest wait in order, on the loop's timer.
 *
 * An item is the owner's memory and must be cancelled before it goes. Nothing blocks. */

#include "privd/loop.h"

#define PACE_BURST     48u
#define PACE_PER_MS    2u
#define PACE_LEVEL_MAX 4096u /* a noted item holds others up for two seconds at most */

struct pace_item {
    struct pace_item *next;
    void (*go)(void *arg); /* NULL: does not wait */
    void *arg;
    uint32_t programs;
};

struct pace {
    struct loop *loop;
    struct loop_timer timer;
    struct pace_item *first, *last;
    uint64_t at_ms; /* of level */
    uint32_t level; /* programs whose free may not have been done */
};

/* Takes programs out of what may be freed now: 0, or how many milliseconds from now it is worth
 * asking again. More than PACE_BURST is given when all before it are done. */
uint32_t pace_try(struct pace *p, uint64_t now_ms, uint32_t programs);

/* So many are freed now, whatever the level: the next caller waits for them. */
void pace_note(struct pace *p, uint64_t now_ms, uint32_t programs);

/* Calls go(arg): from here when there is room and none waits, else from the loop, in order. Nothing
 * when the item waits already. */
void pace_request(struct pace *p, struct pace_item *i, uint32_t programs, void (*go)(void *arg),
                  void *arg);

/* It waits no longer. */
void pace_cancel(struct pace *p, struct pace_item *i);
