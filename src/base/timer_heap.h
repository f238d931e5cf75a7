#pragma once
/* Finds the timer that is due first: a leftist heap of nodes that live inside their owners. It
 * allocates nothing, so that arming cannot fail, and each operation takes O(log n) steps at most.
 * An owner takes its node out before its memory goes.
 *
 * Source: C. A. Crane, "Linear Lists and Priority Queues as Balanced Binary Trees", 1972. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timer_node {
    uint64_t at; /* of the owner's clock, in its unit */
    struct timer_node *left, *right, *parent;
    unsigned rank; /* nodes on the shortest way down to a free place; 0: in no heap */
};

struct timer_heap {
    struct timer_node *first; /* the earliest; NULL: none */
    size_t n;
};

static inline bool timer_node_armed(const struct timer_node *t)
{
    return t->rank != 0;
}

/* In, or moved to another time. */
void timer_heap_set(struct timer_heap *h, struct timer_node *t, uint64_t at);

/* Out; nothing when it is not armed. */
void timer_heap_remove(struct timer_heap *h, struct timer_node *t);
