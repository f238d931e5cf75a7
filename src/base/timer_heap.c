#include "base/timer_heap.h"

static unsigned rank(const struct timer_node *t)
{
    return t ? t->rank : 0;
}

/* Puts the shorter side right, where nodes are merged. */
static void balance(struct timer_node *t)
{
    struct timer_node *left = t->left;

    if (rank(left) < rank(t->right)) {
        t->left = t->right;
        t->right = left;
    }
    t->rank = rank(t->right) + 1;
}

/* As deep as both ranks together, which are at most log2(n + 1) each. */
static struct timer_node *merge(struct timer_node *a, struct timer_node *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->at < a->at) {
        struct timer_node *later = a;

        a = b;
        b = later;
    }
    a->right = merge(a->right, b);
    a->right->parent = a;
    balance(a);
    return a;
}

static void add(struct timer_heap *h, struct timer_node *t)
{
    t->left = t->right = t->parent = NULL;
    t->rank = 1;
    h->first = merge(h->first, t);
    h->first->parent = NULL;
    h->n++;
}

void timer_heap_set(struct timer_heap *h, struct timer_node *t, uint64_t at)
{
    timer_heap_remove(h, t);
    t->at = at;
    add(h, t);
}

void timer_heap_remove(struct timer_heap *h, struct timer_node *t)
{
    struct timer_node *parent = t->parent, *heir;

    if (!timer_node_armed(t))
        return;
    heir = merge(t->left, t->right);
    if (heir)
        heir->parent = parent;
    if (!parent)
        h->first = heir;
    else if (parent->left == t)
        parent->left = heir;
    else
        parent->right = heir;
    for (unsigned before; parent; parent = parent->parent) {
        before = parent->rank;
        balance(parent);
        if (parent->rank == before)
            break;
    }
    t->rank = 0;
    h->n--;
}
