#pragma once
/* KEEP, DROP and KEPTS: the layer of a sandbox that ends becomes that of a number (kept.h). */

#include "contract/proto.h"
#include "privd/kept.h"
#include "privd/loop.h"
#include "privd/reply.h"
#include "runtime/runtime.h"

struct privd;
struct slot;

/* Removes kept layers, one after the other: those whose record says KEPT_DROPPING. */
struct dropper {
    uint32_t number;                                 /* which is being removed; 0: none */
    struct reply_to requested[PRIVSEP_KEPT_MAX + 1]; /* by number */
    struct task task;
    struct loop_source source;
};

/* The record of s's layer, or of its memory, that is being kept as m, which has a number and an
 * owner, asks. */
struct kept_record keep_record(const struct slot *s, const struct privsep_msg *m);

void keep_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                    const struct privsep_msg *m);
void keep_drop_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);
void keep_list_requested(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);

/* Whether a create on that template may take it: 0, -ENOENT, -EBUSY (it is in use, or copies of it
 * were made for creates), -EPERM (it is another owner's), -EINVAL (it lies on another template). */
int keep_may_take(struct privd *p, uint32_t number, const uint8_t owner[static PRIVSEP_OWNER_SIZE],
                  uint32_t template_number);

/* The same, for a copy of it: others may be made of it at the same time. */
int keep_may_copy(struct privd *p, uint32_t number, const uint8_t owner[static PRIVSEP_OWNER_SIZE],
                  uint32_t template_number);

/* Whether the files that are kept by that number are those of a sandbox of that level: no other
 * level's functions start it. false: why says so. */
bool keep_is_of_level(const struct privd *p, uint32_t number, uint32_t level,
                      char why[static PRIVSEP_WHY_SIZE]);

/* s, which is about to be started, takes it. 0 or -errno. */
int keep_take(struct slot *s, uint32_t number);

/* Whether that is why s, whose start failed, cannot give back what it took: there was nothing, and
 * its number is free from now on. */
bool keep_slot_took_none(struct slot *s, int status);

/* Its layer could not be kept for long, and that is tried on: the caller that waits is told. */
void keep_slot_waits(struct slot *s);

/* s runs: what it took is its own. */
void keep_slot_runs(struct slot *s);

/* Nothing of s is left (0), or its layer could not be kept (-errno). */
void keep_slot_gone(struct slot *s, int status);

/* At a start, once it is known which sandboxes live and the remainders of others were undone.
 * Blocks. */
void keep_recover(struct privd *p);
