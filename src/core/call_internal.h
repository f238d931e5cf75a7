#pragma once
/* Shared by call.c and call_agent.c: a call under way is on its core's list. */

#include "base/ids.h"
#include "core/call.h"

struct call {
    struct call *next, **prev;
    struct core *core; /* NULL: ended by core_free; a late answer is only cleaned up */
    char id[IDS_SANDBOX_SIZE];
    void (*cancel)(struct call *call);
};

/* On the list, with a copy of id; call->cancel was set. Off it: call->core is NULL from then on. */
void call_link(struct core *c, struct call *call, const char *id);
void call_unlink(struct call *call);
