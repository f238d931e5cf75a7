#pragma once
/* COPY: the layer of a sandbox that stands still becomes that of a number, too (kept.h). */

#include "contract/proto.h"
#include "privd/loop.h"
#include "privd/reply.h"
#include "runtime/runtime.h"

struct privd;
struct slot;

/* Copies layers of sandboxes to kept numbers, one after the other: those whose record says
 * KEPT_COPYING. */
struct copier {
    uint32_t number;                     /* which is being made; 0: none */
    uint32_t slot, gen;                  /* of what */
    const struct runtime_driver *driver; /* of its level: it may end meanwhile */
    bool thaw;                           /* it ran, and is to run again */
    bool thawing;                        /* it is told to, and that is not done yet */
    bool over;                           /* status: how it ended; thawing is waited for */
    int status, source_status;
    struct reply_to requested[PRIVSEP_KEPT_MAX + 1]; /* by number */
    struct task task;
    struct loop_source source;
    struct loop_timer timer; /* the next, from outside of whatever ended this one */
};

void copy_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m);

/* How many copies of what is kept by that number were made ahead, for creates. */
uint32_t copy_ahead(const struct privd *p, uint32_t number);

/* s stands still (0), or does not (-errno). */
void copy_frozen(struct slot *s, int status);

/* s, of which a copy may be made, runs again (0), has ended (0), or stands still (-errno). */
void copy_went_on(struct slot *s, int status);

/* Whether s, which stands still for a copy, was frozen before it and will be afterwards. */
bool copy_ends_frozen(const struct slot *s);

/* Begins the next that waits, if none is under way. */
void copy_next(void *privd);
