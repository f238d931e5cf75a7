#pragma once
/* DUMP: a KEEP of a sandbox's memory, too (kept.h). */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/request.h"
#include "runtime/task.h"

struct privd;
struct slot;

/* The one that is under way. */
struct dumper {
    struct slot *slot; /* NULL: none; it is SLOT_DUMPING */
    uint32_t number;
    struct reply_to requester;
    struct task task;
    struct loop_source source;
    struct loop_timer timer;
};

void dump_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m);

/* s is being killed: what works on its dump ends, and its requester is told. */
void dump_forget(struct slot *s);
