#include "seal/ahead.h"

#include "base/util.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <stdlib.h>

/* A waiting thread is woken for BATCH pieces, or places: for each alone it would cost as much as a
 * piece. */
#define PIECES      16u
#define BATCH       8u
#define STACK_BYTES (256u << 10)

struct piece {
    uint8_t *bytes;
    size_t n;
    bool last;
    int rc;
};

struct ahead {
    ahead_make make;
    void *arg;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below but what is in pieces */
    pthread_cond_t changed;
    struct piece pieces[PIECES]; /* filled ones are the maker's no more, until they are taken */
    unsigned first, filled;
    bool held;  /* the first of them is with who took it */
    bool ended; /* the last of them is the last of all */
    bool over;
    size_t bytes_max;
    uint8_t bytes[];
};

static bool ends(const struct piece *p)
{
    return p->rc < 0 || p->last;
}

/* The place for the next one; NULL: no more is wanted. */
static struct piece *await_place(struct ahead *a)
{
    struct piece *p;

    pthread_mutex_lock(&a->lock);
    if (a->filled == PIECES)
        while (a->filled > PIECES - BATCH && !a->over)
            pthread_cond_wait(&a->changed, &a->lock);
    p = a->over ? NULL : &a->pieces[(a->first + a->filled) % PIECES];
    pthread_mutex_unlock(&a->lock);
    return p;
}

static void hand_on(struct ahead *a, bool is_last)
{
    pthread_mutex_lock(&a->lock);
    a->filled++;
    a->ended = is_last;
    if (is_last || a->filled == BATCH)
        pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void *run(void *arg)
{
    struct ahead *a = arg;
    struct piece *p;
    bool more = true;

    while (more && (p = await_place(a)) != NULL) {
        p->rc = a->make(a->arg, p->bytes, &p->n, &p->last);
        more = !ends(p);
        hand_on(a, !more);
    }
    return NULL;
}

static bool start(struct ahead *a)
{
    pthread_attr_t attr;
    bool started = false;

    if (pthread_attr_init(&attr) != 0)
        return false;
    started = pthread_attr_setstacksize(&attr, STACK_BYTES) == 0 &&
              pthread_create(&a->thread, &attr, run, a) == 0;
    pthread_attr_destroy(&attr);
    return started;
}

struct ahead *ahead_begin(ahead_make make, void *arg, size_t bytes_max)
{
    struct ahead *a = calloc(1, sizeof(*a) + PIECES * bytes_max);

    if (!a)
        return NULL;
    a->make = make;
    a->arg = arg;
    a->bytes_max = bytes_max;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    for (size_t i = 0; i < PIECES; i++)
        a->pieces[i].bytes = a->bytes + i * bytes_max;
    if (start(a))
        return a;
    free(a);
    return NULL;
}

int ahead_take(struct ahead *a, const uint8_t **bytes, size_t *n, bool *last)
{
    const struct piece *p;

    pthread_mutex_lock(&a->lock);
    if (a->held && !ends(&a->pieces[a->first])) {
        a->first = (a->first + 1) % PIECES;
        a->filled--;
        if (a->filled == PIECES - BATCH)
            pthread_cond_signal(&a->changed);
    }
    if (a->filled == 0)
        while (a->filled < BATCH && !a->ended)
            pthread_cond_wait(&a->changed, &a->lock);
    a->held = true;
    p = &a->pieces[a->first];
    pthread_mutex_unlock(&a->lock);
    *bytes = p->bytes;
    *n = p->n;
    *last = p->last;
    return p->rc;
}

void ahead_end(struct ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->over = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    OPENSSL_cleanse(a, sizeof(*a) + PIECES * a->bytes_max);
    free(a);
}
