#pragma once
/* Archives in the operator's bucket (contract/bucket.h, docs/archive.md). cay-jobs do the work:
 * privd says which, and that no create begins on an archive that is away. FETCH: some at a time,
 * the others wait for their turn (fetch_turns.h). */

#include "contract/proto.h"
#include "privd/fetch_turns.h"
#include "privd/loop.h"
#include "privd/reply.h"

#include <stdbool.h>

#define BUCKET_SWEEP_FIRST_MS 2000u

struct privd;

struct fetcher {
    struct reply_to requested[PRIVSEP_KEPT_MAX + 1]; /* by number, as below */
    bool leaves[PRIVSEP_KEPT_MAX + 1]; /* it is being removed, and has an object in the bucket */
    struct fetch_turns turns;
    struct loop_timer again, sweep;
    uint64_t sweep_due_ms;
};

void bucket_fetch_requested(struct privd *p, const struct reply_to *to,
                            const struct privsep_msg *m);

/* It ends soon, or has not begun: to be dropped. Its requester is told. */
void bucket_give_up(struct privd *p, const struct privsep_msg *m);
void bucket_stop_fetches(struct privd *p);

/* Objects that no layer has any more are removed, soon or after so long; nothing without a
 * bucket. */
void bucket_sweep(struct privd *p, uint64_t in_ms);

/* The number is being dropped: its object is to go after that. */
void bucket_note_drop(struct privd *p, uint32_t number);

void bucket_leave(struct privd *p);
