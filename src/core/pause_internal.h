#pragma once
/* Steps that are the same in every tier of a pause (tier.h): for freeze.c, keep.c and reboot.c. */

#include "base/err.h"
#include "core/core.h"
#include "core/life.h"
#include "core/pause.h"

/* The sandbox that the answer of cay-privd is about, where it is still waited for in a state of
 * that change. NULL: it is not, or there was no answer (what: "pausing the sandbox"), which is
 * dealt with. */
struct sandbox_obj *pause_answered(struct core *c, const char *id, enum life_change change,
                                   int status, const char *what);

/* LIST will tell what is so; those who wait are told that it broke. */
void pause_channel_broke(struct sandbox_obj *o, int status, const char *what);

/* Begins a pause of one that runs. On failure nothing has changed. */
enum err_code pause_begin(struct sandbox_obj *o, enum sandbox_pause_reason reason,
                          enum sandbox_tier tier, struct err *e);

/* It is paused, in state `to`. */
void pause_done(struct sandbox_obj *o, enum sandbox_state to);

/* Its owner is told that it is paused, and what is kept: again where that became less. */
void pause_notify_owner(struct sandbox_obj *o);

/* It runs, though it was to be paused. */
void pause_not_done(struct sandbox_obj *o, const struct err *why);

/* It runs again. */
void pause_resumed(struct sandbox_obj *o);

/* Thaws it, or boots it on the files that are kept of it. On failure nothing has changed. */
enum err_code pause_begin_resume(struct sandbox_obj *o, struct err *e);

/* Of one that runs and is to boot anew: it is being kept for that. The same. */
enum err_code pause_begin_keep(struct sandbox_obj *o, struct err *e);

/* A sandbox that runs or is paused does not boot anew: its waiters are told the reason, and nothing
 * else has changed. */
void pause_not_rebooted(struct sandbox_obj *o, const struct err *why);

/* done when it runs again, for ttl_ms (0: the default) at least. */
void pause_wait_resumed(struct sandbox_obj *o, int64_t ttl_ms, core_sandbox_cb done, void *arg);

/* It is paused still, in state `to`. */
void pause_not_resumed(struct sandbox_obj *o, enum sandbox_state to, const struct err *why);
