#pragma once
/* Sandboxes whose end moves on as long as they are used (idle_ms): what counts as use, and the look
 * at it when the end comes. Which of both is looked at is the owner's choice (idle_counts,
 * docs/idle.md):
 *
 * - SANDBOX_IDLE_TRAFFIC: something was asked of it (core_sandbox_used), or a command of core_exec
 *   is under way.
 * - SANDBOX_IDLE_PROCESSES: its programs used the processor since the last look, IDLE_BUSY_PCT of
 *   one or more. privd is asked (STAT), at most once for each idle time: no sandbox is woken, and
 *   none is looked at in between. */

#include "core/core.h"

struct sandbox_obj;

#define IDLE_BUSY_PCT 1 /* of one processor, over the time between two looks */

/* The end that it has by its last use, real time. */
int64_t idle_end_real_ms(const struct sandbox_obj *o);

/* Its end has come. true: it goes on, or privd is asked, whose answer decides; false: it was not
 * used. */
bool idle_goes_on(struct sandbox_obj *o);

/* Its time is over, and it was not used: ended, or paused where its owner wants that. */
void idle_time_is_over(struct sandbox_obj *o);
