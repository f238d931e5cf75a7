#pragma once
/* Shared by egress.c (connections to the processes of cay-egress) and egress_push.c (the policies
 * that are sent to them). */

#include "core/call.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/egress.h"
#include "core/egress_event_reader.h"
#include "core/sandbox.h"
#include "core/timers.h"

#include <sys/un.h>
#include <uv.h>

#define EGRESS_AGAIN_MS 200u /* after a failure, and between looks for a process that is away */

/* A process of cay-egress: it serves the slots whose number modulo the count is its own. */
struct egress_link {
    struct core *core;
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    uv_pipe_t watch; /* open while it lives; data: the link */
    uv_write_t write;
    bool watching; /* handle is open */
    bool up;       /* it has answered on it */
    bool closing;
    struct egress_event_reader reader;
    struct timer again;
    struct sandbox_obj *first, *last; /* sandboxes whose policies are to be sent */
    unsigned in_flight;
    struct deferred later; /* the rest of the queue, where push_deferred */
    bool push_deferred;
};

struct egress {
    struct egress_uses uses;
    struct egress_link *links;
    unsigned n;
    char bytes[16384]; /* one for all links: each read is taken out at once */
};

/* NULL: there is no cay-egress. */
static inline struct egress_link *egress_link_of(const struct sandbox_obj *o)
{
    struct egress *e = o->core->egress;

    return e ? &e->links[o->s.slot % e->n] : NULL;
}

/* egress_push.c: sends what is queued, as far as it may be sent now. */
void egress_push_queue(struct egress_link *l);

/* All policies of its sandboxes are to be sent: it has begun a life. A transfer under way was begun
 * in the life before. */
void egress_push_again(struct egress_link *l);
