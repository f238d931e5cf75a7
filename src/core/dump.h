#pragma once
/* A pause with the memory on the disk: a pause with the files (keep.h) whose PRIVSEP_DUMP keeps
 * beside them what runs, and a resume by a CREATE that has it go on. Whether that is so of a
 * sandbox stands in its row (kept_memory), whether its files alone will do too (or_files).
 *
 * Its agent is asked to prepare, then all that leads to it is closed, then privd dumps. There is
 * one sandbox of a tenant at a time in between; its others wait. A sandbox that
 * cannot be kept is refused by privd or the agent, with the reason, and runs on: the pause fails
 * with that, or keeps the files alone where they will do. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct privsep_msg;
struct sandbox_obj;

/* Keeping, and its environment is written. */
void dump_begin(struct sandbox_obj *o);

/* LIST has it, though it is being kept: an earlier cayd, or an earlier channel, has asked its agent
 * or privd. Only privd can have it go on, so it is dumped now. false: nothing was begun. */
bool dump_again(struct sandbox_obj *o);

/* Its timer fired. true: it waited for its turn. */
bool dump_on_timer(struct sandbox_obj *o);

/* -- of a start from memory (o->restoring) ----------------------------------------------------- */

/* For as long as privd may need for one. */
void dump_await_restore(struct sandbox_obj *o);

/* privd has made it, and it goes on. */
void dump_restored(struct sandbox_obj *o);

/* privd has not. true: it is tried again, or its files alone are started. false: it is paused
 * still, for that reason in *e; left as it was where the reason is no matter of its memory. */
bool dump_restore_refused(struct sandbox_obj *o, int status, const struct privsep_msg *m,
                          struct err *e);

/* KEPTS says that there is no memory beside its files, though it was paused with it: they alone are
 * what there is of it, and that is told, for dump_why where its resume was refused for that. */
void dump_was_lost(struct sandbox_obj *o);

/* It is neither being dumped nor restored. */
void dump_forget(struct sandbox_obj *o);
