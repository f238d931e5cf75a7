#pragma once
/* FREEZE and THAW: every process of a sandbox stands still, or goes on again. */

#include "privd/reply.h"

struct privd;
struct privsep_msg;
struct slot;

/* FREEZE: answered when every process of it stands still, or goes on again. */
void freeze_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                      const struct privsep_msg *m);

/* THAW. */
void freeze_undo_requested(struct privd *p, struct slot *s, const struct reply_to *to,
                           const struct privsep_msg *m);

/* It ends: the requester of FREEZE gets to know. The caller that ends it tells the kernel. */
void freeze_forget(struct slot *s);

/* The peer is gone: sandboxes that are not frozen yet go on. */
void freeze_forget_all(struct privd *p);

/* As FREEZE, for a COPY of its layer: copy_frozen is called instead of an answer. s is running. */
void freeze_for_copy(struct slot *s);

/* s, which is frozen, goes on: copy_went_on tells how, at once or later. */
void freeze_end(struct slot *s);
