#pragma once
/* A resolver's answers, for tests; a socket is closed. */

#include "gateway/resolve.h"

#include <unistd.h>

struct gateway_seen {
    unsigned calls;
    struct gateway_answer answer;
};

static inline void gateway_seen_on(void *arg, struct gateway_answer *a)
{
    struct gateway_seen *s = arg;

    s->calls++;
    s->answer = *a;
    if (a->fd >= 0)
        close(a->fd);
}
