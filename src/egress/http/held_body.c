#include "egress/http/held_body.h"

#include "base/util.h"

bool held_body_take(struct held_body *h, const struct held_bodies *of, size_t bytes)
{
    size_t wanted = bytes / HELD_BODY_PLACE_BYTES + 1;

    *h = (struct held_body){.share = NULL};
    while (of->pool && of->like && h->places < wanted) {
        struct share *one = share_take_as(of->pool, of->like);

        if (!one)
            break;
        h->share = one;
        h->places++;
    }
    if (h->places == wanted)
        return true;
    held_body_return(h);
    return false;
}

void held_body_return(struct held_body *h)
{
    for (; h->places > 0; h->places--)
        share_return(h->share);
    h->share = NULL;
}

void held_body_move(struct held_body *to, struct held_body *from)
{
    held_body_return(to);
    *to = *from;
    *from = (struct held_body){.share = NULL};
}
