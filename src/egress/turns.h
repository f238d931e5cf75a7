#pragma once
/* Shares the loop's time among flows whose bytes cost more than a copy: answers that are searched for secrets,
 * and decompressed for it. In one turn of the loop TURNS_BYTES of them are worked on, whichever flows they belong
 * to; a flow that comes when they are used up waits. So other events, a neighbour's first of all, wait for that
 * much work at most, however many such flows there are.
 *
 * Those that wait are served by owner (a sandbox) in rotation, and those of one owner in order of arrival.
 * Owners are told apart by hash (stochastic fairness queueing, McKenney 1990): two in one bucket share its place in the
 * rotation. Nothing is allocated for a flow or an owner. One loop; nothing blocks. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* a turn of the loop; what one call does may exceed it once */
#define TURNS_BYTES   (32u * 1024u)
#define TURNS_BUCKETS 64u

struct turns;

/* Part of what waits; all zero at first, and it outlives its waiting. */
struct turn {
    struct turn *next;
    void (*go)(void *arg); /* once, in a later turn; may wait again */
    void *arg;
    uint64_t owner;
    bool waiting;
};

int turns_new(uv_loop_t *loop, struct turns **out);

/* When nothing waits any more; freed when the loop has turned. NULL is none. */
void turns_free(struct turns *t);

/* May w's owner go on now? False while w waits. t NULL: there is no limit. */
bool turns_may(const struct turns *t, const struct turn *w);

/* So many bytes were worked on. */
void turns_spend(struct turns *t, size_t n);

/* Calls w->go in a turn that has bytes left. */
void turns_wait(struct turns *t, struct turn *w);

/* It waits no more. */
void turns_leave(struct turns *t, struct turn *w);
