#pragma once
/* Places for bodies that are held, of one sandbox, for tests that do not look at them. */
#include "egress/http/held_body.h"

#include <stdlib.h>

static inline struct held_bodies held_bodies_of_one(void)
{
    static struct share_pool *flows, *bodies;
    static struct share *like;

    if (!like) {
        flows = share_pool_new(8);
        bodies = share_pool_new(HELD_BODY_PLACES);
        like = flows ? share_take(flows, "t", "s") : NULL;
        if (!like || !bodies)
            abort();
    }
    return (struct held_bodies){bodies, like};
}
