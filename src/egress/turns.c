#include "egress/turns.h"

#include "base/util.h"

#include <errno.h>

struct turns {
    uv_prepare_t begin; /* of each turn, before its events */
    uv_idle_t awake;    /* while anything waits: the loop does not sleep */
    size_t left;
    struct turn *first[TURNS_BUCKETS], *last[TURNS_BUCKETS];
    uint64_t busy; /* buckets with something in them */
    unsigned at;   /* the next in the rotation */
    unsigned handles;
};

_Static_assert(TURNS_BUCKETS == 64, "one bit for each");

static unsigned bucket_of(const struct turn *w)
{
    return (unsigned)((w->owner * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

/* The first in a bucket that is not empty, from t->at on. */
static struct turn *take_next(struct turns *t)
{
    uint64_t rotated = t->busy >> t->at | (t->at ? t->busy << (TURNS_BUCKETS - t->at) : 0);
    unsigned b = (t->at + (unsigned)__builtin_ctzll(rotated)) % TURNS_BUCKETS;
    struct turn *w = t->first[b];

    turns_leave(t, w);
    t->at = (b + 1) % TURNS_BUCKETS;
    return w;
}

static void on_awake(uv_idle_t *h)
{
}

static void on_begin(uv_prepare_t *h)
{
    struct turns *t = h->data;

    t->left = TURNS_BYTES;
    /* A flow that waits again without having spent anything does not keep the turn from ending. */
    for (unsigned calls = 0; t->busy && t->left > 0 && calls < TURNS_BUCKETS; calls++) {
        struct turn *w = take_next(t);

        w->go(w->arg);
    }
    if (!t->busy)
        uv_idle_stop(&t->awake);
}

int turns_new(uv_loop_t *loop, struct turns **out)
{
    struct turns *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->left = TURNS_BYTES;
    uv_prepare_init(loop, &t->begin);
    uv_idle_init(loop, &t->awake);
    t->begin.data = t->awake.data = t;
    t->handles = 2;
    uv_prepare_start(&t->begin, on_begin);
    uv_unref((uv_handle_t *)&t->begin); /* it alone is no reason for the loop to go on */
    *out = t;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct turns *t = h->data;

    if (--t->handles == 0)
        free(t);
}

void turns_free(struct turns *t)
{
    if (!t)
        return;
    uv_close((uv_handle_t *)&t->begin, on_closed);
    uv_close((uv_handle_t *)&t->awake, on_closed);
}

bool turns_may(const struct turns *t, const struct turn *w)
{
    return !t || (!w->waiting && t->left > 0);
}

void turns_spend(struct turns *t, size_t n)
{
    if (t)
        t->left -= MIN(n, t->left);
}

void turns_wait(struct turns *t, struct turn *w)
{
    unsigned b = bucket_of(w);

    if (w->waiting)
        return;
    w->waiting = true;
    w->next = NULL;
    if (t->first[b])
        t->last[b]->next = w;
    else
        t->first[b] = w;
    t->last[b] = w;
    t->busy |= UINT64_C(1) << b;
    uv_idle_start(&t->awake, on_awake);
}

void turns_leave(struct turns *t, struct turn *w)
{
    unsigned b = bucket_of(w);
    struct turn **at, *before = NULL;

    if (!w->waiting)
        return;
    for (at = &t->first[b]; *at != w; at = &(*at)->next)
        before = *at;
    *at = w->next;
    if (t->last[b] == w)
        t->last[b] = before;
    if (!t->first[b])
        t->busy &= ~(UINT64_C(1) << b);
    w->waiting = false;
    w->next = NULL;
}
