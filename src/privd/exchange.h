#pragma once
/* EXPORT and IMPORT: the kept layer of a number as a file for other servers (contract/exchange.h),
 * and back. There is one of both at a time: a job reads or writes the long part, then a task signs
 * or checks it. */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/reply.h"
#include "runtime/runtime.h"

struct privd;

struct exchanger {
    uint32_t number;         /* of what is being exported or imported; 0: nothing */
    struct privsep_msg what; /* as it was asked for */
    struct reply_to requested;
    struct task task;
    struct loop_source source;
};

/* At the start: a key of the operator's that cannot be read is logged. 0: a start passes all the
 * same, as the file is read at each use, and may come later. */
int exchange_check_key(struct privd *p);

void exchange_export_requested(struct privd *p, const struct reply_to *to,
                               const struct privsep_msg *m);
void exchange_import_requested(struct privd *p, const struct reply_to *to,
                               const struct privsep_msg *m);

/* The job ends soon, and nothing comes of it: its requester has gone. */
void exchange_stop(struct privd *p);
