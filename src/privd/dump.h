#pragma once
/* DUMP: a KEEP of a sandbox's memory, too (kept.h). That memory is in the host's twice meanwhile,
 * so there are few at a time, shared out by the accounts that the peer names (base/share.h): a
 * tenant whose dumps take long holds back its own alone. */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/reply.h"
#include "runtime/task.h"

#include <stdint.h>

struct privd;
struct slot;

#define DUMPS_MAX 4u /* at a time, of the whole server */

/* A place for a dump that is under way. */
struct dumper {
    struct privd *privd;
    struct slot *slot; /* NULL: none; it is SLOT_DUMPING */
    uint32_t number;
    uint32_t account; /* of the request */
    struct reply_to requester;
    struct task task;
    struct loop_source source;
    struct loop_timer timer;
};

/* At the start. */
void dump_init(struct privd *p);

void dump_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m);

/* s is being killed: what works on its dump ends, and its requester is told. */
void dump_forget(struct slot *s);
