#pragma once
/* RESIZE: other limits for a sandbox that lives. */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/reply.h"
#include "runtime/runtime.h"

struct privd;
struct slot;

/* Of a slot. */
struct resize {
    struct task task;
    struct loop_source source;
    struct loop_timer
        timer; /* it takes too long; or when to look for the end of what was cut off */
    struct reply_to requester;
    struct privsep_limits to;
    uint32_t checks;
    int status;     /* the answer then */
    bool under_way; /* until it is answered */
    bool back;      /* it was cut off: the limits of before are set again */
};

#define RESIZE_NONE ((struct resize){.task = TASK_NONE, .source = LOOP_SOURCE_NONE})

void resize_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                      const struct privsep_msg *m);

/* The sandbox ends: its RESIZE is cancelled, and answered with -ESTALE. */
void resize_forget(struct slot *s);
