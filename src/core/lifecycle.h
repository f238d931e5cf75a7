#pragma once
/* The steps of a sandbox's life that its clock, privd or its owner begins: what each event does in
 * each state is the table's (life.h); this carries it out. */

#include "core/core.h"

struct sandbox_obj;
struct timer;

/* Finds out whether the clock was set, and then moves what is told and stored of the ends of
 * sandboxes along with it. Called with every request and when anything ends: no client sees the end
 * of before. */
void lifecycle_check_clock(struct core *c);

/* (Re-)arms the end of a sandbox from its end_real_ms, where its state has a lifetime. */
void lifecycle_arm(struct sandbox_obj *o);

/* ERR_INVALID: not above 0 and within the server's longest. */
enum err_code lifecycle_check_ttl(const struct core *c, int64_t ttl_ms, struct err *e);

/* Any other state -> ENDING: written, then privd is told. reason is for the log; for events it is
 * o->end_reason. */
void lifecycle_end(struct sandbox_obj *o, const char *reason);

/* The events of life.h. Each may free o. */
void lifecycle_on_timer(struct timer *t);         /* end of a sandbox_obj fired */
void lifecycle_on_missing(struct sandbox_obj *o); /* LIST does not have it */
void lifecycle_on_listed(struct sandbox_obj *o, uint32_t slot, uint32_t gen,
                         bool frozen); /* LIST has it */

/* A row of the store, when the core starts; takes over the references in s. */
enum err_code lifecycle_adopt(struct core *c, const struct sandbox *s, struct err *e);

/* Sends KILL for an ENDING one, or DROP for kept files of it; tries again later when the channel is
 * full. */
void lifecycle_send_kill(struct sandbox_obj *o);

/* Nothing of it is left: row removed, those who wait are told, o is freed. */
void lifecycle_ended(struct sandbox_obj *o, const char *reason);

/* The kill's caller is told why in the next turn, once. */
void lifecycle_kill_failed(struct sandbox_obj *o, const struct err *why);

/* privd's ENDED event. */
void lifecycle_on_ended(struct core *c, const struct privsep_msg *m);
