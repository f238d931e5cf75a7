#pragma once
/* The sandbox's own programs that are run before a pause and after a resume (agent/hooks.h): the
 * agent is asked for them here, and what failed becomes an event of the sandbox's. They decide
 * nothing: a pause goes on without an answer, and no resume waits. */

#include <stdint.h>

struct sandbox_obj;

/* The longest that the answer can take. */
uint64_t hooks_wait_ms(void);

/* It is in a state of a pause, to which tier, whose go_on (tier.h) follows when they have ended, or
 * their time has, unless the sandbox ends meanwhile. Never from inside the call. */
void hooks_before_pause(struct sandbox_obj *o, const char *tier);

/* It runs; by what is the reason: "resume", "rollback", "snapshot", or "not_paused" where it was to
 * be paused and was not. */
void hooks_after_resume(struct sandbox_obj *o, const char *tier, const char *reason);
