#pragma once
/* The end of privd, whose sandboxes may live on. */

struct privd;

/* Nothing of what its slots, their tasks and the queues wait for is waited for any more: creates
 * without a slot are forgotten, and the loop can end (loop_free). Before slots_free; p->slots may
 * be NULL. */
void leave_loop(struct privd *p);
