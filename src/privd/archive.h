#pragma once
/* ARCHIVE: the layer of a kept number becomes one file (contract/archive.h), which counts as that
 * layer. There is one at a time: a job makes the file, a task signs it and puts it in its place,
 * and where there is a bucket another job sends it there. */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/reply.h"
#include "runtime/runtime.h"

struct privd;

struct archiver {
    uint32_t number; /* of what is being archived; 0: nothing */
    struct reply_to requested;
    bool stop;  /* it is wanted by a create, or to be dropped */
    bool swaps; /* the job has ended; the task is at work */
    struct task task;
    struct loop_source source;
};

void archive_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);
void archive_stop_requested(struct privd *p, const struct reply_to *to,
                            const struct privsep_msg *m);

/* The job of that number (0: of any) ends soon, without an archive. */
void archive_stop(struct privd *p, uint32_t number);

/* The same for the number and owner of a message. 0; -EPERM: it is another owner's. */
int archive_give_up(struct privd *p, const struct privsep_msg *m);
