#pragma once
/* Pausing and resuming a sandbox, in one of the tiers of tier.h. The table of life.h decides what
 * each state does with each event; this file carries out the steps that are the same in every
 * tier.
 *
 * Each step is written before privd is asked, and confirmed after. When the channel to privd breaks
 * in between, LIST tells what is so, and the sandbox is paused or runs accordingly (pause_settle);
 * those who wait are told that it broke.
 *
 * Waiters are the sandbox's: each is called once, never from inside the function that takes it. */

#include "base/err.h"
#include "core/core.h"

#include <stdbool.h>

struct sandbox_obj;

/* The end of its time, where its owner wants it paused then: a failed attempt is repeated. */
void pause_on_timeout(struct sandbox_obj *o, enum sandbox_pause_reason reason);

/* LIST has it, in one of the states that pausing and resuming go through, and says whether it is
 * frozen. */
void pause_settle(struct sandbox_obj *o, bool frozen);

/* privd has owed an answer for too long. */
void pause_on_deadline(struct sandbox_obj *o);

/* Of one that runs: with its memory on the disk, for the forks that are to be made of that. Its
 * owner has not asked for a pause, so that none of the quota is needed. */
void pause_for_forks(struct sandbox_obj *o, core_sandbox_cb done, void *arg);
