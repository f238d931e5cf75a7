#include "egress/http/held_answer.h"

#include "base/util.h"

#include <errno.h>
#include <stdint.h>

struct held_answers {
    struct share_pool *places;
    struct share_pool *owners; /* as many as are asked for: a reference keeps an owner's names */
};

struct held_answers *held_answers_new(void)
{
    struct held_answers *all = calloc(1, sizeof(*all));

    if (!all)
        return NULL;
    all->places = share_pool_new(HELD_ANSWER_PLACES);
    all->owners = share_pool_new(SIZE_MAX / 2);
    if (all->places && all->owners)
        return all;
    held_answers_free(all);
    return NULL;
}

void held_answers_free(struct held_answers *all)
{
    if (!all)
        return;
    share_pool_free(all->places);
    share_pool_free(all->owners);
    free(all);
}

int held_answer_open(struct held_answer *h, struct held_answers *all, const struct share *like)
{
    *h = (struct held_answer){.all = like ? all : NULL};
    if (!h->all)
        return 0;
    h->owner = share_take_as(all->owners, like);
    return h->owner ? 0 : -ENOMEM;
}

int held_answer_count(struct held_answer *h, size_t bytes)
{
    size_t beyond = bytes - MIN(bytes, (size_t)HELD_ANSWER_FREE_BYTES);
    size_t wanted = (beyond + HELD_ANSWER_PLACE_BYTES - 1) / HELD_ANSWER_PLACE_BYTES;

    for (; h->all && h->places < wanted; h->places++) {
        struct share *one = share_take_as(h->all->places, h->owner);

        if (!one)
            return -ENOBUFS;
        h->share = one;
    }
    for (; h->places > wanted; h->places--)
        share_return(h->share);
    return 0;
}

void held_answer_close(struct held_answer *h)
{
    (void)held_answer_count(h, 0);
    share_return(h->owner);
    *h = (struct held_answer){.all = NULL};
}
