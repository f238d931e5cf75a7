#pragma once
/* RESIZE: other limits for a sandbox that lives. */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/request.h"
#include "runtime/runtime.h"

struct privd;
struct slot;

#define RESIZE_PARALLEL 8u /* of all sandboxes at a time */

/* Of a slot; task.pid -1: none is under way. */
struct resize {
    struct task task;
    struct loop_source source;
    struct loop_timer timer; /* it takes too long */
    struct reply_to requester;
    struct privsep_limits to;
    bool undone; /* it took too long: the limits of before are set again */
};

#define RESIZE_NONE ((struct resize){.task = TASK_NONE, .source = LOOP_SOURCE_NONE})

void resize_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                      const struct privsep_msg *m);

/* The sandbox ends: what is under way is cancelled, and answered with -ESTALE. */
void resize_forget(struct slot *s);
